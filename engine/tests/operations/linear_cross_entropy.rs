//! Tests that the fused last layer and loss give the same results as the two separate operations.

use highwater_engine::autograd::no_recompute;
use highwater_engine::{DType, Device, Rng, Tensor};

use crate::grad_harness::check;

fn targets(classes: &[i64], device: &Device) -> Tensor {
    Tensor::from_slice(classes, classes.len(), device).unwrap()
}

#[test]
fn its_gradients_agree_with_differences() {
    let loss =
        |x: &[Tensor], labels: &[i64]| x[0].linear_cross_entropy(&x[1], &targets(labels, x[0].device()), Some(-100));
    let labels = [2, 0, -100, 4, 1, 1, 3];
    check([[7, 3], [5, 3]], |x| loss(x, &labels));
    check([[7, 1], [5, 1]], |x| loss(x, &labels));
    check([[2, 6], [3, 6]], |x| loss(x, &[1, 0]));
}

/// The loss, and the gradients of rows and weight where they are wanted.
fn run(dtype: DType, wants: [bool; 2], plain: bool) -> Vec<Vec<f64>> {
    let device = Device::cpu();
    let mut rng = Rng::new(5);
    let leaf = |shape: [usize; 2], wanted: bool, rng: &mut Rng| {
        let tensor = Tensor::randn(shape, DType::F64, &device, rng).unwrap().to_dtype(dtype).unwrap();
        tensor.set_requires_grad(wanted).unwrap();
        tensor
    };
    let (rows, weight) = (leaf([40, 6], wants[0], &mut rng), leaf([33, 6], wants[1], &mut rng));
    let labels: Vec<i64> = (0..40).map(|row| if row % 7 == 3 { -1 } else { row * 5 % 33 }).collect();
    let way = plain.then(no_recompute);
    let loss = rows.linear_cross_entropy(&weight, &targets(&labels, &device), Some(-1)).unwrap();
    drop(way);
    let value = loss.item().unwrap();
    loss.mul_scalar(3.0).unwrap().backward().unwrap();
    let grads = [rows, weight].into_iter().filter_map(|tensor| tensor.grad());
    [vec![value]].into_iter().chain(grads.map(|grad| grad.to_f64_vec().unwrap())).collect()
}

#[test]
fn chunks_give_what_the_two_operations_give() {
    let norm = |numbers: &mut dyn Iterator<Item = f64>| numbers.map(|x| x * x).sum::<f64>().sqrt();
    for (dtype, tolerance) in [(DType::F64, 1e-14), (DType::F32, 1e-6), (DType::Bf16, 1e-2)] {
        for wants in [[true, true], [true, false], [false, true]] {
            // The loss and each gradient as a whole, against the operations apart in double precision with the same
            // inputs but for their rounding.
            let (chunked, plain) = (run(dtype, wants, false), run(DType::F64, wants, true));
            assert_eq!(chunked.len(), plain.len());
            for (a, b) in chunked.iter().zip(&plain) {
                let apart = norm(&mut a.iter().zip(b).map(|(a, b)| a - b)) / norm(&mut b.iter().copied());
                assert!(apart <= tolerance, "{dtype} {wants:?}: {apart} apart");
            }
        }
    }
}

#[test]
fn logits_are_never_alive_all_at_once() {
    let device = Device::accounting(1 << 34);
    let leaf = |shape: [usize; 2], wanted: bool| {
        let tensor = Tensor::empty(shape, DType::F32, &device).unwrap();
        tensor.set_requires_grad(wanted).unwrap();
        tensor
    };
    let (rows, width, classes) = (32_768, 512, 50_000);
    let labels = Tensor::empty(rows, DType::I64, &device).unwrap();
    for trains_weight in [true, false] {
        let (hidden, weight) = (leaf([rows, width], true), leaf([classes, width], trains_weight));
        let held = device.allocator().stats().requested_bytes.all.current;
        device.allocator().reset_peak_stats();
        let loss = hidden.linear_cross_entropy(&weight, &labels, None).unwrap();
        loss.backward().unwrap();
        let most = device.allocator().stats().requested_bytes.all.peak - held;
        let gradients = 4 * (rows * width + if trains_weight { classes * width } else { 0 }) as u64;
        let logits = 4 * (rows * classes) as u64;
        assert!(most < gradients + logits / 32, "{most} bytes, of which {gradients} are the gradients");
        hidden.take_grad();
    }
}

#[test]
fn wrong_inputs_are_refused_by_name() {
    let device = Device::cpu();
    let rows = Tensor::ones([3, 2], DType::F32, &device).unwrap();
    let weight = Tensor::ones([4, 2], DType::F32, &device).unwrap();
    let refusal =
        |weight: &Tensor, targets: &Tensor| rows.linear_cross_entropy(weight, targets, None).unwrap_err().to_string();
    let shapes = refusal(&Tensor::ones([4, 3], DType::F32, &device).unwrap(), &targets(&[0, 1, 2], &device));
    assert!(shapes.contains("linear_cross_entropy") && shapes.contains("[4, 3]"), "{shapes}");
    let count = refusal(&weight, &targets(&[0, 1], &device));
    assert!(count.contains("one target"), "{count}");
    let class = refusal(&weight, &targets(&[0, 4, 1], &device));
    assert!(class.contains('4'), "{class}");
    let floats = refusal(&weight, &Tensor::ones(3, DType::F32, &device).unwrap());
    assert!(floats.contains("i64"), "{floats}");
}

#[test]
fn the_mean_loss_of_no_rows_is_no_number_and_adds_nothing_to_the_weights_gradient() {
    let device = Device::cpu();
    let weight = Tensor::ones([4, 2], DType::F32, &device).unwrap();
    weight.set_requires_grad(true).unwrap();
    let rows = Tensor::ones([0, 2], DType::F32, &device).unwrap();
    let loss = rows.linear_cross_entropy(&weight, &targets(&[], &device), None).unwrap();
    assert!(loss.item().unwrap().is_nan());
    loss.backward().unwrap();
    assert_eq!(weight.grad().unwrap().to_vec::<f32>().unwrap(), [0.0; 8]);
    weight.set_requires_grad(false).unwrap();
    rows.set_requires_grad(true).unwrap();
    assert!(rows.linear_cross_entropy(&weight, &targets(&[], &device), None).unwrap().item().unwrap().is_nan());
}
