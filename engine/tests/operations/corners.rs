//! Tests of special cases that other tests do not cover.

use highwater_engine::autograd::{autocast, checkpoint};
use highwater_engine::ops::PoolOptions;
use highwater_engine::{DType, Device, Rng, Tensor};

use crate::grad_harness::check;

#[test]
fn a_line_over_a_view_of_what_is_computed_again_lies_as_it_did() {
    check([[2, 3], [3, 2]], |x| x[0].gelu()?.transpose(0, 1)?.affine(2.0, 1.0)?.mul(&x[1]));
    check([[3, 3], [2, 3]], |x| x[0].gelu()?.narrow(0, 1, 2)?.affine(2.0, 1.0)?.mul(&x[1]));
    check([[3, 3], [3, 2]], |x| x[0].gelu()?.narrow(1, 1, 2)?.mul_scalar(3.0)?.mul(&x[1]));
}

#[test]
fn the_variance_of_small_types_is_taken_from_a_mean_that_is_not_rounded() {
    let device = Device::cpu();
    let numbers = Tensor::from_slice(&[256.0_f32, 258.0], 2, &device).unwrap().to_dtype(DType::Bf16).unwrap();
    numbers.set_requires_grad(true).unwrap();
    let variance = numbers.var_axes(&[0], 0).unwrap();
    assert_eq!(variance.item().unwrap(), 1.0);
    variance.backward().unwrap();
    assert_eq!(numbers.grad().unwrap().to_f64_vec().unwrap(), [-1.0, 1.0]);
}

#[test]
fn a_scaled_loss_lifts_gradients_that_half_precision_would_lose() {
    let device = Device::cpu();
    let (rows, width, classes) = (512, 8, 600);
    let leaf = |shape: [usize; 2], seed| {
        let numbers = Tensor::randn(shape, DType::F32, &device, &mut Rng::new(seed)).unwrap();
        let tensor = numbers.mul_scalar(0.05).unwrap().to_dtype(DType::F16).unwrap();
        tensor.set_requires_grad(true).unwrap();
        tensor
    };
    let (hidden, weight) = (leaf([rows, width], 1), leaf([classes, width], 2));
    let targets: Vec<i64> = (0..rows as i64).map(|row| row % 3).collect();
    let targets = Tensor::from_slice(&targets, rows, &device).unwrap();
    let loss = hidden.linear_cross_entropy(&weight, &targets, None).unwrap();
    assert_eq!(loss.dtype(), DType::F32);
    let scale = 4096.0;
    loss.mul_scalar(scale).unwrap().backward().unwrap();
    // The gradient of a class that no row has: small, and the same in f32.
    let wide = |tensor: &Tensor| {
        let tensor = tensor.detach().to_dtype(DType::F32).unwrap();
        tensor.set_requires_grad(true).unwrap();
        tensor
    };
    let (wide_hidden, wide_weight) = (wide(&hidden), wide(&weight));
    wide_hidden
        .linear_cross_entropy(&wide_weight, &targets, None)
        .unwrap()
        .mul_scalar(scale)
        .unwrap()
        .backward()
        .unwrap();
    for (half, single) in [(&hidden, &wide_hidden), (&weight, &wide_weight)] {
        let (half, single) = (half.grad().unwrap().to_f64_vec().unwrap(), single.grad().unwrap().to_f64_vec().unwrap());
        let norm = |numbers: &mut dyn Iterator<Item = f64>| numbers.map(|x| x * x).sum::<f64>().sqrt();
        let apart = norm(&mut half.iter().zip(&single).map(|(a, b)| a - b));
        assert!(apart < 0.01 * norm(&mut single.iter().copied()), "{apart}");
    }
}

#[test]
fn pools_in_a_checkpointed_part_keep_nothing() {
    let device = Device::accounting(1 << 30);
    let held = || device.allocator().stats().requested_bytes.all.current;
    let images = Tensor::empty([1, 4, 64, 64], DType::F32, &device).unwrap();
    images.set_requires_grad(true).unwrap();
    let before = held();
    let pooled = checkpoint(&[&images], |x| x[0].max_pool2d(PoolOptions::square(2))?.max_axis(1)).unwrap();
    assert_eq!(held() - before, pooled.bytes());
    pooled.sum().unwrap().backward().unwrap();
    assert!(images.grad().is_some());
}

#[test]
fn frozen_weights_are_not_kept_in_another_type() {
    let device = Device::accounting(1 << 30);
    let held = || device.allocator().stats().requested_bytes.all.current;
    let weight = Tensor::empty([512, 256], DType::F32, &device).unwrap();
    weight.tag(highwater_recorder::Category::Parameter);
    let input = Tensor::empty([8, 256], DType::Bf16, &device).unwrap();
    input.set_requires_grad(true).unwrap();
    let before = held();
    let guard = autocast(DType::Bf16);
    let out = input.linear(&weight, None).unwrap();
    drop(guard);
    assert_eq!(held() - before, out.bytes());
    out.sum().unwrap().backward().unwrap();
}
