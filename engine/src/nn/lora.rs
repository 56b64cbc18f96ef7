//! LoRA: frozen linear layers with trained low-rank corrections (Hu et al.: "LoRA", 2021).

use super::init::{Filling, Init};
use super::linear::{Linear, LinearFilling};
use super::module::{Child, Module, Visitor};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::tensor::Tensor;

/// Which layers of a model are corrected, and how.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LoraOptions {
    /// Rows of the correction's inner matrix.
    pub rank: usize,
    /// The correction is scaled by `alpha / rank`.
    pub alpha: f64,
    /// The corrections' own type, as f32 over a bf16 model; the model's if none is given.
    pub dtype: Option<DType>,
    /// The layers' names within their blocks, as `q_proj`.
    pub targets: &'static [&'static str],
}

impl LoraOptions {
    /// Corrections of rank `rank` and scale 2, in the model's type, of the layers called `targets`.
    pub fn new(rank: usize, targets: &'static [&'static str]) -> Self {
        Self { rank, alpha: 2.0 * rank as f64, dtype: None, targets }
    }

    /// Fails unless every target is among `known`, and there is at least one.
    pub(crate) fn check(&self, known: &[&str]) -> Result<()> {
        let unknown = self.targets.iter().find(|target| !known.contains(target));
        let what = match unknown {
            Some(target) => format!("no layer is called {target}; there are {}", known.join(", ")),
            None if self.targets.is_empty() => format!("no layer is named; give some of {}", known.join(", ")),
            None => return Ok(()),
        };
        Err(Error::Setting { op: "lora", what })
    }
}

/// A frozen linear layer and its correction: `base(x) + (alpha / rank) · (x · Aᵀ) · Bᵀ`. `B` begins with zeros, so that
/// nothing changes before training.
#[derive(Debug)]
pub struct LoraLinear {
    base: Child<Linear>,
    a: Tensor,
    b: Tensor,
    scale: f64,
}

impl LoraLinear {
    /// A layer of `[inputs, outputs]` whose frozen part begins with `filling`, and its correction as PEFT's. Fails if
    /// the rank is 0.
    pub fn new(
        init: &mut Init,
        [inputs, outputs]: [usize; 2],
        filling: LinearFilling,
        options: &LoraOptions,
    ) -> Result<Self> {
        let LoraOptions { rank, alpha, dtype, .. } = *options;
        if rank == 0 {
            return Err(Error::Setting { op: "lora", what: "the rank is 0; expected at least 1".to_owned() });
        }
        let base = |init: &mut Init| init.frozen(|init| Linear::filled(init, [inputs, outputs], filling));
        let base = Child::new("base_layer", init, base)?;
        init.trained(dtype.unwrap_or(init.dtype()), |init| {
            let a = init.parameter([rank, inputs], Filling::kaiming_uniform(inputs))?;
            let b = init.parameter([outputs, rank], Filling::Zeros)?;
            Ok(Self { base, a, b, scale: alpha / rank as f64 })
        })
    }
}

impl Module for LoraLinear {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        if input.rank() == 1 {
            return self.forward(&input.unsqueeze(0)?)?.squeeze(0);
        }
        self.base.forward(input)?.into_lora(input, &self.a, &self.b, self.scale)
    }

    fn visit(&self, visitor: &mut Visitor) {
        visitor.child(&self.base);
        visitor.parameter("lora_A.weight", &self.a);
        visitor.parameter("lora_B.weight", &self.b);
    }
}

/// A linear layer of a model that may be fine-tuned: plain, or frozen and corrected.
#[derive(Debug)]
pub enum Projection {
    /// As it is.
    Plain(Linear),
    /// With a correction.
    Lora(LoraLinear),
}

impl Projection {
    /// The layer that its parent calls `name`, corrected if `lora` names it.
    pub fn named(
        name: &str,
        init: &mut Init,
        size: [usize; 2],
        filling: LinearFilling,
        lora: Option<&LoraOptions>,
    ) -> Result<Child<Self>> {
        Child::new(name, init, |init| match lora.filter(|lora| lora.targets.contains(&name)) {
            Some(lora) => LoraLinear::new(init, size, filling, lora).map(Self::Lora),
            None => Linear::filled(init, size, filling).map(Self::Plain),
        })
    }
}

impl Module for Projection {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        match self {
            Self::Plain(linear) => linear.forward(input),
            Self::Lora(linear) => linear.forward(input),
        }
    }

    fn visit(&self, visitor: &mut Visitor) {
        match self {
            Self::Plain(linear) => linear.visit(visitor),
            Self::Lora(linear) => linear.visit(visitor),
        }
    }
}
