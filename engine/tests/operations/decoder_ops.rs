//! Tests that the operations of decoders have PyTorch's values and correct gradients, and use no more memory than
//! documented.

use std::collections::BTreeMap;

use highwater_engine::ops::{AttentionOptions, RotaryOptions};
use highwater_engine::{DType, Device, Result, Shape, Tensor};

use crate::grad_harness::check;

/// Values by PyTorch, written by `make.py` beside them.
const VALUES: &str = include_str!("../../testdata/pytorch/decoders/operations.txt");

type Operation = fn(&[Tensor]) -> Result<Tensor>;

const OPERATIONS: &[(&str, Operation)] = &[
    ("lora", |x| x[0].mul_scalar(1.0)?.into_lora(&x[1], &x[2], &x[3], 0.75)),
    ("rotary_packed", |x| x[0].mul_scalar(1.0)?.into_rotary_packed(3, 4, RotaryOptions { base: 100.0, first: 3 })),
];

/// A shape in brackets, and its numbers.
fn numbers(text: &str) -> (Shape, Vec<f64>) {
    let (shape, values) = text.strip_prefix('[').and_then(|text| text.split_once(']')).expect("a shape in brackets");
    let shape: Vec<usize> = shape.split_whitespace().map(|n| n.parse().expect("a length")).collect();
    let values: Vec<f64> = values.split_whitespace().map(|n| n.parse().expect("a number")).collect();
    (Shape::from_slice(&shape).unwrap(), values)
}

fn assert_near(found: &Tensor, (shape, expected): &(Shape, Vec<f64>), tolerance: f64, what: &str) {
    assert_eq!(found.shape(), shape, "{what}");
    for (place, (found, expected)) in found.to_f64_vec().unwrap().into_iter().zip(expected).enumerate() {
        let close = (found - expected).abs() <= tolerance * (1.0 + expected.abs());
        assert!(close, "{what}, element {place}: {found} in place of PyTorch's {expected}");
    }
}

fn leaf(shape: &Shape, values: &[f64], dtype: DType, device: &Device) -> Tensor {
    let tensor = Tensor::from_slice(values, shape, device).unwrap().to_dtype(dtype).unwrap();
    tensor.set_requires_grad(true).unwrap();
    tensor
}

#[test]
fn results_and_gradients_are_pytorchs_in_every_precision() {
    let mut cases = BTreeMap::new();
    for case in VALUES.split("case ").skip(1) {
        let (name, lines) = case.split_once('\n').expect("a name and what follows");
        let of = |what: &str| -> Vec<(Shape, Vec<f64>)> {
            let said = lines.lines().filter_map(|line| line.strip_prefix(what));
            said.map(|rest| numbers(rest.trim_start())).collect()
        };
        cases.insert(name, [of("input"), of("result"), of("grad")]);
    }
    assert_eq!(cases.keys().copied().collect::<Vec<_>>(), OPERATIONS.iter().map(|(name, _)| *name).collect::<Vec<_>>());
    let device = Device::cpu();
    let precisions = [(DType::F64, 1e-12), (DType::F32, 2e-5), (DType::F16, 2e-2), (DType::Bf16, 0.1)];
    for (&(name, operation), (dtype, tolerance)) in
        OPERATIONS.iter().flat_map(|operation| precisions.map(|precision| (operation, precision)))
    {
        let [inputs, results, grads] = &cases[name];
        let what = format!("{name} in {dtype}");
        let leaves: Vec<Tensor> = inputs.iter().map(|(shape, values)| leaf(shape, values, dtype, &device)).collect();
        let out = operation(&leaves).unwrap();
        assert_near(&out, &results[0], tolerance, &what);
        let weights: Vec<f64> = (0..out.elements()).map(|i| ((7 * i) % 5) as f64 / 2.0 - 1.0).collect();
        out.backward_from(leaf(out.shape(), &weights, dtype, &device).detach()).unwrap();
        for (place, (leaf, grad)) in leaves.iter().zip(grads).enumerate() {
            assert_near(&leaf.grad().unwrap(), grad, tolerance, &format!("{what}, gradient {place}"));
        }
    }
}

