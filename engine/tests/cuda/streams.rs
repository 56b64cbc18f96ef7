//! Tests on which stream work runs, which streams wait for each other, and that memory in use on another stream is not
//! reused.

use expect_test::expect;
use highwater_engine::device::Stream;
use highwater_engine::{DType, Device, Result, Tensor};
use highwater_recorder::StreamId;
use highwater_stand_in::Setup;
use highwater_stand_in::setup::GPU_VARIABLE;

use crate::recorded::{lines, record};

const COUNT: usize = 1000;

fn cuda() -> Device {
    Device::cuda(0).expect("a device opens")
}

/// Whether the tests run on a GPU, which does work at its own time, and not on the stand-in.
fn is_on_gpu() -> bool {
    std::env::var_os(GPU_VARIABLE).is_some_and(|value| value == "1")
}

/// A tensor full of one value, on the thread's current stream.
fn full(value: f64, device: &Device) -> Tensor {
    Tensor::full(COUNT, value, DType::F32, device).expect("there is memory")
}

/// A tensor of ones is made on the default stream, read on `side` and let go of; then its neighbour of twos is made.
/// Gives what `side` read, and whether the twos got the memory of the ones.
fn read_beside(device: &Device, side: &Stream, tells: bool) -> Result<(Vec<f32>, bool)> {
    let ones = full(1.0, device);
    side.wait_for(&device.default_stream())?;
    let read = {
        let _side = side.enter();
        ones.add(&ones)?
    };
    if tells {
        ones.record_stream(side)?;
    }
    let address = ones.storage().address();
    drop(ones);
    let twos = full(2.0, device);
    // The default stream gets as far as the twos, and the side stream only then to its addition.
    device.default_stream().synchronize()?;
    side.synchronize()?;
    Ok((read.to_vec()?, twos.storage().address() == address))
}

#[test]
fn memory_that_another_stream_uses_unsaid_is_handed_out_too_early() {
    Setup::new().lazy().only_on_stand_in().run(|| {
        let device = cuda();
        let side = device.new_stream().expect("a stream");
        let (read, is_reused) = read_beside(&device, &side, false).expect("work is done");
        assert!(is_reused);
        assert_eq!(read, [4.0; COUNT], "the twos were there before the ones were read");
    });
}

#[test]
fn memory_that_is_recorded_as_used_by_another_stream_waits_for_it() {
    Setup::new().lazy().run(|| {
        let device = cuda();
        let side = device.new_stream().expect("a stream");
        let (read, is_reused) = read_beside(&device, &side, true).expect("work is done");
        // A GPU may have been done with the ones when memory for the twos was asked for.
        assert!(!is_reused || is_on_gpu());
        assert_eq!(read, [2.0; COUNT]);
    });
}

