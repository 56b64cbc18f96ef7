//! Tests that the segmentation networks have PyTorch's values, and that no stage uses more memory than in PyTorch.

use highwater_engine::models::{Fcn, FcnPadding, FcnSize, FcnStride};
use highwater_engine::nn::{Init, Module, Parameter};
use highwater_engine::optim::{AdamW, Optimizer, RuleOptimizer, Sgd};
use highwater_engine::{DType, Device, Tensor, no_grad};

/// Losses, gradients and requested bytes by PyTorch, written by `data/torch/make_conv_fixtures.py`.
const NUMBERS: &str = include_str!("../data/torch/fcn.txt");
const MEMORY: &str = include_str!("../data/torch/fcn_memory.txt");

fn size(stride: &str, padding: &str) -> FcnSize {
    FcnSize {
        stride: if stride == "fcn8s" { FcnStride::Eight } else { FcnStride::ThirtyTwo },
        padding: if padding == "100" { FcnPadding::Hundred } else { FcnPadding::One },
        ..FcnSize::VOC_8S
    }
}

/// The numbers that the script computes from their position.
fn fill(parameters: &[Parameter]) {
    let _mode = no_grad();
    let mut first = 0;
    for Parameter { tensor, .. } in parameters {
        let values: Vec<f64> = (first..first + tensor.elements()).map(|i| 0.3 * (0.7 * i as f64 + 1.0).sin()).collect();
        tensor.copy_(&Tensor::from_slice(&values, tensor.shape(), tensor.device()).unwrap()).unwrap();
        first += tensor.elements();
    }
}

fn assert_near(found: f64, expected: &str, what: &str) {
    let expected: f64 = expected.parse().unwrap();
    let near = (found - expected).abs() <= 1e-9 * (1.0 + expected.abs());
    assert!(near, "{what}: {found} in place of PyTorch's {expected}");
}

#[test]
fn gradients_and_losses_are_pytorchs() {
    let device = Device::cpu();
    let images = [
        ("fcn8s-100", [2, 3, 5, 9]),
        ("fcn32s-100", [1, 3, 8, 3]),
        ("fcn8s-1", [2, 3, 70, 41]),
        ("fcn32s-1", [1, 3, 33, 65]),
    ];
    for (name, shape) in images {
        let (stride, padding) = name.split_once('-').unwrap();
        let size = FcnSize { classes: 3, dropout: false, divisor: 64, ..size(stride, padding) };
        let model = Fcn::new(&mut Init::new(&device, DType::F64, 0), size).unwrap();
        let parameters = model.parameters();
        fill(&parameters);
        let pixels: Vec<f64> = (0..shape.iter().product()).map(|i: usize| (0.9 * i as f64).cos()).collect();
        let input = Tensor::from_slice(&pixels, shape, &device).unwrap();
        let labels: Vec<i64> = (0..(shape[0] * shape[2] * shape[3]) as i64).map(|i| i % 3).collect();
        let labels = Tensor::from_slice(&labels, [shape[0], shape[2], shape[3]], &device).unwrap();
        let rule = Sgd { learning_rate: 0.001, momentum: 0.9, ..Sgd::default() };
        let mut optimizer = RuleOptimizer::new(rule, parameters.clone()).unwrap();
        let of = |kind: &str| -> Vec<Vec<&str>> {
            let prefix = format!("{kind} {name} ");
            NUMBERS
                .lines()
                .filter_map(|line| line.strip_prefix(&prefix))
                .map(|line| line.split(' ').collect())
                .collect()
        };
        let (grads, losses) = (of("grad"), of("losses").concat());
        assert_eq!((grads.len(), losses.len()), (parameters.len(), 3));
        for (step, expected) in losses.into_iter().enumerate() {
            let loss = model.forward(&input).unwrap().cross_entropy(&labels, None).unwrap();
            loss.backward().unwrap();
            assert_near(loss.item().unwrap(), expected, name);
            for (parameter, line) in parameters.iter().zip(&grads).filter(|_| step == 0) {
                assert_eq!(parameter.path, line[0], "the same order");
                let grad = parameter.tensor.grad().expect("every parameter has a gradient").to_vec::<f64>().unwrap();
                let weighted: f64 = grad.iter().enumerate().map(|(i, value)| value * (i as f64).cos()).sum();
                assert_near(grad.iter().sum(), line[1], &parameter.path);
                assert_near(weighted, line[2], &parameter.path);
            }
            optimizer.step().unwrap();
            optimizer.zero_grad();
        }
    }
}

/// Requested bytes now and at the peak since last asked.
fn bytes(device: &Device) -> [u64; 2] {
    let bytes = device.allocator().stats().requested_bytes.all;
    device.allocator().reset_peak_stats();
    [bytes.current, bytes.peak]
}

