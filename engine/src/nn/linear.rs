//! Linear layer, y = x · Wᵀ + b.

use super::init::{Filling, Init};
use super::module::Module;
use crate::{Result, Tensor};

/// A weight matrix and a bias, applied to the last axis, which map `[…, inputs]` to `[…, outputs]`.
#[derive(Debug)]
pub struct Linear {
    weight: Tensor,
    bias: Option<Tensor>,
}

/// Initial values of a layer with weight and bias, such as [`Linear`] or a convolution.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinearFilling {
    /// Initial values of the weight.
    pub weight: Filling,
    /// Initial values of the bias; `None` for a layer without a bias.
    pub bias: Option<Filling>,
}

impl Linear {
    /// Creates a layer of `[inputs, outputs]` with a bias, initialized as in PyTorch.
    ///
    /// # Errors
    /// Fails if memory cannot be allocated.
    pub fn new(init: &mut Init, [inputs, outputs]: [usize; 2]) -> Result<Self> {
        let filling = Filling::kaiming_uniform(inputs);
        Self::filled(init, [inputs, outputs], LinearFilling { weight: filling, bias: Some(filling) })
    }

    /// Creates a layer of `[inputs, outputs]` without a bias, initialized as in PyTorch.
    ///
    /// # Errors
    /// Fails if memory cannot be allocated.
    pub fn without_bias(init: &mut Init, [inputs, outputs]: [usize; 2]) -> Result<Self> {
        let weight = Filling::kaiming_uniform(inputs);
        Self::filled(init, [inputs, outputs], LinearFilling { weight, bias: None })
    }

    /// Creates a layer of `[inputs, outputs]` initialized with `filling`.
    ///
    /// # Errors
    /// Fails if memory cannot be allocated.
    pub fn filled(init: &mut Init, [inputs, outputs]: [usize; 2], filling: LinearFilling) -> Result<Self> {
        Ok(Self {
            weight: init.parameter([outputs, inputs], filling.weight)?,
            bias: filling.bias.map(|bias| init.parameter(outputs, bias)).transpose()?,
        })
    }

    /// Returns the bias, `[outputs]`, if there is one.
    pub fn bias(&self) -> Option<&Tensor> {
        self.bias.as_ref()
    }

    /// Returns the weight, `[outputs, inputs]`.
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
