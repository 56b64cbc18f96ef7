//! Multi-head self-attention (Vaswani et al., 2017).

use super::init::{Filling, Init};
use super::linear::{Linear, LinearFilling};
use super::module::{Child, Module};
use crate::ops::attention::AttentionOptions;
use crate::{Error, Result, Tensor};

/// Self-attention, which maps `[batch, length, width]` to the same shape. One matrix product computes queries, keys and
/// values as one packed tensor, and their gradients are written to one buffer.
#[derive(Debug)]
pub struct MultiHeadAttention {
    in_proj: Child<Linear>,
    out_proj: Child<Linear>,
    heads: usize,
    options: AttentionOptions,
}

impl MultiHeadAttention {
    /// Creates a layer of width `width` with `heads` heads, initialized like PyTorch's `MultiheadAttention`.
    ///
    /// # Errors
    /// Fails if `width` is not divisible by `heads`, or if memory cannot be allocated.
    pub fn new(init: &mut Init, width: usize, heads: usize, options: AttentionOptions) -> Result<Self> {
        if heads == 0 || !width.is_multiple_of(heads) {
            let what = format!("{heads} heads cannot evenly split a hidden size of {width}; give a divisor of it");
            return Err(Error::Setting { op: "attention", what });
        }
        let packed = LinearFilling { weight: Filling::xavier_uniform(width, 3 * width), bias: Some(Filling::Zeros) };
        let output = LinearFilling { weight: Filling::kaiming_uniform(width), bias: Some(Filling::Zeros) };
        Ok(Self {
            in_proj: Child::new("in_proj", init, |init| Linear::filled(init, [width, 3 * width], packed))?,
            out_proj: Child::new("out_proj", init, |init| Linear::filled(init, [width, width], output))?,
            heads,
            options,
        })
    }
}

impl Module for MultiHeadAttention {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        let mixed = self.in_proj.forward(input)?.attention_packed(self.heads, self.heads, self.options)?;
        self.out_proj.forward(&mixed)
    }

    crate::visit_fields!(in_proj, out_proj);
}