#[test]
fn no_stage_takes_more_memory_than_in_pytorch() {
    let lines: Vec<Vec<&str>> = MEMORY.lines().map(|line| line.split(' ').collect()).collect();
    for variant in lines.chunks(8) {
        let [net, padding, image, batch, rule, dropout, ..] = variant[0][..] else { panic!("nine words") };
        let [image, batch]: [usize; 2] = [image, batch].map(|number| number.parse().unwrap());
        let device = Device::accounting(1 << 40);
        let size = FcnSize { dropout: dropout == "dropout", ..size(net, padding) };
        let model = Fcn::new(&mut Init::new(&device, DType::F32, 0), size).unwrap();
        let images = Tensor::zeros([batch, 3, image, image], DType::F32, &device).unwrap();
        let labels = Tensor::zeros([batch, image, image], DType::I64, &device).unwrap();
        let parameters = model.parameters();
        let sgd = Sgd { momentum: 0.9, ..Sgd::default() };
        let mut optimizer: Box<dyn Optimizer> = match rule {
            "sgd" => Box::new(RuleOptimizer::new(sgd, parameters).unwrap()),
            _ => Box::new(RuleOptimizer::new(AdamW::default(), parameters).unwrap()),
        };
        bytes(&device);
        let mut found = Vec::new();
        for _ in 0..2 {
            let loss = model.forward(&images).unwrap().cross_entropy(&labels, None).unwrap();
            found.push(bytes(&device));
            loss.backward().unwrap();
            found.push(bytes(&device));
            drop(loss);
            bytes(&device);
            optimizer.step().unwrap();
            found.push(bytes(&device));
            optimizer.zero_grad();
            found.push(bytes(&device));
        }
        assert_eq!(found.len(), variant.len());
        for (found, line) in found.into_iter().zip(variant) {
            let what = line[..7].join(" ");
            for (found, expected) in found.into_iter().zip(&line[7..]) {
                let expected: u64 = expected.parse().unwrap();
                assert!(found <= expected, "{what}: {found} bytes, where PyTorch has {expected}");
            }
        }
    }
}

#[test]
fn the_network_keeps_each_convolutions_result_once_and_only_a_quarter_of_those_before_a_pool() {
    let device = Device::accounting(1 << 40);
    let model = Fcn::new(&mut Init::new(&device, DType::F32, 0), FcnSize::VOC_8S).unwrap();
    assert_eq!(bytes(&device)[0], 537_959_036);
    let images = Tensor::zeros([1, 3, 256, 256], DType::F32, &device).unwrap();
    let labels = Tensor::zeros([1, 256, 256], DType::I64, &device).unwrap();
    let before = bytes(&device)[0];
    let loss = model.forward(&images).unwrap().cross_entropy(&labels, None).unwrap();
    let places = |side: usize, channels: usize| (side * side * channels) as u64;
    let blocks = [(454, 227, 64, 1), (227, 114, 128, 1), (114, 57, 256, 2), (57, 29, 512, 2), (29, 15, 512, 2)];
    let convs: u64 = blocks.iter().map(|&(side, _, channels, inner)| inner * 4 * places(side, channels)).sum();
    // Each pool's result in f32, and its place in the window in a byte.
    let pools: u64 = blocks.iter().map(|&(_, side, channels, _)| 5 * places(side, channels)).sum();
    let head = 2 * 4 * places(9, 4096);
    let scores = 4 * 21 * (places(9, 1) + places(20, 1) + places(42, 1));
    // The logits, one number a pixel, how many pixels there are, and the loss.
    let end = 4 * (21 + 1) * places(256, 1) + 4 + 4;
    assert_eq!(bytes(&device)[0] - before, convs + pools + head + scores + end);
    drop(loss);
    assert_eq!(bytes(&device)[0], before);
}

#[test]
fn a_small_network_learns_to_distinguish_pixels() {
    let device = Device::cpu();
    let model = Fcn::new(&mut Init::new(&device, DType::F32, 3), FcnSize { divisor: 32, ..FcnSize::SMALL }).unwrap();
    // Four bright squares, each its own class.
    let class = |y: usize, x: usize| 2 * (y / 16) + x / 16;
    let pixels: Vec<f32> =
        (0..3 * 32 * 32).map(|i| if class(i / 32 % 32, i % 32) % 3 == i / 1024 { 1.0 } else { -1.0 }).collect();
    let labels: Vec<i64> = (0..32 * 32).map(|i| class(i / 32, i % 32) as i64).collect();
    let images = Tensor::from_slice(&pixels, [1, 3, 32, 32], &device).unwrap();
    let labels = Tensor::from_slice(&labels, [1, 32, 32], &device).unwrap();
    let mut optimizer =
        RuleOptimizer::new(AdamW { learning_rate: 3e-3, ..AdamW::default() }, model.parameters()).unwrap();
    let mut losses = Vec::new();
    for _ in 0..25 {
        let loss = model.forward(&images).unwrap().cross_entropy(&labels, None).unwrap();
        loss.backward().unwrap();
        losses.push(loss.item().unwrap());
        optimizer.step().unwrap();
        optimizer.zero_grad();
    }
    assert!((losses[0] - 4.0_f64.ln()).abs() < 1e-6, "scores begin at zero: {}", losses[0]);
    assert!(losses[24] < 0.6 * losses[0], "{losses:?}");
    model.set_training(false);
    let [one, again] = [0, 1].map(|_| model.forward(&images).unwrap().to_vec::<f32>().unwrap());
    assert_eq!(one, again, "nothing is left to chance outside of training");
}

#[test]
fn every_size_of_image_fits_and_a_divisor_that_leaves_no_channel_is_refused() {
    let device = Device::accounting(1 << 40);
    let mut init = Init::new(&device, DType::F32, 0);
    for (stride, padding) in [("fcn8s", "100"), ("fcn8s", "1"), ("fcn32s", "100"), ("fcn32s", "1")] {
        let model = Fcn::new(&mut init, FcnSize { divisor: 64, ..size(stride, padding) }).unwrap();
        for side in (1..130).chain([255, 320, 500, 513]) {
            let images = Tensor::zeros([1, 3, side, 2 * side], DType::F32, &device).unwrap();
            let _mode = no_grad();
            assert_eq!(**model.forward(&images).unwrap().shape(), [1, 21, side, 2 * side]);
        }
    }
    for divisor in [0, 65] {
        let refused = Fcn::new(&mut init, FcnSize { divisor, ..FcnSize::SMALL }).unwrap_err().to_string();
        assert!(refused.contains(&format!("invalid divisor {divisor}")), "{refused}");
    }
}
