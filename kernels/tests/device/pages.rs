//! Tests reserving address ranges and mapping memory into them page by page.
#![expect(unsafe_code, reason = "maps memory behind addresses")]

use highwater_kernels::{Error, Gpu};
use highwater_stand_in::Setup;
use highwater_stand_in::setup::GPU_VARIABLE;

use crate::block::gpu;

fn write(gpu: &Gpu, address: u64, byte: u8, bytes: usize) -> Result<(), Error> {
    // SAFETY: the tests write where they have mapped memory; the stand-in refuses the rest.
    unsafe { gpu.copy_in(address, &vec![byte; bytes], 0) }
}

fn read(gpu: &Gpu, address: u64, bytes: usize) -> Result<Vec<u8>, Error> {
    let mut found = vec![0; bytes];
    // SAFETY: as for `write`.
    unsafe { gpu.copy_out(&mut found, address, 0) }.map(|()| found)
}

/// Fails unless so much is gone of what was `free`. A GPU's driver may take memory for itself along the way.
fn assert_taken(gpu: &Gpu, free: u64, bytes: u64) {
    let taken = free as i64 - gpu.memory().expect("it answers").free_bytes as i64;
    let own = if std::env::var_os(GPU_VARIABLE).is_some_and(|value| value == "1") { 64 << 20 } else { 0 };
    assert!((bytes as i64..=bytes as i64 + own).contains(&taken), "{taken} bytes instead of {bytes}");
}

#[test]
fn memory_comes_and_goes_behind_addresses_that_stay() {
    Setup::new().memory_bytes(64 << 20).run(|| {
        let gpu = gpu();
        let page = gpu.page_bytes().expect("it has virtual memory");
        let all = (gpu.memory().expect("it answers").total_bytes * 4).next_multiple_of(page);
        let start = gpu.reserve_addresses(all).expect("addresses cost nothing");
        assert!(start.is_multiple_of(page));
        let free = gpu.memory().expect("it answers").free_bytes;
        // SAFETY: pages within the addresses, each mapped once at a time, and nothing uses what is unmapped.
        unsafe {
            gpu.map(start + page, 3 * page, page).expect("there is room");
            assert_taken(&gpu, free, 3 * page);
            write(&gpu, start + page, 5, 3 * page as usize).expect("all of it is there");
            assert_eq!(read(&gpu, start + 2 * page - 8, 16).expect("it is there"), [5; 16], "pages follow each other");
            gpu.unmap(start + 2 * page, page).expect("it was mapped");
            assert_taken(&gpu, free, 2 * page);
            assert_eq!(read(&gpu, start + 2 * page - 8, 8).expect("it is there"), [5; 8]);
            assert_eq!(read(&gpu, start + 3 * page, 8).expect("it is there"), [5; 8]);
            gpu.map(start + 2 * page, page, page).expect("there is room again");
            write(&gpu, start + 2 * page, 6, 8).expect("it is there");
            assert_eq!(read(&gpu, start + 2 * page, 8).expect("it is there"), [6; 8]);
            gpu.unmap(start + page, 3 * page).expect("it was mapped");
            assert_taken(&gpu, free, 0);
            gpu.release_addresses(start, all).expect("they were reserved");
        }
    });
}

#[test]
fn a_mapping_that_does_not_fit_leaves_nothing_behind() {
    Setup::new().memory_bytes(64 << 20).only_on_stand_in().run(|| {
        let gpu = gpu();
        let page = gpu.page_bytes().expect("it has virtual memory");
        let start = gpu.reserve_addresses(100 * page).expect("addresses cost nothing");
        let free = gpu.memory().expect("it answers").free_bytes;
        // SAFETY: pages within the addresses, and nothing uses them.
        unsafe {
            let error = gpu.map(start, 40 * page, page).expect_err("there is not as much");
            assert!(matches!(error, Error::OutOfMemory { .. }), "{error}");
            assert_eq!(gpu.memory().expect("it answers").free_bytes, free);
            gpu.map(start, free, page).expect("there is as much");
            assert!(gpu.reserve(512).is_err(), "pages and blocks share the device's memory");
        }
    });
}

#[test]
fn what_is_not_mapped_cannot_be_used_and_what_is_cannot_be_released() {
    Setup::new().only_on_stand_in().run(|| {
        let gpu = gpu();
        let page = gpu.page_bytes().expect("it has virtual memory");
        let start = gpu.reserve_addresses(8 * page).expect("addresses cost nothing");
        let refused = |result: Result<(), Error>| {
            let words = result.expect_err("it is refused").to_string();
            assert!(words.contains("CUDA_ERROR_INVALID_VALUE"), "{words}");
        };
        refused(write(&gpu, start, 1, 8));
        // SAFETY: the stand-in looks at what is asked of it.
        unsafe {
            gpu.map(start, 2 * page, page).expect("there is room");
            refused(write(&gpu, start + 2 * page - 4, 1, 8));
            refused(gpu.map(start + page, page, page));
            refused(gpu.map(start + 7 * page, 2 * page, page));
            write(&gpu, start + page, 9, 8).expect("what failed took nothing away");
            refused(gpu.release_addresses(start, 8 * page));
            refused(gpu.release_addresses(start, 4 * page));
            gpu.unmap(start, 2 * page).expect("it was mapped");
            refused(write(&gpu, start, 1, 8));
            gpu.release_addresses(start, 8 * page).expect("nothing is behind them");
            refused(gpu.release_addresses(start, 8 * page));
        }
    });
}
