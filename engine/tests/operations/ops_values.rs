//! Tests results and gradients against PyTorch's in `data/ops/ops.txt`.

use highwater_engine::ops::{AttentionOptions, ConvOptions};
use highwater_engine::{DType, Device, Result, Shape, Tensor};

use crate::values_harness::{self, Operation};

const DATA: &str = include_str!("../data/ops/ops.txt");

const OPERATIONS: &[(&str, Operation)] = &[
    ("add", |x| x[0].add(&x[1])),
    ("add_broadcast", |x| x[0].add(&x[1])),
    ("sub", |x| x[0].sub(&x[1])),
    ("mul", |x| x[0].mul(&x[1])),
    ("div", |x| x[0].div(&x[1])),
    ("neg", |x| x[0].neg()),
    ("affine", |x| x[0].affine(2.5, -0.5)),
    ("exp", |x| x[0].exp()),
    ("log", |x| x[0].log()),
    ("sqrt", |x| x[0].sqrt()),
    ("square", |x| x[0].square()),
    ("tanh", |x| x[0].tanh()),
    ("sin", |x| x[0].sin()),
    ("cos", |x| x[0].cos()),
    ("sigmoid", |x| x[0].sigmoid()),
    ("silu", |x| x[0].silu()),
    ("relu", |x| x[0].relu()),
    ("gelu", |x| x[0].gelu()),
    ("gelu_tanh", |x| x[0].gelu_tanh()),
    ("sum", |x| x[0].sum()),
    ("mean", |x| x[0].mean()),
    ("sum_axes", |x| x[0].sum_axes(&[0, 2])),
    ("mean_axes_keep", |x| x[0].mean_axes_keep(&[1])),
    ("max_axis", |x| x[0].max_axis(1)),
    ("max_axis_ties", |x| x[0].max_axis(-1)),
    ("matmul", |x| x[0].matmul(&x[1])),
    ("matmul_batched", |x| x[0].matmul(&x[1])),
    ("matmul_turned", |x| x[0].transpose(0, 1)?.matmul(&x[1].transpose(0, 1)?)),
    ("linear", |x| x[0].linear(&x[1], Some(&x[2]))),
    ("reshape_transpose", |x| x[0].reshape([6, 4])?.transpose(0, 1)?.reshape([3, 8])),
    ("permute", |x| x[0].permute(&[2, 0, 1])),
    ("narrow", |x| x[0].narrow(2, 1, 2)),
    ("expand", |x| x[0].expand([2, 3, 4])),
    ("concat", |x| Tensor::concat(&[&x[0], &x[1], &x[0]], 1)),
    ("softmax", |x| x[0].softmax(-1)),
    ("softmax_first", |x| x[0].softmax(0)),
    ("softmax_large", |x| x[0].softmax(-1)),
    ("log_softmax", |x| x[0].log_softmax(1)),
    ("layer_norm", |x| x[0].layer_norm(Some(&x[1]), Some(&x[2]), 1e-5)),
    ("layer_norm_plain", |x| x[0].layer_norm(None, None, 1e-5)),
    ("attention", |x| Tensor::attention(&x[0], &x[1], &x[2], AttentionOptions::default())),
    ("attention_causal", |x| Tensor::attention(&x[0], &x[1], &x[2], AttentionOptions::causal())),
    ("attention_shared_heads", |x| {
        Tensor::attention(&x[0], &x[1], &x[2], AttentionOptions { scale: Some(0.3), ..AttentionOptions::causal() })
    }),
    ("attention_packed", |x| x[0].attention_packed(2, 1, AttentionOptions::causal())),
    ("embedding", |x| x[0].embedding(&x[1])),
    ("cross_entropy", |x| x[0].cross_entropy(&x[1], None)),
    ("cross_entropy_ignored", |x| x[0].cross_entropy(&x[1], Some(-100))),
    ("conv2d_patches", |x| x[0].conv2d(&x[1], Some(&x[2]), ConvOptions { stride: [2, 2], ..ConvOptions::default() })),
    ("conv2d_padded", |x| x[0].conv2d(&x[1], Some(&x[2]), ConvOptions { padding: [1, 1], ..ConvOptions::default() })),
    ("conv2d_strided", |x| {
        x[0].conv2d(&x[1], None, ConvOptions { stride: [2, 3], padding: [0, 2], ..ConvOptions::default() })
    }),
];

