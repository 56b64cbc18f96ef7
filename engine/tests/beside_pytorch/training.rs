//! Tests that complete training runs have PyTorch's losses at every step, as written by
//! `testdata/pytorch/training/make.py`.

use highwater_engine::autograd::no_recompute;
use highwater_engine::nn::{Child, Embedding, Init, LayerNorm, Linear, Module, Sequence, Visitor};
use highwater_engine::ops::{AttentionOptions, ConvOptions};
use highwater_engine::optim::{AdamW, Form, Optimizer, RuleOptimizer, Sgd};
use highwater_engine::{DType, Device, Result, Shape, Tensor, no_grad};

const TEXT: &[u8] = include_bytes!("../../testdata/pytorch/training/text.txt");
const LOSSES: &str = include_str!("../../testdata/pytorch/training/losses.json");

const LENGTH: usize = 24;
const WIDTH: usize = 32;
const HEADS: usize = 4;
const LAYERS: usize = 2;
const VOCABULARY: usize = 128;
const BATCH: usize = 4;
const STEPS: usize = 30;

/// A number from −1 up to but not including 1: the script's `chance`.
fn chance(i: usize) -> f64 {
    let mut mixed = (i as u32).wrapping_mul(2_654_435_761);
    mixed ^= mixed >> 15;
    mixed = mixed.wrapping_mul(2_246_822_519);
    mixed ^= mixed >> 13;
    f64::from(mixed) / f64::from(1_u32 << 31) - 1.0
}

/// Gives every parameter the script's numbers.
fn fill(model: &impl Module) -> Result<()> {
    let _mode = no_grad();
    let mut first = 0;
    for parameter in model.parameters() {
        let tensor = parameter.tensor;
        let is_scale = parameter.path.contains("norm") && parameter.path.ends_with("weight");
        let number = |i| if is_scale { 1.0 + 0.1 * chance(i) } else { 0.15 * chance(i) };
        let numbers: Vec<f64> = (first..first + tensor.elements()).map(number).collect();
        tensor.copy_(&Tensor::from_slice(&numbers, tensor.shape(), tensor.device())?)?;
        first += tensor.elements();
    }
    Ok(())
}

/// How a block's heads are made out of one linear layer's result.
#[derive(Clone, Copy)]
enum Heads {
    Packed,
    Apart,
}

struct Block {
    norm1: Child<LayerNorm>,
    qkv: Child<Linear>,
    out: Child<Linear>,
    norm2: Child<LayerNorm>,
    fc1: Child<Linear>,
    fc2: Child<Linear>,
    heads: Heads,
}

impl Block {
    fn new(init: &mut Init, heads: Heads) -> Result<Self> {
        let norm = |name: &str, init: &mut Init| Child::new(name, init, |init| LayerNorm::new(init, WIDTH, 1e-5));
        let linear = |name: &str, init: &mut Init, size| Child::new(name, init, |init| Linear::new(init, size));
        Ok(Self {
            norm1: norm("norm1", init)?,
            qkv: linear("qkv", init, [WIDTH, 3 * WIDTH])?,
            out: linear("out", init, [WIDTH, WIDTH])?,
            norm2: norm("norm2", init)?,
            fc1: linear("fc1", init, [WIDTH, 4 * WIDTH])?,
            fc2: linear("fc2", init, [4 * WIDTH, WIDTH])?,
            heads,
        })
    }

    fn attention(&self, input: &Tensor) -> Result<Tensor> {
        let qkv = self.qkv.forward(input)?;
        if let Heads::Packed = self.heads {
            return qkv.attention_packed(HEADS, HEADS, AttentionOptions::causal());
        }
        let part = |index: usize| {
            let part = qkv.narrow(-1, index * WIDTH, WIDTH)?;
            part.reshape([BATCH, LENGTH, HEADS, WIDTH / HEADS])?.transpose(1, 2)
        };
        let mixed = Tensor::attention(&part(0)?, &part(1)?, &part(2)?, AttentionOptions::causal())?;
        mixed.transpose(1, 2)?.reshape([BATCH, LENGTH, WIDTH])
    }
}

