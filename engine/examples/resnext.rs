//! ResNeXt: trains a small image classifier of grouped, dilated convolutions and group norms on the CPU, and prints the
//! loss, the accuracy, and the share of images whose label is among the three best.
//!
//! `cargo run --release -p highwater-engine --example resnext`

use highwater_engine::nn::{Child, Conv2d, GroupNorm, Init, Linear, Module, Sequence};
use highwater_engine::ops::ConvOptions;
use highwater_engine::optim::{Optimizer, RuleOptimizer, Sgd};
use highwater_engine::{DType, Device, Result, Rng, Tensor, no_grad};

const CHANNELS: usize = 16;
const GROUPS: usize = 4;
const CLASSES: usize = 10;
const DILATIONS: [usize; 3] = [1, 2, 4];
const IMAGES: usize = 8;
const SIDE: usize = 16;

/// A residual block: a grouped, dilated 3×3 convolution and a 1×1 convolution, each after a group norm and a ReLU.
struct Block {
    norm1: Child<GroupNorm>,
    conv1: Child<Conv2d>,
    norm2: Child<GroupNorm>,
    conv2: Child<Conv2d>,
}

impl Block {
    fn new(init: &mut Init, dilation: usize) -> Result<Self> {
        let norm = |init: &mut Init| GroupNorm::new(init, [GROUPS, CHANNELS], 1e-5);
        let grouped =
            ConvOptions { padding: [dilation; 2], dilation: [dilation; 2], groups: GROUPS, ..ConvOptions::default() };
        Ok(Self {
            norm1: Child::new("norm1", init, norm)?,
            conv1: Child::new("conv1", init, |init| Conv2d::without_bias(init, [CHANNELS, CHANNELS, 3], grouped))?,
            norm2: Child::new("norm2", init, norm)?,
            conv2: Child::new("conv2", init, |init| {
                Conv2d::without_bias(init, [CHANNELS, CHANNELS, 1], ConvOptions::default())
            })?,
        })
    }
}

impl Module for Block {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let hidden = self.conv1.forward(&self.norm1.forward(x)?.into_relu()?)?;
        x + self.conv2.forward(&self.norm2.forward(&hidden)?.into_relu()?)
    }

    highwater_engine::visit_fields!(norm1, conv1, norm2, conv2);
}

/// The whole net: `[batch, 3, height, width]` to `[batch, CLASSES]`.
pub(crate) struct ResNeXt {
    stem: Child<Conv2d>,
    blocks: Child<Sequence<Block>>,
    head: Child<Linear>,
}

impl ResNeXt {
    pub(crate) fn new(init: &mut Init) -> Result<Self> {
        let halved = ConvOptions { stride: [2, 2], ..ConvOptions::default() };
        Ok(Self {
            stem: Child::new("stem", init, |init| Conv2d::new(init, [3, CHANNELS, 3], halved))?,
            blocks: Child::new("blocks", init, |init| {
                Sequence::new(DILATIONS.len(), init, |block, init| Block::new(init, DILATIONS[block]))
            })?,
            head: Child::new("head", init, |init| Linear::new(init, [CHANNELS, CLASSES]))?,
        })
    }
}

impl Module for ResNeXt {
    fn forward(&self, images: &Tensor) -> Result<Tensor> {
        // A row and a column of zeros below and on the right only.
        let stem = self.stem.forward(&images.pad(&[[0, 1], [0, 1]], 0.0)?)?;
        self.head.forward(&self.blocks.forward(&stem)?.mean_axes(&[2, 3])?)
    }

    highwater_engine::visit_fields!(stem, blocks, head);
}

/// The share of rows of `logits` whose largest is at their label, and whose label is among the `count` largest.
pub(crate) fn accuracies(logits: &Tensor, labels: &Tensor, count: usize) -> Result<[f64; 2]> {
    let _mode = no_grad();
    let first = logits.argmax(-1)?.eq(labels)?.to_dtype(DType::F64)?.mean()?;
    let (_, best) = logits.topk(count, -1)?;
    let among = best.eq(&labels.unsqueeze(-1)?)?.to_dtype(DType::F64)?.sum_axes(&[-1])?.mean()?;
    Ok([first.item()?, among.item()?])
}

#[expect(clippy::print_stdout, reason = "answers on its standard output")]
fn main() -> Result<()> {
    let device = Device::cpu();
    let model = ResNeXt::new(&mut Init::new(&device, DType::F32, 0))?;
    let rule = Sgd { learning_rate: 0.05, momentum: 0.9, ..Sgd::default() };
    let mut optimizer = RuleOptimizer::new(rule, model.parameters())?;
    let labels: Vec<i64> = (0..IMAGES as i64).collect();
    let labels = Tensor::from_slice(&labels, IMAGES, &device)?;
    let noise = Tensor::randn([IMAGES, 3, SIDE, SIDE], DType::F32, &device, &mut Rng::new(1))?;
    // Brighter images have greater labels.
    let images = (&noise * 0.2)? + (labels.to_dtype(DType::F32)? / 4.0)?.reshape([IMAGES, 1, 1, 1]);
    let images = images?;
    for step in 0..100 {
        let logits = model.forward(&images)?;
        let loss = logits.cross_entropy(&labels, None)?;
        loss.backward()?;
        optimizer.step()?;
        optimizer.zero_grad();
        if step % 10 == 9 {
            let [first, among] = accuracies(&logits, &labels, 3)?;
            println!("step {step}: loss {:.3}, accuracy {first:.2}, top 3 {among:.2}", loss.item()?);
        }
    }
    Ok(())
}