#[test]
fn a_block_is_free_when_the_other_stream_got_so_far_and_memory_is_asked_for() {
    Setup::new().lazy().only_on_stand_in().run(|| {
        let device = cuda();
        let trace = record(|| {
            let side = device.new_stream().expect("a stream");
            let ones = full(1.0, &device);
            side.wait_for(&device.default_stream()).expect("streams wait");
            let read = {
                let _side = side.enter();
                ones.add(&ones).expect("there is memory")
            };
            ones.record_stream(&side).expect("of this device");
            drop(ones);
            drop(full(2.0, &device));
            drop(read);
            side.synchronize().expect("work is done");
            drop(full(3.0, &device));
        });
        expect![[r#"
            segment_alloc 2 MiB for stream 0
            alloc 0 3.91 KiB for stream 0
            segment_alloc 2 MiB for stream 1
            alloc 1 3.91 KiB for stream 1
            free_requested 0
            alloc 2 3.91 KiB for stream 0
            free_requested 2
            free_completed 2
            free_requested 1
            free_completed 1
            free_completed 0
            alloc 3 3.91 KiB for stream 0
            free_requested 3
            free_completed 3
        "#]]
        .assert_eq(&lines(&trace, device.id()));
    });
}

/// Two streams and tensors that pass between them, backward included.
fn busy(device: &Device) -> Result<()> {
    let main = device.default_stream();
    let sides = [device.new_stream()?, device.new_stream()?];
    let weight = full(0.5, device);
    weight.set_requires_grad(true)?;
    for side in &sides {
        let _side = side.enter();
        side.wait_for(&main)?;
        let product = weight.mul(&full(3.0, device))?.relu()?;
        main.wait_for(side)?;
        product.record_stream(&main)?;
        drop(_side);
        product.mul(&product)?.backward_from(full(1.0, device))?;
    }
    let grad = weight.take_grad().expect("backward gave a gradient");
    if device.has_values() {
        // d (3 w)² / dw = 18 w, twice.
        assert_eq!(grad.to_vec::<f32>()?, [18.0; COUNT]);
    }
    device.synchronize()?;
    drop(grad);
    drop(full(1.0, device));
    Ok(())
}

#[test]
fn every_device_records_the_same_streams() {
    Setup::new().run(|| {
        let config = || "".parse().expect("no settings are settings");
        let devices = [
            cuda(),
            Device::accounting_for_cuda(1 << 30, config()).expect("there is memory"),
            Device::accounting_with(1 << 30, config()),
            Device::cpu(),
        ];
        let told = devices.each_ref().map(|device| {
            let trace = record(|| busy(device).expect("work is done"));
            lines(&trace, device.id())
        });
        assert!(told[0].contains("for stream 2") && told[0].lines().count() > 30, "{}", told[0]);
        assert_eq!(told[2], told[3], "the accounting device and the cpu");
        assert_eq!(told[1], told[2], "with what counts for a GPU and without");
        assert_eq!(settled(&told[0]), settled(&told[1]), "cuda and what counts for it");
    });
}

/// The lines to compare: on a GPU without completed frees, whose time depends on the GPU.
fn settled(told: &str) -> Vec<&str> {
    told.lines().filter(|line| !is_on_gpu() || !line.starts_with("free_completed")).collect()
}

#[test]
fn gradients_that_pass_between_streams_wait_for_each_other() {
    Setup::new().lazy().run(|| busy(&cuda()).expect("work is done"));
}

#[test]
fn guards_put_the_thread_back_and_leave_other_devices_and_threads_alone() {
    Setup::new().devices(2).run(|| {
        let (one, other) = (cuda(), Device::cpu());
        let [a, b] = [1, 2].map(|_| one.new_stream().expect("a stream"));
        assert_eq!([a.id(), b.id(), one.stream()], [StreamId(1), StreamId(2), StreamId(0)]);
        let outer = a.enter();
        {
            let _inner = b.enter();
            assert_eq!((one.stream(), other.stream()), (StreamId(2), StreamId(0)));
            let elsewhere = std::thread::scope(|scope| scope.spawn(|| one.stream()).join().expect("no panic"));
            assert_eq!(elsewhere, StreamId(0));
            let _default = one.default_stream().enter();
            assert_eq!((one.stream(), one.current_stream()), (StreamId(0), one.default_stream()));
            assert_eq!(full(0.0, &one).storage().stream(), StreamId(0));
        }
        assert_eq!((one.stream(), one.current_stream()), (StreamId(1), a.clone()));
        assert_eq!(full(0.0, &one).storage().stream(), StreamId(1));
        drop(outer);
        assert_eq!(one.stream(), StreamId(0));
        let refused = full(0.0, &other).record_stream(&a).expect_err("a stream of another device");
        assert!(refused.to_string().contains("record_stream"), "{refused}");
    });
}

#[test]
#[expect(clippy::print_stderr, reason = "says that nothing was tested, and why")]
fn a_stream_of_one_device_waits_for_one_of_another() {
    Setup::new().devices(2).lazy().run(|| {
        if highwater_kernels::devices().is_ok_and(|devices| devices.len() < 2) {
            eprintln!("skipped: it needs two devices");
            return;
        }
        let devices = [0, 1].map(|ordinal| Device::cuda(ordinal).expect("a device opens"));
        let [one, other] = devices.each_ref().map(Device::default_stream);
        let numbers = full(5.0, &devices[0]);
        other.wait_for(&one).expect("streams wait");
        // What the other stream waits for is done when it is.
        other.synchronize().expect("work is done");
        let moved = numbers.to_device(&devices[1]).expect("there is memory");
        assert_eq!(moved.to_vec::<f32>().expect("numbers"), [5.0; COUNT]);
        let host = Device::cpu().default_stream();
        host.wait_for(&one).expect("the host waits");
        one.wait_for(&host).expect("the host has nothing to be waited for");
    });
}

#[test]
fn threads_that_share_a_stream_take_turns_with_its_workspace() {
    Setup::new().run(|| {
        let device = cuda();
        // Cut into parts, which wait in the workspace for a second kernel.
        let sums = |value: f64| {
            let input = Tensor::full([9_001, 8], value, DType::F32, &device).expect("there is memory");
            for turn in 0..100 {
                let sum = input.sum_axes(&[0]).expect("it sums").to_vec::<f32>().expect("it can be read");
                assert_eq!(sum, [9_001.0 * value as f32; 8], "turn {turn} of {value}");
            }
        };
        std::thread::scope(|scope| {
            let sums = &sums;
            let others = [1.0, 2.0, 3.0].map(|value| scope.spawn(move || sums(value)));
            others.into_iter().for_each(|other| other.join().expect("every sum is right"));
        });
    });
}
