//! Tests that a network of grouped, dilated convolutions and group norms has the same losses and memory as on other
//! devices.

#[allow(dead_code, reason = "the example's own loop")]
#[path = "../../examples/resnext.rs"]
mod resnext;

use highwater_engine::nn::{Init, Module};
use highwater_engine::optim::{Optimizer, RuleOptimizer, Sgd};
use highwater_engine::{DType, Device, Result, Rng, Tensor};

use crate::harness::on_both;
use resnext::{ResNeXt, accuracies};

/// Each step's loss and accuracies, if the device has values, and the requested bytes at the peak and at the end.
fn train(device: &Device) -> Result<(Vec<[f64; 3]>, [u64; 2])> {
    let start = device.allocator().stats().requested_bytes.all.current;
    device.allocator().reset_peak_stats();
    let model = ResNeXt::new(&mut Init::new(device, DType::F32, 0))?;
    let mut optimizer = RuleOptimizer::new(Sgd { learning_rate: 0.05, ..Sgd::default() }, model.parameters())?;
    let images = Tensor::randn([2, 3, 16, 16], DType::F32, device, &mut Rng::new(1))?;
    let labels = Tensor::from_slice(&[3_i64, 7], 2, device)?;
    let mut steps = Vec::new();
    for _ in 0..3 {
        let logits = model.forward(&images)?;
        let loss = logits.cross_entropy(&labels, None)?;
        loss.backward()?;
        optimizer.step()?;
        optimizer.zero_grad();
        if device.has_values() {
            let [first, among] = accuracies(&logits, &labels, 3)?;
            steps.push([loss.item()?, first, among]);
        }
    }
    let bytes = device.allocator().stats().requested_bytes.all;
    Ok((steps, [bytes.peak - start, bytes.current - start]))
}

#[test]
fn a_net_of_grouped_convolutions_trains_as_on_the_processor_within_the_bytes_that_are_counted() {
    on_both(|both| {
        let (on_cpu, cpu_bytes) = train(&both.cpu).expect("the processor computes");
        let (found, bytes) = train(&both.cuda).expect("kernels start");
        let (_, counted) = train(&Device::accounting(1 << 40)).expect("there is room");
        assert_eq!((bytes, cpu_bytes), (counted, counted));
        for (found, expected) in found.iter().zip(&on_cpu) {
            assert!((found[0] - expected[0]).abs() <= 1e-4 * expected[0], "{found:?} in place of {expected:?}");
            assert_eq!(found[1..], expected[1..], "{found:?} in place of {expected:?}");
        }
        assert_eq!(found.len(), 3);
    });
}