fn shapes<const N: usize>(shapes: [&[usize]; N]) -> [Shape; N] {
    shapes.map(|shape| Shape::from_slice(shape).unwrap())
}

#[test]
fn rows_over_the_root_of_their_mean_square() {
    check(shapes([&[2, 3, 5], &[5]]), |x| x[0].rms_norm(Some(&x[1]), 1e-3));
    check(shapes([&[7], &[7]]), |x| x[0].mul_scalar(0.5)?.rms_norm(Some(&x[1]), 1e-3));
    check(shapes([&[4, 3]]), |x| x[0].transpose(0, 1)?.rms_norm(None, 1e-2));
    check(shapes([&[0, 4], &[4]]), |x| x[0].rms_norm(Some(&x[1]), 1e-3));
    // The next layer computes the norm again.
    check(shapes([&[3, 4], &[4], &[2, 4]]), |x| x[0].rms_norm(Some(&x[1]), 1e-2)?.linear(&x[2], None));
    // Columns in several tasks.
    let device = Device::cpu();
    let sines: Vec<f64> = (0..1200).map(|i| f64::from(i).sin()).collect();
    let wide = leaf(&Shape::from([2, 600]), &sines, DType::F64, &device);
    let weight = leaf(&Shape::from(600), &[1.0; 600], DType::F64, &device);
    wide.rms_norm(Some(&weight), 0.0).unwrap().mul(&wide.detach()).unwrap().sum().unwrap().backward().unwrap();
    let values = wide.to_vec::<f64>().unwrap();
    let root = |row: usize| (values[600 * row..][..600].iter().map(|x| x * x).sum::<f64>() / 600.0).sqrt();
    let of_column = |i: usize| values[i] * values[i] / root(0) + values[600 + i] * values[600 + i] / root(1);
    for (i, found) in weight.grad().unwrap().to_vec::<f64>().unwrap().into_iter().enumerate() {
        assert!((found - of_column(i)).abs() < 1e-12, "column {i}: {found}");
    }
}

#[test]
fn pairs_are_turned_by_their_position() {
    let options = RotaryOptions { base: 50.0, first: 2 };
    check([[2, 3, 2, 4]], |x| x[0].rotary(options));
    check([[2, 2, 3, 4]], |x| x[0].transpose(1, 2)?.rotary(options)?.square());
    check([[1, 3, 1, 2]], |x| x[0].tanh()?.into_rotary(options)?.exp());
    check([[2, 3, 12]], |x| x[0].mul_scalar(0.5)?.into_rotary_packed(2, 3, options));
    check([[2, 1, 8]], |x| x[0].mul_scalar(0.5)?.into_rotary_packed(0, 2, options)?.square());
    check([[1, 0, 2, 4]], |x| x[0].rotary(options));
    // Turned keys and queries of one distance have one product.
    let rows = leaf(&Shape::from([1, 1, 1, 6]), &[0.3, -1.0, 0.7, 2.0, 0.1, -0.4], DType::F64, &Device::cpu());
    let at = |first| rows.rotary(RotaryOptions { base: 10.0, first }).unwrap();
    let product = |a: &Tensor, b: &Tensor| a.mul(b).unwrap().sum().unwrap().item().unwrap();
    assert!((product(&at(3), &at(5)) - product(&at(1003), &at(1005))).abs() < 1e-12);
    assert!((product(&at(3), &at(5)) - product(&at(3), &at(6))).abs() > 1e-3);
}

