//! Tests which devices are listed, and the errors for devices that cannot be used.

use std::process::Command;

use highwater_kernels::{Error, Gpu, devices};
use highwater_stand_in::Setup;
use highwater_stand_in::setup::{GPU_VARIABLE, REQUIRED_VARIABLE};

use crate::block::{Block, gpu};

#[test]
fn the_stand_in_is_a_device_like_any() {
    Setup::new().memory_bytes(64 << 20).only_on_stand_in().run(|| {
        let known = devices().expect("the driver answers");
        assert_eq!(known.len(), 1);
        assert_eq!((known[0].ordinal, known[0].memory_bytes), (0, 64 << 20));
        let gpu = gpu();
        assert_eq!((gpu.ordinal(), gpu.name(), gpu.capability()), (0, "Highwater stand-in", (9, 0)));
        assert!(gpu.processors() > 0);
    });
}

#[test]
fn without_a_compiler_tests_are_skipped_unless_they_are_required() {
    let run = |required: bool| {
        let mut command = Command::new(std::env::current_exe().expect("a test knows its own path"));
        command.args(["opening::the_stand_in_is_a_device_like_any", "--exact", "--nocapture"]);
        command.env("CXX", "/there/is/none").env_remove(GPU_VARIABLE).env_remove(REQUIRED_VARIABLE);
        command.envs(required.then_some((REQUIRED_VARIABLE, "1")));
        let run = command.output().expect("it can be run");
        (run.status.success(), String::from_utf8_lossy(&run.stderr).into_owned())
    };
    let (succeeds, words) = run(false);
    assert!(succeeds && words.contains("skipped: ") && words.contains("install g++"), "{words}");
    let (succeeds, words) = run(true);
    assert!(!succeeds && words.contains("install g++"), "{words}");
}

#[test]
fn a_device_that_is_not_there_is_named_with_how_many_there_are() {
    Setup::new().run(|| {
        let count = devices().expect("the driver answers").len() as u16;
        let error = Gpu::open(count).expect_err("there is no such device");
        assert!(matches!(error, Error::NoDevice { asked, count: told } if asked == count && told == count), "{error}");
    });
}

#[test]
fn a_device_that_is_too_old_is_named_with_what_it_has() {
    Setup::new().capability(7, 5).only_on_stand_in().run(|| {
        let error = Gpu::open(0).expect_err("it is too old");
        assert!(error.to_string().contains("Highwater stand-in has compute capability 7.5"), "{error}");
    });
}

#[test]
fn a_library_that_is_newer_than_the_driver_supports_is_refused_with_both_versions() {
    Setup::new().driver(12, 8).only_on_stand_in().run(|| {
        let error = Gpu::open(0).expect_err("the libraries are of CUDA 13");
        assert!(matches!(error, Error::TooNew { library: "NVRTC", driver: (12, 8), .. }), "{error}");
        assert!(error.to_string().contains("supports CUDA up to 12.8"), "{error}");
    });
    Setup::new().only_on_stand_in().run(|| assert_eq!(gpu().versions().products, (13, 0)));
}

#[test]
fn two_devices_have_memory_each() {
    Setup::new().devices(2).memory_bytes(64 << 20).only_on_stand_in().run(|| {
        let (first, second) = (gpu(), Gpu::open(1).expect("there are two"));
        let before = second.memory().expect("it answers");
        let held = Block::new(&first, 40 << 20).expect("there is room");
        assert_eq!(second.memory().expect("it answers"), before);
        let other = Block::new(&second, 40 << 20).expect("there is room on the other");
        assert!(Block::new(&first, 40 << 20).is_err(), "there is no room for another");
        held.write(&[1.0_f32, 2.0, 3.0], 0);
        // SAFETY: three numbers are at both addresses, and both streams are waited for.
        #[expect(unsafe_code, reason = "copies between addresses")]
        unsafe { first.copy_across(held.address, 0, (&second, other.address), 0, 12) }.expect("a copy");
        assert_eq!(other.read::<f32>(3, 0), [1.0, 2.0, 3.0]);
    });
}

#[test]
fn the_last_to_go_lets_a_device_go_with_all_that_is_on_it() {
    Setup::new().memory_bytes(64 << 20).only_on_stand_in().run(|| {
        let first = gpu();
        let free = first.memory().expect("it answers").free_bytes;
        first.reserve(40 << 20).expect("there is room");
        first.new_stream().expect("a stream");
        let error = first.reserve(40 << 20).expect_err("there is no room");
        assert!(matches!(error, Error::OutOfMemory { .. }), "{error}");
        drop(first);
        let again = gpu();
        assert_eq!(again.memory().expect("it answers").free_bytes, free);
    });
}
