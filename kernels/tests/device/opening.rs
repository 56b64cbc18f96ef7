//! Opening: which devices there are, and what is said of those that cannot be used.

use highwater_kernels::{Error, Gpu, devices};
use highwater_stand_in::Setup;

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
