//! LoRA, frozen linear layers with trainable low-rank adapters (Hu et al.: "LoRA", 2021).

use super::init::{Filling, Init};
use super::linear::{Linear, LinearFilling};
use super::module::{Child, Module, Visitor};
use crate::{DType, Error, Result, Tensor};

/// Settings for LoRA, with the layers that get an adapter, and its rank, scale and dtype.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LoraOptions {
    /// Rank of the adapters: the number of rows of `A` and of columns of `B`.
    pub rank: usize,
    /// Numerator of the scale. The adapter's output is multiplied by `alpha / rank`.
    pub alpha: f64,
    /// Dtype of `A` and `B`, such as f32 for a bf16 model; `None` for the model's dtype.
    pub dtype: Option<DType>,
    /// Names of the layers within their blocks, such as `q_proj`.
    pub targets: &'static [&'static str],
}

impl LoraOptions {
    /// Returns settings for adapters of rank `rank` and scale 2, in the model's dtype, for the layers named in
    /// `targets`.
    pub fn new(rank: usize, targets: &'static [&'static str]) -> Self {
        Self { rank, alpha: 2.0 * rank as f64, dtype: None, targets }
    }

    /// Fails unless there is at least one target and every target is in `known`.
    pub(crate) fn check(&self, known: &[&str]) -> Result<()> {
        let unknown = self.targets.iter().find(|target| !known.contains(target));
        let what = match unknown {
            Some(target) => format!("no layer named '{target}': expected one of {}", known.join(", ")),
            None if self.targets.is_empty() => format!("no target layers: expected some of {}", known.join(", ")),
            None => return Ok(()),
        };
        Err(Error::Setting { op: "lora", what })
    }
}

/// A frozen linear layer with a low-rank adapter, `base(x) + (alpha / rank) · (x · Aᵀ) · Bᵀ`. `B` is initialized to
/// zeros, so the layer initially computes the same as its base.
#[derive(Debug)]
pub struct LoraLinear {
    base: Child<Linear>,
    a: Tensor,
    b: Tensor,
    scale: f64,
}

impl LoraLinear {
    /// Creates a layer of `[inputs, outputs]`. The frozen base is initialized with `filling`, and `A` and `B` as in
    /// PEFT.
    ///
    /// # Errors
    /// Fails if the rank is 0, or if memory cannot be allocated.
    pub fn new(
        init: &mut Init,
        [inputs, outputs]: [usize; 2],
        filling: LinearFilling,
        options: &LoraOptions,
    ) -> Result<Self> {
        let LoraOptions { rank, alpha, dtype, .. } = *options;
        if rank == 0 {
            return Err(Error::Setting { op: "lora", what: "invalid rank 0: expected at least 1".to_owned() });
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

/// A linear layer of a model that supports fine-tuning, with or without a LoRA adapter.
#[derive(Debug)]
pub enum Projection {
    /// A layer without an adapter.
    Plain(Linear),
    /// A frozen layer with an adapter.
    Lora(LoraLinear),
}

impl Projection {
    /// Creates the layer called `name` in its parent, with an adapter if `name` is one of the targets of `lora`.
    ///
    /// # Errors
    /// Fails if the rank is 0, or if memory cannot be allocated.
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
