//! Tests of several devices in one program and one recording, and of copies between them.

use highwater_engine::ops::AttentionOptions;
use highwater_engine::{DType, Device, Error, Tensor};
use highwater_recorder::DeviceId;
use highwater_stand_in::Setup;

use crate::recorded::{lines, record, samples};

fn two() -> [Device; 2] {
    [0, 1].map(|ordinal| Device::cuda(ordinal).expect("a device opens"))
}

fn counted(device: &Device) -> Tensor {
    Tensor::from_slice(&[0.0_f32, 1.0, 2.0, 3.0, 4.0, 5.0], [2, 3], device).expect("there is memory")
}

#[test]
fn devices_have_their_ordinals_in_recordings_and_keep_their_memory_apart() {
    Setup::new().devices(2).only_on_stand_in().run(|| {
        let [other, one] = [1, 0].map(|ordinal| Device::cuda(ordinal).expect("a device opens"));
        assert_eq!([one.id(), other.id()], [DeviceId(0), DeviceId(1)]);
        assert_eq!([one.to_string(), other.to_string()], ["cuda:0", "cuda:1"]);
        let trace = record(|| {
            drop(Tensor::ones(100, DType::F32, &other).expect("there is memory"));
            drop(Tensor::ones(10 << 20, DType::F32, &one).expect("there is memory"));
        });
        assert!(lines(&trace, one.id()).starts_with("segment_alloc 40 MiB"));
        assert!(lines(&trace, other.id()).starts_with("segment_alloc 2 MiB"));
        let used = [&one, &other].map(|device| samples(&trace, device.id()).last().expect("a sample").0);
        assert_eq!(used, [(8 + 16 + 40) << 20, (8 + 16 + 2) << 20]);
        let names: Vec<(DeviceId, &str)> = trace.devices.iter().map(|facts| (facts.device, &*facts.driver)).collect();
        assert_eq!(names, [(DeviceId(0), "cuda"), (DeviceId(1), "cuda")]);
    });
}

#[test]
fn unknown_devices_are_refused_with_how_many_there_are() {
    Setup::new().devices(2).only_on_stand_in().run(|| {
        let refused = Device::cuda(2).expect_err("there are two").to_string();
        assert_eq!(refused, "CUDA device 2 does not exist: the number of devices is 2");
    });
}

#[test]
fn operations_refuse_tensors_of_two_devices() {
    Setup::new().devices(2).only_on_stand_in().run(|| {
        let devices = two();
        let [a, b] = devices.each_ref().map(counted);
        let square = |device: &Device| Tensor::ones([3, 3], DType::F32, device).expect("there is memory");
        let places = |device: &Device| Tensor::from_slice(&[0_i64, 1], 2, device).expect("there is memory");
        let line = |device: &Device| Tensor::ones(3, DType::F32, device).expect("there is memory");
        let heads = |device: &Device| Tensor::ones([1, 1, 2, 4], DType::F32, device).expect("there is memory");
        let image = |device: &Device| Tensor::ones([1, 1, 4, 4], DType::F32, device).expect("there is memory");
        let [one, other] = &devices;
        let attention = || Tensor::attention(&heads(one), &heads(one), &heads(other), AttentionOptions::causal());
        a.set_requires_grad(true).expect("a leaf");
        let refused = [
            ("add", a.add(&b)),
            ("maximum", a.maximum(&b)),
            ("matmul", a.matmul(&square(other))),
            ("linear", a.linear(&square(one), Some(&line(other)))),
            ("embedding", a.embedding(&places(other))),
            ("concat", Tensor::concat(&[&a, &b], 0)),
            ("cross_entropy", a.cross_entropy(&places(other), None)),
            ("layer_norm", a.layer_norm(Some(&line(one)), Some(&line(other)), 1e-5)),
            ("rms_norm", a.rms_norm(Some(&line(other)), 1e-5)),
            ("mse_loss", a.mse_loss(&b)),
            ("swiglu", Tensor::swiglu(&a, &b)),
            ("attention", attention()),
            ("conv2d", image(one).conv2d(&image(other), None, Default::default())),
            ("set_grad", a.set_grad(b.clone()).map(|()| a.clone())),
            ("backward_from", a.mul_scalar(2.0).and_then(|c| c.backward_from(b.clone())).map(|()| a.clone())),
        ];
        for (what, outcome) in refused {
            match outcome {
                Err(Error::Devices { .. }) => {}
                other => panic!("{what}: {other:?}"),
            }
        }
    });
}

#[test]
fn tensors_go_from_device_to_device() {
    Setup::new().devices(2).lazy().only_on_stand_in().run(|| {
        let [one, other] = two();
        let side = other.new_stream().expect("a stream");
        let source = counted(&one).add_scalar(1.0).expect("there is memory");
        let moved = source.to_device(&other).expect("there is memory");
        // Work of either device that comes later changes nothing.
        source.fill_(9.0).expect("nobody needs it");
        let there = moved.mul_scalar(2.0).expect("there is memory");
        assert_eq!(there.to_vec::<f32>().expect("numbers"), [2.0, 4.0, 6.0, 8.0, 10.0, 12.0]);
        // Views, and a stream that is not the default one.
        let _side = side.enter();
        let turned = there.transpose(0, 1).and_then(|turned| turned.to_device(&one)).expect("there is memory");
        assert_eq!(turned.to_vec::<f32>().expect("numbers"), [2.0, 8.0, 4.0, 10.0, 6.0, 12.0]);
        let row = there.select(0, 1).and_then(|row| row.to_device(&one)).expect("there is memory");
        assert_eq!(row.to_vec::<f32>().expect("numbers"), [8.0, 10.0, 12.0]);
        let nothing = Tensor::ones([0, 3], DType::F32, &one).and_then(|none| none.to_device(&other));
        assert_eq!(nothing.expect("there is nothing to copy").elements(), 0);
    });
}

#[test]
fn memory_that_a_copy_to_another_device_fills_was_done_with() {
    Setup::new().devices(2).lazy().only_on_stand_in().run(|| {
        let [one, other] = two();
        let source = counted(&one);
        // What is freed here is still to be written by the other device's stream, and is what the copy gets.
        let before = Tensor::full([2, 3], 7.0, DType::F32, &other).expect("there is memory");
        let address = before.storage().address();
        drop(before);
        let moved = source.to_device(&other).expect("there is memory");
        assert_eq!(moved.storage().address(), address);
        drop(source);
        // What the source's memory is used for next comes after the copy, and is waited for first.
        drop(Tensor::full([2, 3], 8.0, DType::F32, &one).expect("there is memory"));
        one.synchronize().expect("all is well");
        assert_eq!(moved.to_vec::<f32>().expect("numbers"), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
    });
}