#[test]
fn gated_products() {
    check([[2, 3], [2, 3]], |x| Tensor::swiglu(&x[0], &x[1]));
    check([[2, 3]], |x| Tensor::swiglu(&x[0], &x[0]));
    check([[0, 3], [0, 3]], |x| Tensor::swiglu(&x[0], &x[1]));
    check([[2, 3], [2, 3]], |x| Tensor::swiglu(&x[0].mul_scalar(1.5)?, &x[1].add_scalar(0.5)?));
    check([[2, 3], [2, 3]], |x| Tensor::swiglu(&x[0].mul_scalar(1.5)?, &x[1])?.add(&x[1]));
    check([[2, 3], [2, 3]], |x| Tensor::swiglu(&x[0], &x[1].add_scalar(0.5)?)?.add(&x[1]));
    check([[3, 2], [4, 3]], |x| Tensor::swiglu(&x[0].transpose(0, 1)?, &x[1].narrow(0, 1, 2)?));
    // The next layer computes the product again.
    check([[2, 3], [2, 3], [4, 3]], |x| {
        Tensor::swiglu(&x[0].mul_scalar(1.5)?, &x[1].add_scalar(0.5)?)?.linear(&x[2], None)
    });
    check([[2, 3]], |x| Tensor::swiglu(&x[0].detach().affine(0.0, 1.5)?, &x[0].add_scalar(0.5)?));
}

#[test]
fn corrections_of_low_rank() {
    let sizes = |rows: &[usize]| {
        let with = |last: usize| Shape::from_slice(&[rows, &[last]].concat()).unwrap();
        [with(5), with(4), Shape::from([2, 4]), Shape::from([5, 2])]
    };
    for rows in [&[3][..], &[2, 3], &[0]] {
        check(sizes(rows), |x| x[0].clone().into_lora(&x[1], &x[2], &x[3], 0.7));
        check(sizes(rows), |x| x[0].mul_scalar(2.0)?.into_lora(&x[1].tanh()?, &x[2], &x[3], 0.7));
    }
    // A layer and its correction share their input, whose gradient is added up in one place.
    check([[3, 4], [5, 4], [2, 4], [5, 2]], |x| {
        let input = x[0].mul_scalar(0.5)?.gelu()?;
        input.linear(&x[1], None)?.into_lora(&input, &x[2], &x[3], -1.5)
    });
}

#[test]
fn a_wider_correction_is_computed_in_its_own_type_and_added_there() {
    let device = Device::cpu();
    let narrow = |values: &[f64], shape: [usize; 2]| leaf(&Shape::from(shape), values, DType::Bf16, &device);
    let (base, input) = (narrow(&[256.0, -256.0], [2, 1]), narrow(&[1.0, 3.0], [2, 1]));
    let a = leaf(&Shape::from([1, 1]), &[1.001], DType::F32, &device);
    let b = leaf(&Shape::from([1, 1]), &[1.0], DType::F32, &device);
    let out = base.mul_scalar(1.0).unwrap().into_lora(&input, &a, &b, 0.6).unwrap();
    assert_eq!(out.dtype(), DType::Bf16);
    // 256.6 rounds to 256 in bf16, and -254.2 to -254; the parts alone would have been 0.6 and 1.8.
    assert_eq!(out.to_f64_vec().unwrap(), [256.0, -254.0]);
    out.backward_from(narrow(&[1.0, -2.0], [2, 1]).detach()).unwrap();
    let grads = [&base, &input, &a, &b].map(|leaf| leaf.grad().unwrap());
    assert_eq!(grads.each_ref().map(Tensor::dtype), [DType::Bf16, DType::Bf16, DType::F32, DType::F32]);
    assert_eq!(grads[0].to_f64_vec().unwrap(), [1.0, -2.0]);
    let near = |grad: &Tensor, expected: f64| (grad.to_f64_vec().unwrap()[0] - expected).abs() < 1e-6;
    assert!(near(&grads[2], 0.6 * (1.0 - 6.0)) && near(&grads[3], 0.6 * 1.001_f64 * (1.0 - 6.0)));
    // 0.6006 and -1.2012, to the three digits of bf16.
    assert_eq!(grads[1].to_f64_vec().unwrap(), [0.6015625, -1.203125]);
}

