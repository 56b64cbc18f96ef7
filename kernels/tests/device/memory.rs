//! Tests allocation of device and host memory until it is exhausted.
#![expect(unsafe_code, reason = "gives addresses back")]

use highwater_kernels::Error;
use highwater_stand_in::Setup;

use crate::block::{Block, gpu};

#[test]
fn what_is_reserved_counts_until_it_is_released() {
    Setup::new().memory_bytes(64 << 20).only_on_stand_in().run(|| {
        let gpu = gpu();
        let before = gpu.memory().expect("it answers");
        assert_eq!(before.total_bytes, 64 << 20);
        assert!(before.free_bytes < before.total_bytes, "the context itself takes some");
        let (odd, large) = (Block::new(&gpu, 1000).expect("room"), Block::new(&gpu, 5 << 20).expect("room"));
        assert!(odd.address.is_multiple_of(512) && large.address.is_multiple_of(512));
        let during = gpu.memory().expect("it answers");
        assert_eq!(before.free_bytes - during.free_bytes, 1024 + (5 << 20));
        drop((odd, large));
        assert_eq!(gpu.memory().expect("it answers"), before);
    });
}

#[test]
fn more_than_there_is_is_out_of_memory_and_leaves_the_device_usable() {
    Setup::new().memory_bytes(64 << 20).run(|| {
        let gpu = gpu();
        let free = gpu.memory().expect("it answers").free_bytes;
        for bytes in [free + (1 << 20), 16 * free] {
            let error = gpu.reserve(bytes).expect_err("nobody has as much");
            assert!(matches!(error, Error::OutOfMemory { .. }), "{error}");
        }
        let block = Block::of(&gpu, &[1.0_f32, 2.0, 3.0]);
        assert_eq!(block.read::<f32>(3, 0), [1.0, 2.0, 3.0]);
    });
}

#[test]
fn blocks_fill_the_device_to_its_last_byte() {
    Setup::new().memory_bytes(64 << 20).only_on_stand_in().run(|| {
        let gpu = gpu();
        let mut blocks = Vec::new();
        let error = loop {
            match Block::new(&gpu, 4 << 20) {
                Ok(block) => blocks.push(block),
                Err(error) => break error,
            }
        };
        assert!(matches!(error, Error::OutOfMemory { .. }), "{error}");
        assert_eq!(blocks.len(), 14);
        assert_eq!(gpu.memory().expect("it answers").free_bytes, 0);
        blocks.pop();
        Block::new(&gpu, 4 << 20).expect("there is room again");
    });
}

#[test]
fn what_was_not_handed_out_is_not_taken_back_or_copied() {
    Setup::new().only_on_stand_in().run(|| {
        let gpu = gpu();
        let block = Block::of(&gpu, &[7_u8; 1024]);
        let words = |result: Result<(), Error>| result.expect_err("it is refused").to_string();
        // SAFETY: the stand-in looks at every address.
        unsafe {
            assert!(words(gpu.release(block.address + 512)).contains("CUDA_ERROR_INVALID_VALUE: no block begins"));
            assert!(words(gpu.release_pinned(block.address)).contains("CUDA_ERROR_INVALID_VALUE"));
            let past = gpu.copy_in(block.address, &[0; 1025], 0);
            assert!(words(past).contains("1025 bytes from"), "a copy past the end of a block");
            assert!(words(gpu.copy_out(&mut [0; 512], block.address + 600, 0)).contains("CUDA_ERROR_INVALID_VALUE"));
            assert!(words(gpu.copy_out(&mut [0; 4], 64, 0)).contains("CUDA_ERROR_INVALID_VALUE"));
        }
        assert_eq!(block.read::<u8>(1024, 0), [7; 1024]);
    });
}

#[test]
fn fresh_memory_is_no_number_in_any_type() {
    Setup::new().only_on_stand_in().run(|| {
        let gpu = gpu();
        let block = Block::new(&gpu, 1 << 16).expect("there is room");
        assert!(block.read::<f32>(1 << 14, 0).iter().all(|number| number.is_nan()));
        assert!(block.read::<f64>(1 << 13, 0).iter().all(|number| number.is_nan()));
    });
}

#[test]
fn a_copy_from_pinned_memory_takes_what_is_there_when_its_turn_comes() {
    Setup::new().lazy().only_on_stand_in().run(|| {
        let gpu = gpu();
        let pinned = gpu.reserve_pinned(4096).expect("there is room");
        let host: *mut f32 = std::ptr::with_exposed_provenance_mut(pinned as usize);
        let block = Block::new(&gpu, 4096).expect("there is room");
        // SAFETY: both have room for a number; the test is about one that changes too early.
        unsafe {
            host.write_volatile(1.0);
            gpu.copy_from_pinned(block.address, pinned, 4, 0).expect("a copy");
            gpu.synchronize(0).expect("it is done");
            gpu.copy_from_pinned(block.address + 4, pinned, 4, 0).expect("a copy");
            host.write_volatile(2.0);
            gpu.synchronize(0).expect("it is done");
            gpu.copy_from_pinned(block.address + 8, pinned, 4, 0).expect("a copy");
            // Waits for it.
            gpu.release_pinned(pinned).expect("it was reserved");
        }
        assert_eq!(block.read::<f32>(3, 0), [1.0, 2.0, 2.0]);
    });
}