#[test]
fn results_and_gradients_are_pytorchs_in_single_and_double_precision() {
    // Rows near 100 leave single precision two digits fewer.
    let tolerance = |name: &str| Some(if name == "layer_norm_plain" { 1e-3 } else { 1e-5 });
    values_harness::check(DATA, OPERATIONS, DType::F32, tolerance);
    values_harness::check(DATA, OPERATIONS, DType::F64, tolerance);
}

#[test]
fn half_precision_follows_within_its_few_digits() {
    let of = |tolerance: f64| {
        move |name: &str| (!["layer_norm_plain", "softmax_large"].contains(&name)).then_some(tolerance)
    };
    values_harness::check(DATA, OPERATIONS, DType::Bf16, of(0.1));
    values_harness::check(DATA, OPERATIONS, DType::F16, of(0.02));
}

#[test]
fn wrong_shapes_types_and_indices_are_errors_that_name_them() {
    let device = Device::cpu();
    let zeros = |shape: &[usize]| Tensor::zeros(Shape::from_slice(shape).unwrap(), DType::F32, &device).unwrap();
    let said = |outcome: Result<Tensor>, words: &[&str]| {
        let text = outcome.unwrap_err().to_string();
        assert!(words.iter().all(|word| text.contains(word)), "{text}");
    };
    said(zeros(&[2, 3]).matmul(&zeros(&[2, 3])), &["matmul", "[2, 3]"]);
    said(zeros(&[3]).matmul(&zeros(&[3, 2])), &["matmul", "two axes"]);
    said(zeros(&[2, 3]).linear(&zeros(&[4, 2]), None), &["linear", "[4, 2]", "[outputs, inputs]"]);
    said(zeros(&[2, 3]).linear(&zeros(&[4, 3]), Some(&zeros(&[3]))), &["bias", "[outputs]"]);
    said(zeros(&[2, 3]).sum_axes(&[2]), &["axis 2", "rank 2"]);
    said(zeros(&[2, 3]).reshape([4]), &["[2, 3]", "[4]"]);
    said(zeros(&[2, 3]).permute(&[0, 0]), &["each axis exactly once"]);
    said(zeros(&[2, 0]).max_axis(1), &["max_axis", "must not be empty"]);
    said(zeros(&[2, 3]).layer_norm(Some(&zeros(&[2])), None, 1e-5), &["[2, 3]", "[2]"]);
    said(zeros(&[1, 2, 6]).attention_packed(2, 1, AttentionOptions::default()), &["attention", "[1, 2, 6]"]);
    said(zeros(&[1, 1, 4, 4]).conv2d(&zeros(&[1, 1, 5, 5]), None, ConvOptions::default()), &["conv2d", "fit"]);
    said(Tensor::concat(&[], 0), &["concat", "at least one"]);
    said(zeros(&[2]).dropout(1.0, &mut highwater_engine::Rng::new(0)), &["probability 1"]);
    let indices = Tensor::from_slice(&[0_i64, 5], 2, &device).unwrap();
    said(zeros(&[5, 2]).embedding(&indices), &["index 5", "0 to 4"]);
    said(zeros(&[2, 5]).cross_entropy(&indices, None), &["index 5"]);
    said(indices.exp(), &["exp", "i64"]);
    assert!(Tensor::from_slice(&[1.0_f32], 2, &device).unwrap_err().to_string().contains("got 1"));
    assert!(Tensor::zeros(2, DType::F32, &Device::accounting(1 << 30)).unwrap().to_vec::<f32>().is_err());
}

#[test]
fn tensors_print_their_numbers_and_what_they_are() {
    let device = Device::cpu();
    let tensor = Tensor::arange(6, 0.0, 0.5, DType::F32, &device).unwrap().reshape([2, 3]).unwrap();
    assert_eq!(tensor.to_string(), "[[0.0000, 0.5000, 1.0000],\n [1.5000, 2.0000, 2.5000]] f32 [2, 3] on cpu");
    let long = Tensor::arange(9, 0.0, 1.0, DType::I64, &device).unwrap();
    assert_eq!(long.to_string(), "[0, 1, 2, …, 6, 7, 8] i64 [9] on cpu");
    assert_eq!(Tensor::zeros((), DType::F32, &device).unwrap().to_string(), "0.0000 f32 [] on cpu");
    assert_eq!(format!("{:?}", Tensor::zeros(2, DType::F32, &Device::accounting(1 << 30)).unwrap()), "f32 [2] on meta");
}
