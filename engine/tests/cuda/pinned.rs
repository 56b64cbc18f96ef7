//! Pinned host memory, from which a device copies asynchronously.

use expect_test::expect;
use highwater_engine::{DType, Device, Result, Tensor};
use highwater_recorder::DeviceId;
use highwater_stand_in::Setup;

use crate::recorded::{lines, record};

const COUNT: usize = 1000;

fn full(value: f64, device: &Device) -> Tensor {
    Tensor::full(COUNT, value, DType::F32, device).expect("there is memory")
}

fn numbers(tensor: &Tensor) -> Vec<f32> {
    tensor.to_vec().expect("numbers can be read")
}

#[test]
fn memory_is_not_used_again_before_the_copy_from_it_is_done() {
    Setup::new().lazy().only_on_stand_in().run(|| {
        let device = Device::cuda(0).expect("a device opens");
        let pool = device.pinned();
        let ones = full(1.0, &pool);
        let first = ones.storage().address();
        let moved = ones.to_device(&device).expect("there is memory");
        drop(ones);
        // The copy waits for its turn, as whoever looked at what is not waited for would see.
        let twos = full(2.0, &pool);
        assert_ne!(twos.storage().address(), first, "the device still copies from there");
        assert_eq!(numbers(&moved), [1.0; COUNT]);
        device.synchronize().expect("all is well");
        let threes = full(3.0, &pool);
        assert_eq!(threes.storage().address(), first, "the copy is done");
        assert_eq!((numbers(&twos), numbers(&moved)), (vec![2.0; COUNT], vec![1.0; COUNT]));
    });
}

#[test]
fn whoever_changes_pinned_memory_waits_for_the_copies_from_it() {
    Setup::new().lazy().run(|| {
        let device = Device::cuda(0).expect("a device opens");
        let side = device.new_stream().expect("a stream");
        let batch = full(1.0, &device.pinned());
        let first = batch.to_device(&device).expect("there is memory");
        let second = {
            let _side = side.enter();
            batch.to_device(&device).expect("there is memory")
        };
        batch.fill_(2.0).expect("nobody reads it");
        side.synchronize().expect("all is well");
        assert_eq!(
            (numbers(&first), numbers(&second), numbers(&batch)),
            (vec![1.0; COUNT], vec![1.0; COUNT], vec![2.0; COUNT],)
        );
    });
}

#[test]
fn tensors_there_compute_as_on_the_cpu_and_with_no_others() {
    Setup::new().run(|| {
        let device = Device::cuda(0).expect("a device opens");
        let pool = device.pinned();
        assert_eq!((pool.clone(), pool.pinned()), (device.pinned(), pool.clone()));
        assert!(pool.is_pinned() && !device.is_pinned() && pool != device);
        assert_eq!(pool.to_string(), "pinned");
        let [ones, twos] = [1.0, 2.0].map(|value| full(value, &pool));
        assert_eq!(numbers(&ones.add(&twos).expect("there is memory")), [3.0; COUNT]);
        assert!(ones.add(&full(1.0, &device)).is_err());
        assert!(ones.add(&full(1.0, &Device::cpu())).is_err());
        let refused = pool.new_stream().expect_err("the host has one stream").to_string();
        assert!(refused.contains("pinned"), "{refused}");
        // A view's numbers arrive in order, from and to pinned memory.
        let square = Tensor::arange(6, 0.0, 1.0, DType::F32, &pool).expect("there is memory");
        let turned = square.reshape([2, 3]).and_then(|square| square.transpose(0, 1)).expect("a view");
        let there = turned.to_device(&device).expect("there is memory");
        let part = there.narrow(0, 1, 2).expect("a view");
        assert_eq!(numbers(&part), [1.0, 4.0, 2.0, 5.0]);
        assert_eq!(numbers(&part.to_device(&pool).expect("there is memory")), [1.0, 4.0, 2.0, 5.0]);
        let second_row = square.reshape([2, 3]).and_then(|square| square.select(0, 1)).expect("a view");
        assert_eq!(numbers(&second_row.to_device(&device).expect("there is memory")), [3.0, 4.0, 5.0]);
    });
}

/// Batches in pinned memory, as a data loader provides them.
fn load(device: &Device) -> Result<()> {
    let pool = device.pinned();
    for value in 0..3 {
        let batch = Tensor::full(COUNT, f64::from(value), DType::F32, &pool)?;
        let moved = batch.to_device(device)?;
        drop(batch);
        device.synchronize()?;
        drop(moved);
    }
    Ok(())
}

#[test]
fn the_pool_is_a_device_of_its_own_in_recordings() {
    Setup::new().run(|| {
        let config = || "".parse().expect("no settings are settings");
        let cuda = Device::cuda(0).expect("a device opens");
        let counting = Device::accounting_for_cuda(1 << 30, config()).expect("there is memory");
        let devices = [(cuda, "255"), (counting, "254"), (Device::cpu(), "253")];
        for (device, number) in devices {
            let trace = record(|| load(&device).expect("there is memory"));
            let pool = device.pinned().id();
            assert_eq!(pool.0.to_string(), number);
            expect![[r#"
                segment_alloc 2 MiB for stream 0
                alloc 0 3.91 KiB for stream 0
                free_requested 0
                free_completed 0
                alloc 1 3.91 KiB for stream 0
                free_requested 1
                free_completed 1
                alloc 2 3.91 KiB for stream 0
                free_requested 2
            "#]]
            .assert_eq(&lines(&trace, pool));
            let facts = trace.device_facts(pool).expect("a device");
            assert_eq!((&*facts.name, &*facts.driver), ("pinned host memory", "host"));
            assert!(facts.capacity_bytes > 1 << 20, "{facts:?}");
            // Nobody means it who names no device, however many blocks it has.
            let trace = trace.edited(|trace| trace.blocks.device.fill(pool));
            assert_ne!(trace.main_device(), pool);
        }
        assert_eq!(Device::cpu().id(), DeviceId(0), "all numbers are free again");
    });
}
