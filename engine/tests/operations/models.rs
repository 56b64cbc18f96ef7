//! Tests that the networks have PyTorch's values and parameter counts.

use highwater_engine::models::{Perceptron, VisionTransformer, VitSize};
use highwater_engine::nn::{Embedding, EncoderSize, Filling, Init, Linear, Module, Parameter, Visitor};
use highwater_engine::optim::{Adam, AdamW, Form, Optimizer, RuleOptimizer, Sgd};
use highwater_engine::{DType, Device, Tensor};

/// Losses and gradients by PyTorch, written by `data/torch/make_fixtures.py`.
const VIT: &str = include_str!("../data/torch/vit.txt");
const PERCEPTRON: &str = include_str!("../data/torch/perceptron.txt");

/// The numbers that the script computes from their position.
fn fill(parameters: &[Parameter]) {
    let mut first = 0;
    for Parameter { tensor, .. } in parameters {
        let _mode = highwater_engine::no_grad();
        let values: Vec<f64> = (first..first + tensor.elements()).map(|i| 0.3 * (0.7 * i as f64 + 1.0).sin()).collect();
        tensor.copy_(&Tensor::from_slice(&values, tensor.shape(), tensor.device()).unwrap()).unwrap();
        first += tensor.elements();
    }
}

fn input<const N: usize>(shape: [usize; N], device: &Device) -> Tensor {
    let values: Vec<f64> = (0..shape.iter().product()).map(|i: usize| (0.9 * i as f64).cos()).collect();
    Tensor::from_slice(&values, shape, device).unwrap()
}

fn rule_named(name: &str, parameters: Vec<Parameter>) -> Box<dyn Optimizer> {
    let (learning_rate, betas, epsilon, weight_decay, form) = (0.05, [0.8, 0.95], 1e-3, 0.2, Form::default());
    let sgd = Sgd { learning_rate: 0.1, momentum: 0.9, ..Sgd::default() };
    match name {
        "adam-decay" => Box::new(
            RuleOptimizer::new(Adam { learning_rate, betas, epsilon, weight_decay, form }, parameters).unwrap(),
        ),
        "adamw-decay" => Box::new(
            RuleOptimizer::new(AdamW { learning_rate, betas, epsilon, weight_decay, form }, parameters).unwrap(),
        ),
        "sgd-momentum" => Box::new(RuleOptimizer::new(sgd, parameters).unwrap()),
        "sgd-nesterov" => {
            Box::new(RuleOptimizer::new(Sgd { weight_decay, nesterov: true, ..sgd }, parameters).unwrap())
        }
        other => panic!("no rule is called {other}"),
    }
}

fn assert_near(found: f64, expected: f64, what: &str) {
    assert!((found - expected).abs() <= 1e-11, "{what}: {found} in place of PyTorch's {expected}");
}

/// Trains as the script does and compares every number in `fixture`. `torch_path` turns our paths into PyTorch's.
fn train_like_pytorch(
    fixture: &str,
    make: impl Fn(&mut Init) -> Box<dyn Module>,
    (input, labels): (Tensor, Tensor),
    torch_path: impl Fn(&str) -> String,
) {
    let mut compared = 0;
    for line in fixture.lines().filter(|line| line.starts_with("losses")) {
        let mut words = line.split(' ').skip(1);
        let rule = words.next().unwrap();
        let model = make(&mut Init::new(input.device(), DType::F64, 0));
        let parameters = model.parameters();
        fill(&parameters);
        let mut optimizer = rule_named(rule, parameters.clone());
        for expected in words {
            let loss = model.forward(&input).unwrap().cross_entropy(&labels, None).unwrap();
            loss.backward().unwrap();
            assert_near(loss.item().unwrap(), expected.parse().unwrap(), rule);
            if compared == 0 {
                compare_gradients(fixture, &parameters, &torch_path);
            }
            optimizer.step().unwrap();
            optimizer.zero_grad();
            compared += 1;
        }
    }
    assert_eq!(compared, 10, "two rules of five steps");
}

fn compare_gradients(fixture: &str, parameters: &[Parameter], torch_path: impl Fn(&str) -> String) {
    let expected: Vec<&str> = fixture.lines().filter_map(|line| line.strip_prefix("grad ")).collect();
    assert_eq!(expected.len(), parameters.len(), "as many parameters as PyTorch's model");
    for (parameter, line) in parameters.iter().zip(expected) {
        let words: Vec<&str> = line.split(' ').collect();
        assert_eq!(torch_path(&parameter.path), words[0], "the same order");
        let grad = parameter.tensor.grad().expect("every parameter has a gradient").to_vec::<f64>().unwrap();
        let weighted: f64 = grad.iter().enumerate().map(|(i, value)| value * (i as f64).cos()).sum();
        assert_near(grad.iter().sum(), words[1].parse().unwrap(), &parameter.path);
        assert_near(weighted, words[2].parse().unwrap(), &parameter.path);
    }
}