impl Module for Block {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        let input = input.add(&self.out.forward(&self.attention(&self.norm1.forward(input)?)?)?)?;
        let hidden = self.fc1.forward(&self.norm2.forward(&input)?)?.gelu()?;
        input.add(&self.fc2.forward(&hidden)?)
    }

    highwater_engine::visit_fields!(norm1, qkv, out, norm2, fc1, fc2);
}

struct Gpt {
    tokens: Child<Embedding>,
    places: Child<Embedding>,
    blocks: Child<Sequence<Block>>,
    norm: Child<LayerNorm>,
}

impl Gpt {
    fn new(init: &mut Init, heads: Heads) -> Result<Self> {
        Ok(Self {
            tokens: Child::new("tokens", init, |init| Embedding::new(init, [VOCABULARY, WIDTH]))?,
            places: Child::new("places", init, |init| Embedding::new(init, [LENGTH, WIDTH]))?,
            blocks: Child::new("blocks", init, |init| Sequence::new(LAYERS, init, |_, init| Block::new(init, heads)))?,
            norm: Child::new("norm", init, |init| LayerNorm::new(init, WIDTH, 1e-5))?,
        })
    }
}

impl Module for Gpt {
    fn forward(&self, tokens: &Tensor) -> Result<Tensor> {
        let input = self.tokens.forward(tokens)?.add(self.places.weight())?;
        self.norm.forward(&self.blocks.forward(&input)?)?.linear(self.tokens.weight(), None)
    }

    highwater_engine::visit_fields!(tokens, places, blocks, norm);
}

/// The loss of every step of a language model.
fn gpt(dtype: DType, heads: Heads, form: Form) -> Result<Vec<f64>> {
    let device = Device::cpu();
    let model = Gpt::new(&mut Init::new(&device, dtype, 0), heads)?;
    fill(&model)?;
    let rule = AdamW { learning_rate: 3e-3, weight_decay: 0.1, form, ..AdamW::default() };
    let step = |step: usize| {
        let starts = (0..BATCH).map(|row| (step * BATCH + row) * 37 % (TEXT.len() - LENGTH - 1));
        let windows: Vec<&[u8]> = starts.map(|start| &TEXT[start..=start + LENGTH]).collect();
        let tokens = |first: usize, shape: Shape| {
            let bytes = windows.iter().flat_map(|window| &window[first..first + LENGTH]);
            Tensor::from_slice(&bytes.map(|&byte| i64::from(byte)).collect::<Vec<_>>(), shape, &device)
        };
        let logits = model.forward(&tokens(0, [BATCH, LENGTH].into())?)?.reshape([BATCH * LENGTH, VOCABULARY])?;
        logits.cross_entropy(&tokens(1, [BATCH * LENGTH].into())?, None)
    };
    train(RuleOptimizer::new(rule, model.parameters())?, step)
}

struct Convolutions([Tensor; 6]);

impl Convolutions {
    fn new(dtype: DType, device: &Device) -> Result<Self> {
        let zeros = |shape: &[usize]| Tensor::zeros(Shape::from_slice(shape)?, dtype, device);
        let tensors =
            [zeros(&[6, 3, 3, 3])?, zeros(&[6])?, zeros(&[8, 6, 3, 3])?, zeros(&[8])?, zeros(&[5, 8])?, zeros(&[5])?];
        tensors.iter().try_for_each(|tensor| tensor.set_requires_grad(true))?;
        Ok(Self(tensors))
    }
}

