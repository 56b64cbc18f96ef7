//! The tasks in this engine.

use anyhow::{Context, Result};
use highwater_engine::backend::kind::Mask;
use highwater_engine::nn::{
    Child, Embedding, Filling, Init, LayerNorm, Linear, LinearFilling, Mlp, Module, MultiHeadAttention, Sequence,
    Visitor,
};
use highwater_engine::ops::attention::AttentionOptions;
use highwater_engine::optim::{AdamW, Optimizer, RuleOptimizer};
use highwater_engine::{DType, Device, Tensor};

use crate::task::{
    EPSILON, HEADS, NERF_INPUTS, NERF_LAYERS, NERF_OUTPUTS, POSITIONS, Phases, Task, Trainer, VOCABULARY, WIDTH,
};

/// A parameter's name, shape and values.
pub type Numbers = (String, Vec<usize>, Vec<f32>);

/// Creates a trainer, and returns it with its initial parameters.
pub fn trainer(task: &Task) -> Result<(Box<dyn Trainer>, Vec<Numbers>)> {
    let device = Device::cpu();
    let mut init = Init::new(&device, DType::F32, 1);
    match *task {
        Task::Gpt2 { layers, tokens } => {
            let numbers = Task::tokens(tokens);
            let inputs = [
                Tensor::from_slice(&numbers[..tokens], [1, tokens], &device)?,
                Tensor::from_slice(&numbers[1..], tokens, &device)?,
            ];
            let positions = Tensor::arange(tokens, 0.0, 1.0, DType::I64, &device)?;
            let model = Gpt2::new(&mut init, layers)?;
            train(model, move |model: &Gpt2| {
                let logits = model.logits(&inputs[0], &positions)?;
                Ok(logits.reshape([tokens, VOCABULARY])?.cross_entropy(&inputs[1], None)?)
            })
        }
        Task::TinyNerf { width, points } => {
            let input = Tensor::from_slice(&Task::numbers(points * NERF_INPUTS), [points, NERF_INPUTS], &device)?;
            let target = Tensor::from_slice(&Task::numbers(points * NERF_OUTPUTS), [points, NERF_OUTPUTS], &device)?;
            let model = Nerf::new(&mut init, width)?;
            train(model, move |model: &Nerf| Ok(model.forward(&input)?.sub(&target)?.square()?.mean()?))
        }
    }
}

struct Training<M, L> {
    model: M,
    loss: L,
    optimizer: RuleOptimizer<AdamW>,
}

fn train<M: Module + 'static>(
    model: M,
    loss: impl Fn(&M) -> Result<Tensor> + 'static,
) -> Result<(Box<dyn Trainer>, Vec<Numbers>)> {
    let mut numbers = Vec::new();
    for parameter in model.parameters() {
        numbers.push((parameter.path, parameter.tensor.shape().to_vec(), parameter.tensor.to_vec::<f32>()?));
    }
    let optimizer = RuleOptimizer::new(AdamW { learning_rate: 1e-4, ..AdamW::default() }, model.parameters())?;
    Ok((Box::new(Training { model, loss, optimizer }), numbers))
}

impl<M: Module, L: Fn(&M) -> Result<Tensor>> Trainer for Training<M, L> {
    fn step(&mut self) -> Result<(Phases, f64)> {
        Phases::time(
            || (self.loss)(&self.model),
            |loss| {
                loss.backward()?;
                Ok(loss)
            },
            |loss| {
                self.optimizer.step()?;
                self.optimizer.zero_grad();
                Ok(f64::from(*loss.to_vec::<f32>()?.first().context("a loss is one number")?))
            },
        )
    }
}

struct Gpt2 {
    tokens: Child<Embedding>,
    positions: Child<Embedding>,
    blocks: Child<Sequence<Block>>,
    norm: Child<LayerNorm>,
}

