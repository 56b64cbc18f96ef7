//! Tests that a concatenation is kept for backward only if its parts are not, and that it allocates only its result.

use highwater_engine::autograd::no_recompute;
use highwater_engine::{DType, Device, Tensor};

const ROWS: usize = 1000;
const F32: DType = DType::F32;

fn live(device: &Device) -> u64 {
    device.allocator().stats().requested_bytes.all.current
}

fn parameter(rows: usize, columns: usize, device: &Device) -> Tensor {
    let tensor = Tensor::zeros([rows, columns], F32, device).unwrap();
    tensor.set_requires_grad(true).unwrap();
    tensor
}

fn bytes(columns: usize) -> u64 {
    (ROWS * columns * 4) as u64
}

#[test]
fn parts_that_others_keep_are_joined_again_in_backward() {
    let device = Device::accounting(1 << 32);
    let (first, second) = (parameter(8, 4, &device), parameter(8, 12, &device));
    let x = Tensor::zeros([ROWS, 4], F32, &device).unwrap();
    let before = live(&device);
    let run = || {
        let hidden = x.linear(&first, None).unwrap().into_relu().unwrap();
        let joined = Tensor::concat(&[&hidden, &x], -1).unwrap();
        drop(hidden);
        joined.linear(&second, None).unwrap().sum().unwrap()
    };
    let loss = run();
    assert_eq!(live(&device) - before, bytes(8) + 4, "the hidden layer, once, and the loss");
    loss.backward().unwrap();
    first.take_grad();
    second.take_grad();
    drop(loss);
    let _all_is_kept = no_recompute();
    let loss = run();
    assert_eq!(live(&device) - before, bytes(8) + bytes(12) + 4);
    drop(loss);
}

#[test]
fn parts_that_nobody_keeps_leave_the_whole_to_be_kept() {
    let device = Device::accounting(1 << 32);
    let (first, second) = (parameter(8, 4, &device), parameter(8, 12, &device));
    let x = Tensor::zeros([ROWS, 4], F32, &device).unwrap();
    let before = live(&device);
    // A linear layer keeps nothing of its result; so the parts go, and the whole stays.
    let hidden = x.linear(&first, None).unwrap();
    let joined = Tensor::concat(&[&hidden, &x], -1).unwrap();
    drop(hidden);
    let result = joined.linear(&second, None).unwrap();
    drop(joined);
    assert_eq!(live(&device) - before, bytes(12) + bytes(8), "the whole, and the result");
    drop(result);
    assert_eq!(live(&device), before);
}

#[test]
fn a_small_view_does_not_hold_the_large_block_it_lies_in() {
    let device = Device::accounting(1 << 32);
    let (weight, last) = (parameter(4, 4, &device), parameter(1, 4, &device));
    let large = Tensor::zeros([100 * ROWS, 4], F32, &device).unwrap();
    let kept = large.linear(&weight, None).unwrap().tanh().unwrap();
    let token = kept.narrow(0, 0, 1).unwrap();
    let before = live(&device);
    let joined = Tensor::concat(&[&token, &token], 0).unwrap();
    let result = joined.linear(&last, None).unwrap();
    drop(joined);
    assert_eq!(live(&device) - before, 32 + 8, "two rows are kept, and the result");
    drop((kept, token, large));
    assert!(live(&device) > before - 100 * bytes(4), "tanh keeps its result until backward");
    drop(result);
    assert_eq!(live(&device), weight.bytes() + last.bytes());
}

#[test]
fn what_is_joined_again_has_the_gradients_of_what_was_kept() {
    let device = Device::cpu();
    let numbers = |rows: usize, columns: usize, seed| {
        let mut rng = highwater_engine::Rng::new(seed);
        let tensor = Tensor::randn([rows, columns], DType::F64, &device, &mut rng).unwrap();
        tensor.set_requires_grad(true).unwrap();
        tensor
    };
    let leaves = [numbers(5, 4, 1), numbers(3, 4, 2), numbers(6, 9, 3)];
    let run = || {
        let [x, first, second] = &leaves;
        let hidden = x.linear(first, None).unwrap().tanh().unwrap();
        let shifted = hidden.affine(2.0, 1.0).unwrap();
        let waves = x.narrow(1, 0, 1).unwrap().frequencies(1).unwrap();
        let joined = Tensor::concat(&[&hidden, &shifted, &waves], -1).unwrap();
        let loss = joined.linear(second, None).unwrap().tanh().unwrap().sum().unwrap();
        drop((hidden, shifted, waves, joined));
        loss.backward().unwrap();
        leaves.iter().map(|leaf| leaf.take_grad().unwrap().to_vec::<f64>().unwrap()).collect::<Vec<_>>()
    };
    let joined_again = run();
    let _all_is_kept = no_recompute();
    assert_eq!(joined_again, run(), "the same to the bit");
}

#[test]
fn a_changed_part_is_noticed() {
    let device = Device::cpu();
    let (first, second) = (parameter(2, 2, &device), parameter(1, 4, &device));
    let x = Tensor::ones([1, 2], F32, &device).unwrap();
    let hidden = x.linear(&first, None).unwrap().tanh().unwrap();
    let joined = Tensor::concat(&[&hidden, &x], -1).unwrap();
    x.fill_(3.0).unwrap();
    // The part changed before the result was saved: what is kept is the result itself.
    let loss = joined.linear(&second, None).unwrap().sum().unwrap();
    drop((hidden, joined));
    x.set_requires_grad(false).unwrap();
    let wrong = loss.backward().unwrap_err().to_string();
    assert!(wrong.starts_with("linear") && wrong.contains("modified in place"), "{wrong}");
    assert_eq!(second.grad().unwrap().to_vec::<f32>().unwrap(), [0.0, 0.0, 1.0, 1.0]);
}