/// Every choice of frozen inputs leaves the other gradients as they are.
fn check_frozen<const N: usize>(sizes: [&[usize]; N], operation: impl Fn(&[Tensor]) -> Result<Tensor>) {
    let device = Device::cpu();
    let run = |frozen: usize| -> Vec<Option<Vec<f64>>> {
        let leaves: Vec<Tensor> = shapes(sizes)
            .iter()
            .enumerate()
            .map(|(input, shape)| {
                let values: Vec<f64> = (0..shape.elements()).map(|i| (0.9 * i as f64 + input as f64).sin()).collect();
                let tensor = leaf(shape, &values, DType::F64, &device);
                tensor.set_requires_grad(frozen >> input & 1 == 0).unwrap();
                tensor
            })
            .collect();
        // Results of other operations, whose memory is free to overwrite, as they are in a model.
        let used: Vec<Tensor> = leaves.iter().map(|leaf| leaf.mul_scalar(1.25).unwrap()).collect();
        let out = operation(&used).unwrap();
        drop(used);
        let weights: Vec<f64> = (0..out.elements()).map(|i| (1.1 * i as f64).cos()).collect();
        out.backward_from(Tensor::from_slice(&weights, out.shape(), out.device()).unwrap()).unwrap();
        leaves.iter().map(|leaf| leaf.grad().map(|grad| grad.to_vec().unwrap())).collect()
    };
    let all = run(0);
    assert!(all.iter().all(Option::is_some));
    for frozen in 1..(1 << N) - 1 {
        for (input, (found, expected)) in run(frozen).into_iter().zip(&all).enumerate() {
            let expected = if frozen >> input & 1 == 0 { expected.clone() } else { None };
            assert_eq!(found, expected, "input {input} with frozen inputs {frozen:b}");
        }
    }
}

#[test]
fn frozen_inputs_change_no_other_gradient() {
    check_frozen([&[3, 4], &[4]], |x| x[0].rms_norm(Some(&x[1]), 1e-3));
    check_frozen([&[3, 4], &[4], &[4]], |x| x[0].layer_norm(Some(&x[1]), Some(&x[2]), 1e-3));
    check_frozen([&[3, 4], &[3, 4]], |x| Tensor::swiglu(&x[0], &x[1]));
    check_frozen([&[3, 4], &[3, 4]], |x| x[0].mul(&x[1]));
    check_frozen([&[2, 3, 4], &[3, 1]], |x| x[0].mul(&x[1]));
    check_frozen([&[3, 4], &[5, 4], &[5]], |x| x[0].linear(&x[1], Some(&x[2])));
    check_frozen([&[3, 5], &[3, 4], &[2, 4], &[5, 2]], |x| x[0].clone().into_lora(&x[1], &x[2], &x[3], 0.7));
    let sizes: [&[usize]; 3] = [&[1, 4, 3, 2], &[1, 2, 3, 2], &[1, 2, 3, 2]];
    check_frozen(sizes, |x| Tensor::attention(&x[0], &x[1], &x[2], AttentionOptions::causal()));
}

