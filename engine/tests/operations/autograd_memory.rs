//! Tests which bytes forward keeps, when backward frees them, and the peak of both.
//!
//! Everything runs on the accounting device. Sizes are multiples of the allocator's rounding, so that bytes asked for
//! and bytes allocated are the same.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use highwater_engine::{DType, Device, Error, Tensor, no_grad};
use highwater_recorder::Category;

const F32: DType = DType::F32;
/// A gigabyte-sized device is never the limit here.
const PLENTY: u64 = 1 << 40;

fn live(device: &Device) -> u64 {
    device.allocator().stats().requested_bytes.all.current
}

fn peak(device: &Device) -> u64 {
    device.allocator().stats().requested_bytes.all.peak
}

/// Bytes above those at the start that `work` has live at its peak.
fn growth(device: &Device, work: impl FnOnce()) -> u64 {
    device.allocator().reset_peak_stats();
    let before = live(device);
    work();
    peak(device) - before
}

fn zeros(shape: &[usize], device: &Device) -> Tensor {
    Tensor::zeros(highwater_engine::Shape::from_slice(shape).unwrap(), F32, device).unwrap()
}

fn parameter(shape: &[usize], device: &Device) -> Tensor {
    let tensor = zeros(shape, device);
    tensor.set_requires_grad(true).unwrap();
    tensor
}

/// Side of the square matrices; one takes `SQUARE` bytes.
const SIDE: usize = 256;
const SQUARE: u64 = (SIDE * SIDE * 4) as u64;

#[test]
fn saved_tensors_die_as_backward_passes_them_while_the_loss_is_held() {
    let device = Device::accounting(PLENTY);
    let x = parameter(&[SIDE, SIDE], &device);
    let mut y = x.tanh().unwrap();
    for _ in 0..9 {
        y = y.tanh().unwrap();
    }
    let loss = y.mul(&y).unwrap().sum().unwrap();
    drop(y);
    // Ten results are kept, and nothing else.
    assert_eq!(live(&device), SQUARE + 10 * SQUARE + 4);
    // The gradient of the square needs two buffers for a moment; then it is one, changed in place.
    assert_eq!(growth(&device, || loss.backward().unwrap()), 2 * SQUARE + 4);
    assert_eq!(live(&device), 2 * SQUARE + 4, "x, its gradient and the loss");
}

#[test]
fn a_gradient_is_moved_into_its_leaf_and_further_ones_are_added_in_place() {
    let device = Device::accounting(PLENTY);
    let w = parameter(&[SIDE, SIDE], &device);
    let x = zeros(&[2, SIDE], &device);
    let row = 2 * SIDE as u64 * 4;
    let mut h = x.clone();
    for _ in 0..20 {
        h = h.linear(&w, None).unwrap().tanh().unwrap();
    }
    let loss = h.sum().unwrap();
    drop(h);
    let grown = growth(&device, || loss.backward().unwrap());
    assert!(grown <= SQUARE + 4 * row, "one gradient of the weight, and a few rows: {grown}");
    assert_eq!(w.grad().unwrap().storage().bytes() as u64, SQUARE);
    assert_eq!(w.grad().unwrap().storage().category(), Category::Gradient);
}

#[test]
fn a_chain_of_products_needs_one_matrix_beside_what_it_kept() {
    let device = Device::accounting(PLENTY);
    let x = parameter(&[SIDE, SIDE], &device);
    let mut z = zeros(&[SIDE, SIDE], &device);
    for _ in 0..10 {
        z = z.matmul(&x).unwrap();
    }
    let loss = z.mul(&z.detach()).unwrap().sum().unwrap();
    drop(z);
    let kept = live(&device);
    // The last product's gradient replaces what the square kept; that of x is new; and each further product's takes
    // over the memory of an input that was kept.
    assert_eq!(growth(&device, || loss.backward().unwrap()), SQUARE + 4);
    assert_eq!(live(&device), 2 * SQUARE + 4);
    assert_eq!(kept, SQUARE + 11 * SQUARE + 4, "x, and the left input of each product and of the square");
}

