//! Layer normalization and RMS normalization.

use super::init::{Filling, Init};
use super::module::Module;
use crate::error::Result;
use crate::tensor::Tensor;

/// Layer normalization: normalizes the last axis to mean 0 and variance 1, then scales and shifts it (Ba, Kiros and
/// Hinton, 2016).
#[derive(Debug)]
pub struct LayerNorm {
    weight: Tensor,
    bias: Tensor,
    epsilon: f64,
}

impl LayerNorm {
    /// Creates a layer for a last axis of `width`; `epsilon` is added to the variance (PyTorch's default is 1e-5).
    ///
    /// # Errors
    /// If memory cannot be allocated.
    pub fn new(init: &mut Init, width: usize, epsilon: f64) -> Result<Self> {
        Ok(Self {
            weight: init.parameter(width, Filling::Ones)?,
            bias: init.parameter(width, Filling::Zeros)?,
            epsilon,
        })
    }
}

impl Module for LayerNorm {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        input.layer_norm(Some(&self.weight), Some(&self.bias), self.epsilon)
    }

    crate::visit_fields!(weight, bias);
}

/// RMS normalization: divides the last axis by its root mean square, then scales it (Zhang and Sennrich, 2019).
#[derive(Debug)]
pub struct RmsNorm {
    weight: Tensor,
    epsilon: f64,
}

impl RmsNorm {
    /// Creates a layer for a last axis of `width`; `epsilon` is added to the mean square.
    ///
    /// # Errors
    /// If memory cannot be allocated.
    pub fn new(init: &mut Init, width: usize, epsilon: f64) -> Result<Self> {
        Ok(Self { weight: init.parameter(width, Filling::Ones)?, epsilon })
    }
}

impl Module for RmsNorm {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        input.rms_norm(Some(&self.weight), self.epsilon)
    }

    crate::visit_fields!(weight);
}
