//! Tests that reading a tensor changes nothing, and that operations on empty tensors give the mathematically expected
//! values.

use half::bf16;
use highwater_engine::{DType, Device, Error, Shape, Tensor};

/// Memory that is handed out next holds sevens.
fn leave_sevens(device: &Device) {
    drop(Tensor::full(4096, 7.0, DType::F64, device).unwrap());
}

fn leaf(shape: &Shape, device: &Device) -> Tensor {
    let tensor = Tensor::ones(shape, DType::F64, device).unwrap();
    tensor.set_requires_grad(true).unwrap();
    tensor
}

#[test]
fn an_operand_of_an_empty_batch_has_a_gradient_of_zeros() {
    let device = Device::cpu();
    let shapes: [[Shape; 2]; 4] = [
        [[0, 3, 4].into(), [1, 4, 5].into()],
        [[1, 3, 4].into(), [0, 4, 5].into()],
        [[0, 3, 4].into(), [4, 5].into()],
        [[2, 3, 0].into(), [2, 0, 5].into()],
    ];
    for dense in [false, true] {
        for [left, right] in shapes {
            let [left, right] = [left, right].map(|shape| leaf(&shape, &device));
            leave_sevens(&device);
            let product = left.matmul(&right).unwrap();
            let factor = Tensor::ones(product.shape(), DType::F64, &device).unwrap();
            let loss = if dense { product.mul(&factor).unwrap().sum() } else { product.sum() }.unwrap();
            leave_sevens(&device);
            loss.backward().unwrap();
            assert_eq!(loss.item().unwrap(), 0.0);
            for input in [left, right] {
                let grad = input.grad().expect("it takes part").to_f64_vec().unwrap();
                assert_eq!(grad, vec![0.0; input.elements()], "{} dense: {dense}", input.shape());
            }
        }
    }
}

#[test]
fn the_mean_of_nothing_is_no_number_and_its_sum_is_zero() {
    let device = Device::cpu();
    for dtype in [DType::F64, DType::F32, DType::Bf16, DType::F16] {
        let nothing = Tensor::empty([3, 0], dtype, &device).unwrap();
        let are_nan = |mean: Tensor, count: usize| {
            let numbers = mean.to_f64_vec().unwrap();
            assert!(numbers.len() == count && numbers.iter().all(|number| number.is_nan()), "{numbers:?}");
        };
        are_nan(nothing.mean().unwrap(), 1);
        are_nan(nothing.mean_axes(&[1]).unwrap(), 3);
        are_nan(nothing.mean_axes_keep(&[1]).unwrap(), 3);
        are_nan(nothing.mean_axes(&[0]).unwrap(), 0);
        assert_eq!(nothing.sum_axes(&[1]).unwrap().to_f64_vec().unwrap(), [0.0; 3]);
    }
}

#[test]
fn looking_at_a_tensor_takes_no_memory_on_its_device() {
    let device = Device::cpu();
    let allocations = |device: &Device| device.allocator().stats().allocation.all.allocated;
    let numbers = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0].map(bf16::from_f64);
    let turned = Tensor::from_slice(&numbers, [2, 3], &device).unwrap().transpose(0, 1).unwrap();
    let one = turned.narrow(0, 2, 1).unwrap().narrow(1, 1, 1).unwrap();
    let before = allocations(&device);
    assert_eq!(turned.to_f64_vec().unwrap(), [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
    assert_eq!(turned.to_vec::<bf16>().unwrap()[1], numbers[3]);
    assert_eq!(one.item().unwrap(), 6.0);
    assert!(turned.to_string().contains("4.0000"));
    assert_eq!(allocations(&device), before);

    let device = Device::accounting(1 << 30);
    let counted = Tensor::ones([1], DType::F32, &device).unwrap();
    let before = allocations(&device);
    assert!(matches!(counted.item(), Err(Error::NoValues { .. })));
    assert!(matches!(counted.to_f64_vec(), Err(Error::NoValues { .. })));
    assert_eq!(allocations(&device), before);
}