#[test]
fn a_vision_transformer_has_pytorchs_gradients_and_losses() {
    let device = Device::cpu();
    let block = EncoderSize { width: 8, heads: 2, hidden: 16, epsilon: 1e-6 };
    let size = VitSize { image: 8, patch: 4, layers: 2, block, classes: 3 };
    let make = |init: &mut Init| Box::new(VisionTransformer::new(init, size).unwrap()) as Box<dyn Module>;
    let labels = Tensor::from_slice(&[0_i64, 1, 2, 0], 4, &device).unwrap();
    train_like_pytorch(VIT, make, (input([4, 3, 8, 8], &device), labels), |path| {
        let path = path.replace("layers.", "layers.encoder_layer_").replace("in_proj.", "in_proj_");
        path.replace("mlp.fc1", "mlp.0").replace("mlp.fc2", "mlp.3")
    });
}

#[test]
fn a_perceptron_has_pytorchs_gradients_and_losses() {
    let device = Device::cpu();
    let make = |init: &mut Init| Box::new(Perceptron::new(init, [6, 10, 3], 2).unwrap()) as Box<dyn Module>;
    let labels = Tensor::from_slice(&[0_i64, 1, 2, 0, 1], 5, &device).unwrap();
    train_like_pytorch(PERCEPTRON, make, (input([5, 6], &device), labels), |path| {
        path.replace("head", "4").replace("layers.1", "2").replace("layers.0", "0")
    });
}

#[test]
fn vit_l_16_has_torchvisions_parameters_under_readable_paths() {
    let device = Device::accounting(2 << 30);
    let model = VisionTransformer::new(&mut Init::new(&device, DType::F32, 0), VitSize::L_16).unwrap();
    let parameters = model.parameters();
    assert_eq!(parameters.iter().map(|parameter| parameter.tensor.elements()).sum::<usize>(), 304_326_632);
    assert_eq!(device.allocator().stats().requested_bytes.all.current, 1_217_306_528);
    assert_eq!(parameters.len(), 296);
    let has = |path: &str| parameters.iter().any(|parameter| parameter.path == path);
    assert!(has("encoder.layers.3.mlp.fc1.weight") && has("encoder.layers.23.self_attention.in_proj.bias"));
}

#[test]
fn sizes_that_do_not_fit_are_refused_with_both_numbers() {
    let device = Device::accounting(1 << 30);
    let mut init = Init::new(&device, DType::F32, 0);
    let patch = VisionTransformer::new(&mut init, VitSize { patch: 5, ..VitSize::SMALL }).unwrap_err().to_string();
    assert!(patch.contains("patches of 5 pixels") && patch.contains("image of 32"), "{patch}");
    let block = EncoderSize { heads: 3, ..VitSize::SMALL.block };
    let heads = VisionTransformer::new(&mut init, VitSize { block, ..VitSize::SMALL }).unwrap_err().to_string();
    assert!(heads.contains("3 heads") && heads.contains("hidden size of 64"), "{heads}");
}

#[test]
fn parameters_begin_as_pytorchs_do_and_the_same_seed_repeats_them() {
    let device = Device::cpu();
    let made = |seed, filling| {
        let parameter = Init::new(&device, DType::F64, seed).parameter([100, 100], filling).unwrap();
        parameter.to_vec::<f64>().unwrap()
    };
    let even = made(1, Filling::kaiming_uniform(100));
    let largest = even.iter().fold(0.0, |largest: f64, number| largest.max(number.abs()));
    assert!((0.099..=0.1).contains(&largest), "within 1/√100: {largest}");
    let glorot = Filling::Uniform { bound: 0.1 };
    assert_eq!(Filling::xavier_uniform(200, 400), glorot);
    let normal = made(1, Filling::Normal { deviation: 0.02 });
    let deviation = (normal.iter().map(|number| number * number).sum::<f64>() / 1e4).sqrt();
    assert!((0.0195..0.0205).contains(&deviation), "{deviation}");
    assert_eq!(made(1, glorot), made(1, glorot));
    assert_ne!(made(1, glorot), made(2, glorot));
}

#[test]
fn an_embedding_looks_up_rows_and_only_these_get_a_gradient() {
    let device = Device::cpu();
    let embedding = Embedding::new(&mut Init::new(&device, DType::F64, 3), [4, 2]).unwrap();
    let table = embedding.weight().to_vec::<f64>().unwrap();
    let indices = Tensor::from_slice(&[2_i64, 0, 2], 3, &device).unwrap();
    let rows = embedding.forward(&indices).unwrap();
    let expected = [&table[4..6], &table[0..2], &table[4..6]].concat();
    assert_eq!(rows.to_vec::<f64>().unwrap(), expected);
    rows.sum().unwrap().backward().unwrap();
    let grad = embedding.weight().grad().unwrap().to_vec::<f64>().unwrap();
    assert_eq!(grad, [1.0, 1.0, 0.0, 0.0, 2.0, 2.0, 0.0, 0.0]);
}

#[test]
fn a_tensor_that_two_modules_share_is_one_parameter() {
    struct Twice(Linear);
    impl Module for Twice {
        fn forward(&self, input: &Tensor) -> highwater_engine::Result<Tensor> {
            self.0.forward(&self.0.forward(input)?)
        }

        fn visit(&self, visitor: &mut Visitor) {
            self.0.visit(visitor);
            self.0.visit(visitor);
        }
    }
    let device = Device::accounting(1 << 30);
    let model = Twice(Linear::new(&mut Init::new(&device, DType::F32, 0), [2, 2]).unwrap());
    let paths: Vec<String> = model.parameters().into_iter().map(|parameter| parameter.path).collect();
    assert_eq!(paths, ["weight", "bias"]);
}