#[test]
fn the_gradient_of_a_sum_stays_one_number_through_a_product() {
    let device = Device::accounting(PLENTY);
    let x = parameter(&[SIDE, SIDE], &device);
    let w = zeros(&[SIDE, SIDE], &device);
    let loss = x.matmul(&w).unwrap().sum().unwrap();
    // One dense matrix, for the leaf alone.
    let grown = growth(&device, || loss.backward().unwrap());
    assert!(grown < SQUARE + 4 * SIDE as u64 * 4, "{grown}");
}

#[test]
fn a_frozen_branch_costs_nothing() {
    let device = Device::accounting(PLENTY);
    let frozen: Vec<Tensor> = (0..3).map(|_| zeros(&[SIDE, SIDE], &device)).collect();
    let v = parameter(&[SIDE, SIDE], &device);
    let before = live(&device);
    let total = frozen.iter().rev().try_fold(v.clone(), |sum, t| t.add(&sum)).unwrap();
    let loss = total.sum().unwrap();
    drop(total);
    assert_eq!(live(&device), before + 4, "sums keep nothing");
    assert_eq!(growth(&device, || loss.backward().unwrap()), SQUARE + 4, "the one gradient that is wanted");
    assert!(frozen.iter().all(|t| t.grad().is_none()));

    // A frozen layer keeps no input, and its weight gets no gradient.
    let hidden = v.linear(&frozen[0], None).unwrap();
    let loss = hidden.linear(&frozen[1], None).unwrap().tanh().unwrap().sum().unwrap();
    drop(hidden);
    assert_eq!(live(&device), before + SQUARE + 4 + SQUARE + 4, "beside the gradient, the result of tanh");
    loss.backward().unwrap();
    assert!(frozen.iter().all(|t| t.grad().is_none()));
}

#[test]
fn without_gradients_nothing_is_kept() {
    let device = Device::accounting(PLENTY);
    let w = parameter(&[SIDE, SIDE], &device);
    let guard = no_grad();
    let y = w.gelu().unwrap().matmul(&w).unwrap().softmax(-1).unwrap();
    assert!(!y.requires_grad());
    assert_eq!(live(&device), 2 * SQUARE);
    drop(guard);
    assert!(w.exp().unwrap().requires_grad());
}

#[test]
fn a_residual_sum_leaves_no_extra_buffer_in_forward() {
    let device = Device::accounting(PLENTY);
    let x = parameter(&[SIDE, SIDE], &device);
    let f = x.mul_scalar(2.0).unwrap();
    assert_eq!(growth(&device, || drop(f.into_add(&x).unwrap())), 0);
}

#[test]
fn cross_entropy_never_has_a_second_buffer_of_the_logits_size() {
    let device = Device::accounting(PLENTY);
    let (hidden, table) = (parameter(&[512, 8], &device), zeros(&[4096, 8], &device));
    let targets = Tensor::zeros(512, DType::I64, &device).unwrap();
    let logits_bytes = 512 * 4096 * 4;
    let before = live(&device);
    let mut loss = None;
    let forward = growth(&device, || {
        loss = Some(hidden.linear(&table, None).unwrap().cross_entropy(&targets, None).unwrap());
    });
    assert!(forward < logits_bytes + logits_bytes / 16, "{forward}");
    let backward = growth(&device, || loss.as_ref().unwrap().backward().unwrap());
    assert!(backward < logits_bytes / 16, "{backward}");
    assert_eq!(live(&device), before + 4 + hidden.bytes());
}

#[test]
fn a_table_that_is_also_the_head_has_one_gradient() {
    let device = Device::accounting(PLENTY);
    let table = parameter(&[4096, 64], &device);
    let tokens = Tensor::zeros(16, DType::I64, &device).unwrap();
    let hidden = table.embedding(&tokens).unwrap();
    let loss = hidden.tanh().unwrap().linear(&table, None).unwrap().cross_entropy(&tokens, None).unwrap();
    drop(hidden);
    let rest = 16 * (4096 + 4 * 64) * 4;
    let grown = growth(&device, || loss.backward().unwrap());
    assert!(grown < table.bytes() + rest, "{grown} for a table of {}", table.bytes());
}

