//! Layer normalization, RMS normalization and group normalization.

use super::init::{Filling, Init};
use super::module::Module;
use crate::ops::columns::check_groups;
use crate::{Result, Tensor};

/// Layer normalization, which normalizes the last axis to mean 0 and variance 1, then scales and shifts it (Ba, Kiros
/// and Hinton, 2016).
#[derive(Debug)]
pub struct LayerNorm {
    weight: Tensor,
    bias: Tensor,
    epsilon: f64,
}

impl LayerNorm {
    /// Creates a layer for a last axis of `width`. `epsilon` is added to the variance (PyTorch's default is 1e-5).
    ///
    /// # Errors
    /// Fails if memory cannot be allocated.
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

/// RMS normalization, which divides the last axis by its root mean square, then scales it (Zhang and Sennrich, 2019).
#[derive(Debug)]
pub struct RmsNorm {
    weight: Tensor,
    epsilon: f64,
}

impl RmsNorm {
    /// Creates a layer for a last axis of `width`. `epsilon` is added to the mean square.
    ///
    /// # Errors
    /// Fails if memory cannot be allocated.
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

/// Group normalization of `[batch, channels, …]`, which normalizes groups of channels of each example to mean 0 and
/// variance 1, then scales and shifts each channel (Wu and He, 2018). It is the same in training and in inference.
#[derive(Debug)]
pub struct GroupNorm {
    weight: Tensor,
    bias: Tensor,
    groups: usize,
    epsilon: f64,
}

impl GroupNorm {
    /// Creates a layer of size `[groups, channels]`. `epsilon` is added to the variance (PyTorch's default is 1e-5).
    ///
    /// # Errors
    /// Fails if the channels cannot be divided into the groups, or if memory cannot be allocated.
    pub fn new(init: &mut Init, [groups, channels]: [usize; 2], epsilon: f64) -> Result<Self> {
        check_groups("GroupNorm", channels, groups)?;
        Ok(Self {
            weight: init.parameter(channels, Filling::Ones)?,
            bias: init.parameter(channels, Filling::Zeros)?,
            groups,
            epsilon,
        })
    }
}

impl Module for GroupNorm {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        input.group_norm(self.groups, Some(&self.weight), Some(&self.bias), self.epsilon)
    }

    crate::visit_fields!(weight, bias);
}