#[test]
fn wrong_shapes_types_and_settings_are_errors_that_name_them() {
    let device = Device::accounting(1 << 30);
    let zeros = |shape: &[usize]| Tensor::zeros(Shape::from_slice(shape).unwrap(), DType::F32, &device).unwrap();
    let said = |outcome: Result<Tensor>, words: &[&str]| {
        let text = outcome.unwrap_err().to_string();
        assert!(words.iter().all(|word| text.contains(word)), "{text}");
    };
    let options = RotaryOptions::default();
    said(zeros(&[2, 3]).rms_norm(Some(&zeros(&[2])), 1e-5), &["rms_norm", "[2, 3]", "[2]"]);
    said(zeros(&[]).rms_norm(None, 1e-5), &["rms_norm", "one axis"]);
    said(zeros(&[2, 3, 4]).rotary(options), &["rotary", "[2, 3, 4]", "[batch, length, heads, width]"]);
    said(zeros(&[2, 3, 4, 5]).rotary(options), &["rotary", "even"]);
    said(zeros(&[2, 3, 4, 6]).rotary(RotaryOptions { base: 0.0, first: 0 }), &["rotary", "invalid base 0"]);
    said(zeros(&[2, 3, 12]).into_rotary_packed(4, 3, options), &["rotary", "4 of 3 heads"]);
    said(zeros(&[2, 3, 9]).into_rotary_packed(2, 3, options), &["rotary", "[2, 3, 9]", "slots"]);
    said(zeros(&[2, 3, 9]).into_rotary_packed(0, 0, options), &["rotary", "slots"]);
    said(Tensor::swiglu(&zeros(&[2, 3]), &zeros(&[3])), &["swiglu", "[2, 3]", "[3]", "same shape"]);
    let lora = |base: &[usize], input: &[usize], a: &[usize], b: &[usize]| {
        zeros(base).into_lora(&zeros(input), &zeros(a), &zeros(b), 1.0)
    };
    said(lora(&[2, 5], &[2, 4], &[3, 4], &[5, 2]), &["lora", "[3, 4]", "[5, 2]", "[rank, inputs]"]);
    said(lora(&[2, 5], &[2, 4], &[2, 3], &[5, 2]), &["lora", "[2, 4]", "[2, 3]"]);
    said(lora(&[3, 5], &[2, 4], &[2, 4], &[5, 2]), &["lora", "[3, 5]", "as many columns"]);
    said(lora(&[5], &[4], &[2, 4], &[5, 2]), &["lora", "[4]"]);
    let doubles = Tensor::zeros([2, 3], DType::F64, &device).unwrap();
    said(Tensor::swiglu(&zeros(&[2, 3]), &doubles), &["swiglu", "f64"]);
    let whole = Tensor::zeros([1, 1, 1, 2], DType::I64, &device).unwrap();
    said(whole.rotary(options), &["rotary", "i64"]);
}

fn live(device: &Device) -> u64 {
    device.allocator().stats().requested_bytes.all.current
}

/// Bytes above those at the start that `work` has live at its peak.
fn growth(device: &Device, work: impl FnOnce()) -> u64 {
    device.allocator().reset_peak_stats();
    let before = live(device);
    work();
    device.allocator().stats().requested_bytes.all.peak - before
}

/// Bytes of a matrix of 64 rows and 256 columns.
const BYTES: u64 = 64 * 256 * 4;

fn matrix(device: &Device) -> Tensor {
    let tensor = Tensor::zeros([64, 256], DType::F32, device).unwrap();
    tensor.set_requires_grad(true).unwrap();
    tensor
}

#[test]
fn rotary_takes_no_memory_at_all() {
    let device = Device::accounting(1 << 40);
    let x = matrix(&device);
    let heads = x.mul_scalar(2.0).unwrap().reshape([1, 64, 4, 64]).unwrap();
    let mut turned = None;
    assert_eq!(growth(&device, || turned = Some(heads.into_rotary(RotaryOptions::default()).unwrap())), 0);
    let turned = turned.unwrap();
    let grad = Tensor::ones(turned.shape(), DType::F32, &device).unwrap();
    assert_eq!(growth(&device, || turned.backward_from(grad).unwrap()), 0);
    drop(turned);
    assert_eq!(live(&device), 2 * BYTES, "x and its gradient");
    // What somebody else holds is not overwritten.
    let heads = x.mul_scalar(2.0).unwrap().reshape([1, 64, 4, 64]).unwrap();
    assert_eq!(growth(&device, || drop(heads.clone().into_rotary(RotaryOptions::default()).unwrap())), BYTES);
}