impl Gpt2 {
    fn new(init: &mut Init, layers: usize) -> Result<Self> {
        let normal = Filling::Normal { deviation: 0.02 };
        Ok(Self {
            tokens: Child::new("wte", init, |init| Embedding::filled(init, [VOCABULARY, WIDTH], normal))?,
            positions: Child::new("wpe", init, |init| Embedding::filled(init, [POSITIONS, WIDTH], normal))?,
            blocks: Child::new("h", init, |init| Sequence::new(layers, init, |_, init| Block::new(init)))?,
            norm: Child::new("ln_f", init, |init| LayerNorm::new(init, WIDTH, EPSILON))?,
        })
    }

    fn logits(&self, tokens: &Tensor, positions: &Tensor) -> highwater_engine::Result<Tensor> {
        let embedded = self.tokens.forward(tokens)?.into_add(&self.positions.forward(positions)?)?;
        let out = self.norm.forward(&self.blocks.forward(&embedded)?)?;
        self.tokens.run([out], |table, [out]| out.linear(table.weight(), None))
    }
}

impl Module for Gpt2 {
    fn forward(&self, tokens: &Tensor) -> highwater_engine::Result<Tensor> {
        let positions = Tensor::arange(tokens.shape()[1], 0.0, 1.0, DType::I64, tokens.device())?;
        self.logits(tokens, &positions)
    }

    fn visit(&self, visitor: &mut Visitor) {
        visitor.child(&self.tokens);
        visitor.child(&self.positions);
        visitor.child(&self.blocks);
        visitor.child(&self.norm);
    }
}

struct Block {
    ln_1: Child<LayerNorm>,
    attention: Child<MultiHeadAttention>,
    ln_2: Child<LayerNorm>,
    mlp: Child<Mlp>,
}

impl Block {
    fn new(init: &mut Init) -> highwater_engine::Result<Self> {
        let options = AttentionOptions { mask: Mask::Causal, ..AttentionOptions::default() };
        let filling = |_| LinearFilling { weight: Filling::Normal { deviation: 0.02 }, bias: Some(Filling::Zeros) };
        Ok(Self {
            ln_1: Child::new("ln_1", init, |init| LayerNorm::new(init, WIDTH, EPSILON))?,
            attention: Child::new("attn", init, |init| MultiHeadAttention::new(init, WIDTH, HEADS, options))?,
            ln_2: Child::new("ln_2", init, |init| LayerNorm::new(init, WIDTH, EPSILON))?,
            mlp: Child::new("mlp", init, |init| Mlp::new(init, [WIDTH, 4 * WIDTH], filling))?,
        })
    }
}

impl Module for Block {
    fn forward(&self, input: &Tensor) -> highwater_engine::Result<Tensor> {
        let attended = self.attention.forward(&self.ln_1.forward(input)?)?.into_add(input)?;
        self.mlp.forward(&self.ln_2.forward(&attended)?)?.into_add(&attended)
    }

    fn visit(&self, visitor: &mut Visitor) {
        visitor.child(&self.ln_1);
        visitor.child(&self.attention);
        visitor.child(&self.ln_2);
        visitor.child(&self.mlp);
    }
}

struct Nerf {
    layers: Child<Sequence<Linear>>,
    output: Child<Linear>,
}

impl Nerf {
    fn new(init: &mut Init, width: usize) -> Result<Self> {
        let layer = |index, init: &mut Init| Linear::new(init, [if index == 0 { NERF_INPUTS } else { width }, width]);
        Ok(Self {
            layers: Child::new("layers", init, |init| Sequence::new(NERF_LAYERS, init, layer))?,
            output: Child::new("output", init, |init| Linear::new(init, [width, NERF_OUTPUTS]))?,
        })
    }
}

impl Module for Nerf {
    fn forward(&self, input: &Tensor) -> highwater_engine::Result<Tensor> {
        let out = self.layers.run([input.clone()], |layers, [input]| {
            layers.iter().try_fold(input, |out, layer| layer.forward(&out)?.into_relu())
        })?;
        self.output.forward(&out)
    }

    fn visit(&self, visitor: &mut Visitor) {
        visitor.child(&self.layers);
        visitor.child(&self.output);
    }
}
