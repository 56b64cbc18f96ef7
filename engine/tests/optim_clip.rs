//! Tests that gradient clipping has PyTorch's results and allocates the memory of one number.

mod optim_harness;

use highwater_engine::nn::Parameter;
use highwater_engine::optim::{clip_grad_norm, clip_grad_norm_of, clip_grad_value, grad_norm};
use highwater_engine::{DType, Device, Tensor};
use highwater_recorder::ScopeId;
use optim_harness::{alone, assert_close, cases, grads, numbers, parameter};

fn with_grads(grads: &[f64], device: &Device) -> Vec<Parameter> {
    let (first, second) = grads.split_at(3);
    vec![parameter("a", &[0.0; 3], first, device), parameter("b", &[0.0; 2], second, device)]
}

#[test]
fn clipping_gives_pytorchs_gradients_and_norms() {
    let _alone = alone();
    let device = Device::cpu();
    let by_norm = cases("clip");
    assert_eq!(by_norm.len(), 8);
    for (settings, vectors) in by_norm {
        let [order, largest, norm] = numbers(settings)[..] else { panic!("three numbers: {settings}") };
        let parameters = with_grads(&vectors[0], &device);
        assert_close(&[grad_norm(&parameters, order).unwrap().item().unwrap()], &[norm], 1e-12, settings);
        let found = clip_grad_norm_of(&parameters, largest, order).unwrap().item().unwrap();
        assert_close(&[found], &[norm], 1e-12, settings);
        assert_close(&grads(&parameters), &vectors[1], 1e-12, settings);
    }
    for (largest, vectors) in cases("values") {
        let parameters = with_grads(&vectors[0], &device);
        clip_grad_value(&parameters, largest.parse().unwrap()).unwrap();
        assert_close(&grads(&parameters), &vectors[1], 0.0, "by value");
    }
}

#[test]
fn clipping_takes_one_number_of_memory_and_looks_at_no_value() {
    let _alone = alone();
    let device = Device::accounting(1 << 30);
    let parameters =
        [parameter("a", &[0.0; 3000], &[1.0; 3000], &device), parameter("b", &[0.0; 5], &[1.0; 5], &device)];
    let bytes = || device.allocator().stats().requested_bytes.all;
    let before = bytes().current;
    device.allocator().reset_peak_stats();
    let norm = clip_grad_norm(&parameters, 1.0).unwrap();
    assert_eq!((bytes().peak - before, bytes().current - before), (8, 8));
    assert!(norm.item().is_err(), "there are no values");
    clip_grad_value(&parameters, 1.0).unwrap();
    assert_eq!(bytes().peak - before, 8);
}

#[test]
fn clipping_spreads_what_is_not_finite_as_pytorch_does() {
    let _alone = alone();
    let device = Device::cpu();
    let parameters = with_grads(&[1.0, f64::INFINITY, 2.0, 3.0, 4.0], &device);
    assert_eq!(clip_grad_norm(&parameters, 1.0).unwrap().item().unwrap(), f64::INFINITY);
    let clipped = grads(&parameters);
    assert!(clipped[1].is_nan() && [0, 2, 3, 4].iter().all(|&i| clipped[i] == 0.0), "{clipped:?}");
    let parameters = with_grads(&[1.0, f64::NAN, 2.0, 3.0, 4.0], &device);
    assert!(clip_grad_norm(&parameters, 1.0).unwrap().item().unwrap().is_nan());
    assert!(grads(&parameters).iter().all(|grad| grad.is_nan()));
    let parameters = with_grads(&[1.0, f64::NAN, -f64::INFINITY, 3.0, 4.0], &device);
    clip_grad_value(&parameters, 2.0).unwrap();
    assert!(grads(&parameters)[1].is_nan());
    assert_eq!(grads(&parameters)[2..], [-2.0, 2.0, 2.0]);
}

#[test]
fn the_norm_of_a_large_narrow_gradient_is_exact() {
    let _alone = alone();
    let device = Device::cpu();
    let tensor = Tensor::full([300, 400], 300.0, DType::F16, &device).unwrap();
    tensor.set_requires_grad(true).unwrap();
    tensor.set_grad(tensor.detach().transpose(0, 1).unwrap().transpose(0, 1).unwrap()).unwrap();
    let parameters = [Parameter { path: "p".to_owned(), scope: ScopeId::NONE, tensor }];
    let norm = grad_norm(&parameters, 2.0).unwrap().item().unwrap();
    assert!((norm - 300.0 * 120_000_f64.sqrt()).abs() < 1e-6, "{norm}: squares do not fit f16, and are not kept in it");
}
