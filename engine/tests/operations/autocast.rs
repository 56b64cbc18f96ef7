//! Tests that matrix products in half precision train single-precision parameters, and that no tensor is kept twice.

use highwater_engine::autograd::{autocast, checkpoint};
use highwater_engine::models::{Gpt2, Gpt2Size, LanguageModel};
use highwater_engine::nn::{Init, Module, checkpoint_scopes};
use highwater_engine::{DType, Device, Rng, Tensor};

const SIZE: Gpt2Size = Gpt2Size::SMALL;

fn loss(model: &Gpt2, tokens: &Tensor, targets: &Tensor) -> Tensor {
    let hidden = model.hidden(tokens).unwrap();
    let rows = hidden.reshape([targets.elements(), SIZE.width]).unwrap();
    rows.linear_cross_entropy(model.head_weight(), targets, None).unwrap()
}

fn tokens(device: &Device) -> [Tensor; 2] {
    let numbers: Vec<i64> = (0..120).map(|place| (place * 37 + place / 7) % 96).collect();
    let targets: Vec<i64> = (0..120).map(|place| (place * 11 + 5) % 96).collect();
    [Tensor::from_slice(&numbers, [4, 30], device).unwrap(), Tensor::from_slice(&targets, 120, device).unwrap()]
}

/// The loss, and every gradient, in single precision, or with products in bf16.
fn run(products: Option<DType>, in_blocks: bool) -> (f64, Vec<Vec<f64>>) {
    let device = Device::cpu();
    let model = Gpt2::new(&mut Init::new(&device, DType::F32, 3), SIZE, None).unwrap();
    if in_blocks {
        assert_eq!(checkpoint_scopes(&model, "h.*").unwrap(), SIZE.layers);
    }
    let [tokens, targets] = tokens(&device);
    let guard = products.map(autocast);
    let loss = loss(&model, &tokens, &targets);
    drop(guard);
    let value = loss.item().unwrap();
    loss.backward().unwrap();
    let gradient = |tensor: &Tensor| {
        let gradient = tensor.grad().unwrap();
        assert_eq!(gradient.dtype(), DType::F32);
        gradient.to_f64_vec().unwrap()
    };
    (value, model.parameters().iter().map(|parameter| gradient(&parameter.tensor)).collect())
}

#[test]
fn gradients_are_those_of_single_precision_but_for_rounding() {
    let ((exact, exactly), (rounded, roundly)) = (run(None, false), run(Some(DType::Bf16), false));
    assert!(exact != rounded && (exact - rounded).abs() < 0.02 * exact, "{exact} and {rounded}");
    for (exactly, roundly) in exactly.iter().zip(&roundly) {
        let norm = |numbers: &mut dyn Iterator<Item = f64>| numbers.map(|x| x * x).sum::<f64>().sqrt();
        let apart = norm(&mut exactly.iter().zip(roundly).map(|(a, b)| a - b));
        let size = norm(&mut exactly.iter().copied());
        assert!(apart <= 0.05 * size + 1e-7, "{apart} of {size}");
    }
}

#[test]
fn blocks_that_run_again_convert_as_they_did() {
    assert_eq!(run(Some(DType::Bf16), true), run(Some(DType::Bf16), false));
}

#[test]
fn converted_weights_are_not_kept() {
    let device = Device::accounting(1 << 30);
    let held = || device.allocator().stats().requested_bytes.all.current;
    let weight = Tensor::empty([512, 256], DType::F32, &device).unwrap();
    weight.tag(highwater_recorder::Category::Parameter);
    weight.set_requires_grad(true).unwrap();
    let input = Tensor::empty([8, 256], DType::F32, &device).unwrap();
    input.set_requires_grad(true).unwrap();
    let before = held();
    let guard = autocast(DType::Bf16);
    let out = input.linear(&weight, None).unwrap();
    drop(guard);
    assert_eq!(out.dtype(), DType::Bf16);
    // The result, and the converted input, which nobody else keeps.
    assert_eq!(held() - before, 2 * (8 * 512 + 8 * 256));
    out.sum().unwrap().backward().unwrap();
    assert_eq!(weight.grad().unwrap().dtype(), DType::F32);
}

#[test]
fn sums_of_two_types_are_of_the_wider_only_while_types_are_converted() {
    let device = Device::cpu();
    let half = Tensor::randn([3, 4], DType::Bf16, &device, &mut Rng::new(1)).unwrap();
    let single = Tensor::randn([3, 4], DType::F32, &device, &mut Rng::new(2)).unwrap();
    assert!(half.add(&single).unwrap_err().to_string().contains("to_dtype"));
    let _guard = autocast(DType::Bf16);
    assert_eq!(half.add(&single).unwrap().dtype(), DType::F32);
    assert_eq!(single.sub(&half).unwrap().dtype(), DType::F32);
    assert_eq!(half.clone().into_add(&single).unwrap().dtype(), DType::F32);
    let nested = checkpoint(&[&single], |x| x[0].matmul(&x[0].transpose(0, 1)?)).unwrap();
    assert_eq!(nested.dtype(), DType::Bf16);
}