#[test]
fn a_gated_product_keeps_its_inputs_and_its_gradients_take_them_over() {
    let device = Device::accounting(1 << 40);
    let [gate, up, down] = [matrix(&device), matrix(&device), matrix(&device)];
    let grad = |result: &Tensor| Tensor::ones(result.shape(), DType::F32, &device).unwrap();
    let start = live(&device);
    let computed = |x: &Tensor| x.mul_scalar(2.0).unwrap();
    let product = Tensor::swiglu(&computed(&gate), &computed(&up)).unwrap();
    let incoming = grad(&product);
    assert_eq!(growth(&device, || product.backward_from(incoming).unwrap()), 0);
    drop(product);
    assert_eq!(live(&device) - start, 2 * BYTES, "two gradients, where gate and up were");
    drop([gate.take_grad(), up.take_grad()]);
    // The next layer keeps nothing more: it computes the product again.
    let out = Tensor::swiglu(&computed(&gate), &computed(&up)).unwrap().linear(&down, None).unwrap();
    assert_eq!(live(&device) - start, 2 * BYTES + out.bytes());
    drop(out);
    // Of what somebody else holds, one gradient takes over the result's: one more buffer is enough.
    let product = Tensor::swiglu(&gate, &up).unwrap();
    let incoming = grad(&product);
    assert_eq!(growth(&device, || product.backward_from(incoming).unwrap()), BYTES);
    drop(product);
    drop([gate.take_grad(), up.take_grad()]);
    // Only `up` wants a gradient: it need not be kept.
    gate.set_requires_grad(false).unwrap();
    let product = Tensor::swiglu(&gate, &computed(&up)).unwrap();
    assert_eq!(live(&device) - start, product.bytes());
}

#[test]
fn a_correction_of_low_rank_keeps_a_few_columns() {
    let device = Device::accounting(1 << 40);
    let input = matrix(&device);
    let weight = Tensor::zeros([256, 256], DType::F32, &device).unwrap();
    let [a, b] = [[4, 256], [256, 4]].map(|shape| {
        let tensor = Tensor::zeros(shape, DType::F32, &device).unwrap();
        tensor.set_requires_grad(true).unwrap();
        tensor
    });
    let start = live(&device);
    let low = 64 * 4 * 4;
    let base = input.linear(&weight, None).unwrap();
    let mut out = None;
    assert_eq!(growth(&device, || out = Some(base.into_lora(&input, &a, &b, 0.5).unwrap())), low);
    let out = out.unwrap();
    let grad = Tensor::ones(out.shape(), DType::F32, &device).unwrap();
    drop(out.detach());
    assert_eq!(live(&device) - start, 2 * BYTES + low, "the result, its gradient, and the few columns");
    let adapters = a.bytes() + b.bytes();
    assert_eq!(growth(&device, || out.backward_from(grad).unwrap()), adapters + BYTES, "and the input's gradient");
    drop(out);
    assert_eq!(live(&device) - start, adapters + BYTES);
    assert!(weight.grad().is_none());
    // Without anything that trains, nothing is kept.
    for tensor in [&a, &b, &input] {
        tensor.set_requires_grad(false).unwrap();
    }
    let out = input.linear(&weight, None).unwrap().into_lora(&input, &a, &b, 0.5).unwrap();
    assert_eq!((live(&device) - start, out.requires_grad()), (adapters + 2 * BYTES, false));
}

#[test]
fn attention_backward_writes_the_querys_gradient_where_the_result_was() {
    let device = Device::accounting(1 << 40);
    let x = matrix(&device);
    let part = || x.mul_scalar(2.0).unwrap().reshape([1, 64, 4, 64]).unwrap().transpose(1, 2).unwrap();
    let out = Tensor::attention(&part(), &part(), &part(), AttentionOptions::causal()).unwrap();
    let rows = 4 * 64 * 4;
    assert_eq!(live(&device), BYTES + 4 * BYTES + rows, "x, three inputs, the result, one number a row and head");
    let loss = out.sum().unwrap();
    drop(out);
    // The result's gradient, the key's and the value's, and one number a row and head.
    assert_eq!(growth(&device, || loss.backward().unwrap()), 3 * BYTES + rows);
}
