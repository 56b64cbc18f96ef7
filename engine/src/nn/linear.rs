//! Linear layer: y = x · Wᵀ + b.

use super::init::{Filling, Init};
use super::module::Module;
use crate::error::Result;
use crate::tensor::Tensor;

/// A matrix and a bias, applied to the last axis: `[…, inputs]` to `[…, outputs]`.
#[derive(Debug)]
pub struct Linear {
    weight: Tensor,
    bias: Option<Tensor>,
}

/// What a linear layer, such as [`Linear`] or a convolution, begins with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinearFilling {
    /// The weight's numbers.
    pub weight: Filling,
    /// The bias's; none for a layer without.
    pub bias: Option<Filling>,
}

impl Linear {
    /// A layer of `[inputs, outputs]` with a bias, filled as PyTorch's.
    pub fn new(init: &mut Init, [inputs, outputs]: [usize; 2]) -> Result<Self> {
        let filling = Filling::kaiming_uniform(inputs);
        Self::filled(init, [inputs, outputs], LinearFilling { weight: filling, bias: Some(filling) })
    }

    /// A layer of `[inputs, outputs]` that begins with `filling`.
    pub fn filled(init: &mut Init, [inputs, outputs]: [usize; 2], filling: LinearFilling) -> Result<Self> {
        Ok(Self {
            weight: init.parameter([outputs, inputs], filling.weight)?,
            bias: filling.bias.map(|bias| init.parameter(outputs, bias)).transpose()?,
        })
    }

    /// The bias, `[outputs]`, if there is one.
    pub fn bias(&self) -> Option<&Tensor> {
        self.bias.as_ref()
    }

    /// The matrix, `[outputs, inputs]`.
    pub fn weight(&self) -> &Tensor {
        &self.weight
    }
}

impl Module for Linear {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        input.linear(&self.weight, self.bias.as_ref())
    }

    crate::visit_fields!(weight, bias);
}