#[test]
fn a_hook_sees_the_complete_gradient_once_and_may_free_it() {
    let device = Device::accounting(PLENTY);
    let weights: Vec<Tensor> = (0..8).map(|_| parameter(&[SIDE, SIDE], &device)).collect();
    let calls = Arc::new(AtomicUsize::new(0));
    for weight in &weights {
        let calls = calls.clone();
        weight
            .on_grad_ready(move |leaf| {
                calls.fetch_add(1, Ordering::Relaxed);
                let grad = leaf.take_grad().expect("the gradient is there");
                let _guard = no_grad();
                leaf.add_scaled_(&grad, -0.1)
            })
            .unwrap();
    }
    let x = zeros(&[2, SIDE], &device);
    // Each weight is used twice: the hook waits for both.
    let mut chain = weights.iter().chain(&weights);
    let loss = chain.try_fold(x, |h, w| h.linear(w, None)?.tanh()).unwrap().sum().unwrap();
    loss.backward().unwrap();
    assert_eq!(calls.load(Ordering::Relaxed), weights.len());
    assert!(weights.iter().all(|weight| weight.grad().is_none()));
    drop(loss);

    // Used once each, one gradient lives at a time.
    let loss =
        weights.iter().try_fold(zeros(&[2, SIDE], &device), |h, w| h.linear(w, None)?.tanh()).unwrap().sum().unwrap();
    let grown = growth(&device, || loss.backward().unwrap());
    assert!(grown < 2 * SQUARE, "{grown}");
}

#[test]
fn a_small_gradient_does_not_keep_a_large_block_alive() {
    let device = Device::accounting(PLENTY);
    let token = parameter(&[1, 1, 128], &device);
    let patches = zeros(&[1, 4095, 128], &device);
    let loss = Tensor::concat(&[&token, &patches], 1).unwrap().tanh().unwrap().sum().unwrap();
    loss.backward().unwrap();
    assert_eq!(token.grad().unwrap().storage().bytes() as u64, token.bytes());
}

#[test]
fn a_graph_serves_once_and_notices_changes() {
    let device = Device::accounting(PLENTY);
    let x = parameter(&[4, 4], &device);
    let loss = x.exp().unwrap().sum().unwrap();
    loss.backward().unwrap();
    assert!(matches!(loss.backward(), Err(Error::Consumed { .. })));

    let y = x.exp().unwrap();
    let loss = y.sum().unwrap();
    assert!(matches!(y.fill_(0.0), Err(Error::InPlace { .. })));
    y.detach().fill_(0.0).unwrap();
    assert!(matches!(loss.backward(), Err(Error::Overwritten { op: "exp" })));

    assert!(matches!(y.backward(), Err(Error::NotScalar { .. })));
    assert!(matches!(zeros(&[1], &device).backward(), Err(Error::NoGraph)));
    assert!(matches!(x.add(&parameter(&[4], &Device::accounting(PLENTY))), Err(Error::Devices { .. })));
    assert!(matches!(x.add(&Tensor::zeros(4, DType::F64, &device).unwrap()), Err(Error::DType { .. })));
}

#[test]
fn a_changed_tensor_has_no_recipe() {
    let device = Device::cpu();
    let x = Tensor::from_slice(&[1.0_f32, -2.0], [1, 2], &device).unwrap();
    x.set_requires_grad(true).unwrap();
    let w = Tensor::ones([1, 2], F32, &device).unwrap();
    w.set_requires_grad(true).unwrap();
    let y = x.gelu().unwrap();
    y.detach().fill_(3.0).unwrap();
    y.linear(&w, None).unwrap().sum().unwrap().backward().unwrap();
    assert_eq!(w.grad().unwrap().to_vec::<f32>().unwrap(), [3.0, 3.0]);
}

#[test]
fn running_out_of_memory_is_recognised_and_leaves_the_device_usable() {
    let device = Device::accounting(64 << 20);
    let kept = zeros(&[1 << 20], &device);
    let failed = Tensor::zeros(1 << 25, F32, &device).unwrap_err();
    assert!(failed.is_out_of_memory(), "{failed}");
    assert!(!kept.reshape(3).unwrap_err().is_out_of_memory());
    assert!(kept.exp().is_ok());
    assert!(Tensor::zeros([usize::MAX, 2], F32, &device).is_err());
}

#[test]
fn a_graph_of_a_hundred_thousand_operations_is_taken_apart_without_a_deep_stack() {
    let device = Device::accounting(PLENTY);
    let x = parameter(&[1], &device);
    let mut y = x.clone();
    for _ in 0..100_000 {
        y = y.add_scalar(1.0).unwrap();
    }
    drop(y);
    assert_eq!(live(&device), 4);
}