impl Module for Convolutions {
    fn forward(&self, images: &Tensor) -> Result<Tensor> {
        let [w1, b1, w2, b2, w3, b3] = &self.0;
        let padded = ConvOptions { padding: [1, 1], ..ConvOptions::default() };
        let edges = images.conv2d(w1, Some(b1), padded)?.into_relu()?;
        let parts = edges.conv2d(w2, Some(b2), ConvOptions { stride: [2, 2], ..padded })?.gelu()?;
        parts.mean_axes(&[2, 3])?.linear(w3, Some(b3))
    }

    fn visit(&self, visitor: &mut Visitor) {
        for (tensor, name) in self.0.iter().zip(["w1", "b1", "w2", "b2", "w3", "b3"]) {
            visitor.parameter(name, tensor);
        }
    }
}

/// The loss of every step of an image classifier.
fn convolutions(dtype: DType) -> Result<Vec<f64>> {
    const SHAPE: [usize; 4] = [10, 3, 7, 8];
    let device = Device::cpu();
    let model = Convolutions::new(dtype, &device)?;
    fill(&model)?;
    let labels: Vec<i64> = (0..10).map(|image| image % 5).collect();
    let targets = Tensor::from_slice(&labels, 10, &device)?;
    let rule = Sgd { learning_rate: 0.05, momentum: 0.9, nesterov: true, weight_decay: 1e-3, ..Sgd::default() };
    let step = |step: usize| {
        let count = SHAPE.iter().product::<usize>();
        let pixel = |i: usize| chance(1_000_000 + step % 3 * count + i) + labels[i * 10 / count] as f64 / 2.0;
        let pixels: Vec<f64> = (0..count).map(pixel).collect();
        let images = Tensor::from_slice(&pixels, SHAPE, &device)?.to_dtype(dtype)?;
        model.forward(&images)?.cross_entropy(&targets, None)
    };
    train(RuleOptimizer::new(rule, model.parameters())?, step)
}

fn train(mut optimizer: impl Optimizer, loss: impl Fn(usize) -> Result<Tensor>) -> Result<Vec<f64>> {
    let mut losses = Vec::new();
    for step in 0..STEPS {
        let loss = loss(step)?;
        loss.backward()?;
        losses.push(loss.item()?);
        optimizer.step()?;
        optimizer.zero_grad();
    }
    Ok(losses)
}

/// Fails unless the losses are PyTorch's, to `tolerance` of each.
fn assert_losses(network: &str, dtype: DType, found: &[f64], tolerance: f64) {
    let file: serde_json::Value = serde_json::from_str(LOSSES).expect("the script writes JSON");
    let losses = file[network][dtype.name()].as_array().expect("a list of losses");
    assert_eq!(found.len(), losses.len());
    for (step, (found, expected)) in found.iter().zip(losses).enumerate() {
        let expected = expected.as_f64().expect("a number");
        let off = (found - expected).abs() / expected;
        assert!(off <= tolerance, "{network} in {dtype}, step {step}: {found} in place of {expected}, {off:e} off");
    }
}

#[test]
fn a_language_model_trains_as_in_pytorch() {
    for (heads, form) in [(Heads::Packed, Form::Foreach), (Heads::Apart, Form::PerTensor)] {
        assert_losses("gpt", DType::F64, &gpt(DType::F64, heads, form).unwrap(), 1e-11);
        assert_losses("gpt", DType::F32, &gpt(DType::F32, heads, form).unwrap(), 1e-5);
    }
}

#[test]
fn what_backward_computes_again_is_what_it_would_have_kept() {
    let again = gpt(DType::F32, Heads::Packed, Form::Foreach).unwrap();
    let _kept = no_recompute();
    assert_eq!(gpt(DType::F32, Heads::Packed, Form::Foreach).unwrap(), again);
}

#[test]
fn a_convolution_net_trains_as_in_pytorch() {
    assert_losses("convolutions", DType::F64, &convolutions(DType::F64).unwrap(), 1e-11);
    assert_losses("convolutions", DType::F32, &convolutions(DType::F32).unwrap(), 1e-5);
}
