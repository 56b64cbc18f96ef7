//! Pre-norm transformer encoder block.

use super::attention::MultiHeadAttention;
use super::init::{Filling, Init};
use super::linear::LinearFilling;
use super::mlp::Mlp;
use super::module::{Child, Module};
use super::norm::LayerNorm;
use crate::ops::attention::AttentionOptions;
use crate::{Result, Tensor};

/// Sizes of an encoder block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EncoderSize {
    /// Hidden size.
    pub width: usize,
    /// Number of attention heads, which must divide the hidden size.
    pub heads: usize,
    /// Hidden size of the MLP.
    pub hidden: usize,
    /// Added to variances for numerical stability.
    pub epsilon: f64,
}

/// `y = x + attention(norm(x))`, then `y + mlp(norm(y))`, the block of vision transformers (Dosovitskiy et al., 2021),
/// with torchvision's names and initialization.
#[derive(Debug)]
pub struct EncoderBlock {
    ln_1: Child<LayerNorm>,
    self_attention: Child<MultiHeadAttention>,
    ln_2: Child<LayerNorm>,
    mlp: Child<Mlp>,
}

impl EncoderBlock {
    /// Creates a block of these sizes with bidirectional attention.
    ///
    /// # Errors
    /// Fails if the number of heads does not divide the hidden size, or if memory cannot be allocated.
    pub fn new(init: &mut Init, size: EncoderSize) -> Result<Self> {
        let EncoderSize { width, heads, hidden, epsilon } = size;
        let filling = |[inputs, outputs]: [usize; 2]| LinearFilling {
            weight: Filling::xavier_uniform(inputs, outputs),
            bias: Some(Filling::Normal { deviation: 1e-6 }),
        };
        let attention = |init: &mut Init| MultiHeadAttention::new(init, width, heads, AttentionOptions::default());
        Ok(Self {
            ln_1: Child::new("ln_1", init, |init| LayerNorm::new(init, width, epsilon))?,
            self_attention: Child::new("self_attention", init, attention)?,
            ln_2: Child::new("ln_2", init, |init| LayerNorm::new(init, width, epsilon))?,
            mlp: Child::new("mlp", init, |init| Mlp::new(init, [width, hidden], filling))?,
        })
    }
}

impl Module for EncoderBlock {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        // Each branch adds the residual in place, because its result is not used otherwise.
        let attended = self.self_attention.forward(&self.ln_1.forward(input)?)?.into_add(input)?;
        self.mlp.forward(&self.ln_2.forward(&attended)?)?.into_add(&attended)
    }

    crate::visit_fields!(ln_1, self_attention, ln_2, mlp);
}
