//! Tests that a failure on a device is reported by the operation that waits for it, and always with the right cause.
#![expect(unsafe_code, reason = "takes memory away from under a tensor, to see what becomes of it")]

use highwater_allocator::AllocError;
use highwater_engine::{DType, Device, Error, Result, Tensor};
use highwater_kernels::Gpu;
use highwater_recorder::snapshots::event::EventKind;
use highwater_stand_in::Setup;

use crate::recorded::record;

fn cuda() -> Device {
    Device::cuda(0).expect("a device opens")
}

/// Looks up row 5 of a table of two rows, which the device detects when the kernel runs.
fn look_too_far(device: &Device) -> Result<Tensor> {
    let table = Tensor::ones([2, 3], DType::F32, device)?;
    table.embedding(&Tensor::from_slice(&[0_i64, 5], 2, device)?)
}

fn assert_told<T: std::fmt::Debug>(how: &str, outcome: Result<T>) {
    match outcome {
        Err(Error::Index { index: 5, size: 2, .. }) => {}
        other => panic!("{how}: {other:?}"),
    }
}

#[test]
fn an_index_outside_of_its_table_is_reported_by_the_next_that_waits() {
    Setup::new().lazy().run(|| {
        let device = cuda();
        type Wait<'a> = &'a dyn Fn(Tensor) -> Result<()>;
        let waits: [(&str, Wait<'_>); 5] = [
            ("synchronize", &|_| device.synchronize()),
            ("a stream's synchronize", &|_| device.current_stream().synchronize()),
            ("to_vec", &|rows| rows.to_vec::<f32>().map(drop)),
            ("item", &|rows| rows.select(0, 0)?.select(0, 0)?.item().map(drop)),
            ("to_device", &|rows| rows.to_device(&Device::cpu()).map(drop)),
        ];
        for (how, wait) in waits {
            let rows = look_too_far(&device).expect("nobody has looked yet");
            assert_told(how, wait(rows));
            device.synchronize().expect("told once");
        }
    });
}

/// Makes the device write to memory that has been freed.
fn break_device(device: &Device) {
    let written = Tensor::empty(30 << 20, DType::U8, device).expect("there is memory");
    let other = Gpu::open(0).expect("the same device");
    // SAFETY: none; the kernel that writes there fails, on the stand-in as on a GPU.
    unsafe { other.release(written.storage().address()) }.expect("a segment of its own");
    // The launch may tell, or whoever waits for it.
    drop(written.fill_(1.0));
    std::mem::forget(written);
}

#[test]
fn a_device_that_failed_says_so_and_never_that_memory_is_short() {
    Setup::new().only_on_stand_in().run(|| {
        let device = cuda();
        let before = Tensor::ones(10, DType::F32, &device).expect("there is memory");
        break_device(&device);
        let words = |error: Error| {
            assert!(!error.is_out_of_memory(), "{error}");
            let words = error.to_string();
            assert!(words.contains("CUDA_ERROR_"), "{words}");
        };
        let trace = record(|| {
            words(device.synchronize().expect_err("the device failed"));
            words(before.to_vec::<f32>().expect_err("the device failed"));
            words(before.add(&before).expect_err("the device failed"));
            // More than is cached: the driver is asked, and what it says is not that it has no memory.
            let large = Tensor::empty(30 << 20, DType::F32, &device).expect_err("the device failed");
            assert!(matches!(large, Error::Alloc(AllocError::Driver(_))), "{large}");
            words(large);
            words(Tensor::ones(5 << 20, DType::F32, &device.pinned()).expect_err("the device failed"));
        });
        assert!(!trace.events.kind.contains(&EventKind::Oom));
        words(device.new_stream().expect_err("the device failed"));
        drop((before, device));
    });
}

#[test]
fn a_device_may_go_with_work_under_way() {
    Setup::new().lazy().run(|| {
        for settings in ["", "expandable_segments:True"] {
            for _ in 0..2 {
                let device = Device::cuda_with(0, None, settings.parse().expect("settings")).expect("a device opens");
                let side = device.new_stream().expect("a stream");
                let ones = Tensor::ones(3 << 20, DType::F32, &device).expect("there is memory");
                let pinned = Tensor::ones(1000, DType::F32, &device.pinned()).expect("there is memory");
                let moved = pinned.to_device(&device).expect("there is memory");
                side.wait_for(&device.default_stream()).expect("streams wait");
                let _side = side.enter();
                ones.record_stream(&side).expect("of this device");
                let sum = ones.add(&ones).expect("there is memory");
                // The device's handle goes first, its memory with the last tensor.
                drop((device, pinned, moved, ones, sum));
            }
        }
        let device = cuda();
        assert_eq!(
            Tensor::ones(3, DType::F32, &device).and_then(|ones| ones.to_vec::<f32>()).expect("numbers"),
            [1.0; 3]
        );
        device.synchronize().expect("nothing is left of what went before");
    });
}
