//! Random blocks of layers for [`RandomNet`](crate::random_net::RandomNet).

use highwater_engine::nn::{
    BatchNorm2d, Child, Conv2d, Dropout, Init, LayerNorm, Linear, MaxPool2d, Module, RmsNorm, Visitor,
};
use highwater_engine::ops::{ConvOptions, PoolOptions};
use highwater_engine::{Result, Tensor};

/// A generator of numbers (xorshift).
#[derive(Clone, Debug)]
pub(crate) struct Numbers(pub(crate) u64);

impl Numbers {
    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end as u64) as usize
    }

    pub(crate) fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
}

/// What a random net consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetKind {
    /// Blocks with at least one hidden layer, which end with a linear layer, as those of transformers do.
    Perceptron,
    /// Blocks of layers in any order, also of convolutions.
    Any,
}

/// What a block does, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PartSize {
    Linear(usize, usize),
    LayerNorm(usize),
    RmsNorm(usize),
    Conv(usize, usize),
    BatchNorm(usize),
    Pool,
    Dropout,
    Function(Function),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Function {
    Relu,
    Gelu,
    Silu,
    Tanh,
    Square,
    Softmax,
}

/// The layers of a block.
#[derive(Clone, Debug)]
pub(crate) struct BlockSize {
    parts: Vec<PartSize>,
    /// Whether the input is added to the result.
    is_residual: bool,
}

/// A block of `[batch, width]`.
pub(crate) fn vectors(numbers: &mut Numbers, kind: NetKind, [width, wider]: [usize; 2]) -> BlockSize {
    let mut parts = Vec::new();
    match numbers.below(4) {
        0 => parts.push(PartSize::LayerNorm(width)),
        1 => parts.push(PartSize::RmsNorm(width)),
        _ => {}
    }
    let mut now = width;
    let fewest = usize::from(kind == NetKind::Perceptron);
    for _ in 0..fewest + numbers.below(3) {
        let next = numbers.one_of(&[now, 16, 64, 96]);
        parts.push(PartSize::Linear(now, next));
        parts.push(PartSize::Function(function(numbers)));
        if numbers.below(3) == 0 {
            parts.push(PartSize::Function(function(numbers)));
        }
        now = next;
    }
    if numbers.below(4) == 0 {
        parts.push(PartSize::Dropout);
    }
    parts.push(PartSize::Linear(now, wider));
    if kind != NetKind::Perceptron && numbers.below(2) == 0 {
        parts.push(PartSize::Function(function(numbers)));
    }
    BlockSize { parts, is_residual: width == wider && numbers.below(2) == 0 }
}

/// A block of `[batch, channels, height, width]`.
pub(crate) fn images(numbers: &mut Numbers, [width, wider]: [usize; 2], may_shrink: bool) -> BlockSize {
    let mut parts = Vec::new();
    let mut now = width;
    for position in 0..=numbers.below(3) {
        let next = if position == 0 { wider } else { now };
        parts.push(PartSize::Conv(now, next));
        if numbers.below(3) > 0 {
            parts.push(PartSize::BatchNorm(next));
        }
        if numbers.below(3) > 0 {
            parts.push(PartSize::Function(numbers.one_of(&[Function::Relu, Function::Silu, Function::Tanh])));
        }
        now = next;
    }
    let is_residual = width == wider && !may_shrink && numbers.below(2) == 0;
    if may_shrink {
        parts.push(PartSize::Pool);
    }
    BlockSize { parts, is_residual }
}

fn function(numbers: &mut Numbers) -> Function {
    use Function::{Gelu, Relu, Silu, Softmax, Square, Tanh};
    numbers.one_of(&[Relu, Gelu, Silu, Tanh, Square, Softmax])
}

/// A block with its parameters.
#[derive(Debug)]
pub(crate) struct Block {
    parts: Vec<Part>,
    is_residual: bool,
}

#[derive(Debug)]
enum Part {
    Linear(Child<Linear>),
    LayerNorm(Child<LayerNorm>),
    RmsNorm(Child<RmsNorm>),
    Conv(Child<Conv2d>),
    BatchNorm(Child<BatchNorm2d>),
    Pool(Child<MaxPool2d>),
    Dropout(Child<Dropout>),
    Function(Function),
}

impl Block {
    pub(crate) fn new(init: &mut Init, size: &BlockSize) -> Result<Self> {
        let part = |(position, part): (usize, &PartSize)| {
            let name = position.to_string();
            Ok(match *part {
                PartSize::Linear(from, to) => {
                    Part::Linear(Child::new(name, init, |init| Linear::new(init, [from, to]))?)
                }
                PartSize::LayerNorm(width) => {
                    Part::LayerNorm(Child::new(name, init, |init| LayerNorm::new(init, width, 1e-5))?)
                }
                PartSize::RmsNorm(width) => {
                    Part::RmsNorm(Child::new(name, init, |init| RmsNorm::new(init, width, 1e-5))?)
                }
                PartSize::Conv(from, to) => {
                    let options = ConvOptions { padding: [1, 1], ..ConvOptions::default() };
                    Part::Conv(Child::new(name, init, |init| Conv2d::new(init, [from, to, 3], options))?)
                }
                PartSize::BatchNorm(width) => {
                    Part::BatchNorm(Child::new(name, init, |init| BatchNorm2d::new(init, width))?)
                }
                PartSize::Pool => Part::Pool(Child::new(name, init, |_| Ok(MaxPool2d(PoolOptions::square(2))))?),
                PartSize::Dropout => Part::Dropout(Child::new(name, init, |init| Ok(Dropout::new(init, 0.1)))?),
                PartSize::Function(function) => Part::Function(function),
            })
        };
        let parts = size.parts.iter().enumerate().map(part).collect::<Result<_>>()?;
        Ok(Self { parts, is_residual: size.is_residual })
    }
}

impl Module for Block {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        let mut hidden = input.clone();
        for part in &self.parts {
            hidden = match part {
                Part::Linear(layer) => layer.forward(&hidden)?,
                Part::LayerNorm(layer) => layer.forward(&hidden)?,
                Part::RmsNorm(layer) => layer.forward(&hidden)?,
                Part::Conv(layer) => layer.forward(&hidden)?,
                Part::BatchNorm(layer) => layer.forward(&hidden)?,
                Part::Pool(layer) => layer.forward(&hidden)?,
                Part::Dropout(layer) => layer.forward(&hidden)?,
                Part::Function(Function::Relu) => hidden.into_relu()?,
                Part::Function(Function::Gelu) => hidden.gelu()?,
                Part::Function(Function::Silu) => hidden.silu()?,
                Part::Function(Function::Tanh) => hidden.tanh()?,
                Part::Function(Function::Square) => hidden.square()?,
                Part::Function(Function::Softmax) => hidden.softmax(-1)?,
            };
        }
        if self.is_residual { hidden.into_add(input) } else { Ok(hidden) }
    }

    fn visit(&self, visitor: &mut Visitor) {
        for part in &self.parts {
            match part {
                Part::Linear(layer) => visitor.child(layer),
                Part::LayerNorm(layer) => visitor.child(layer),
                Part::RmsNorm(layer) => visitor.child(layer),
                Part::Conv(layer) => visitor.child(layer),
                Part::BatchNorm(layer) => visitor.child(layer),
                Part::Pool(layer) => visitor.child(layer),
                Part::Dropout(layer) => visitor.child(layer),
                Part::Function(_) => {}
            }
        }
    }
}
