//! Batch normalization, which uses batch statistics in training and running averages in inference.

use super::init::{Filling, Init};
use super::module::{Mode, Module, Visitor};
use crate::autograd::is_running_again;
use crate::ops::BatchStatistics;
use crate::{Result, Tensor};

/// Batch normalization of `[batch, channels, height, width]` (Ioffe and Szegedy, 2015), with PyTorch's defaults. The
/// running statistics are buffers.
#[derive(Debug)]
pub struct BatchNorm2d {
    weight: Tensor,
    bias: Tensor,
    running_mean: Tensor,
    running_var: Tensor,
    mode: Mode,
    epsilon: f64,
    momentum: f64,
}

impl BatchNorm2d {
    /// Creates a layer for `channels` channels.
    ///
    /// # Errors
    /// Fails if memory cannot be allocated.
    pub fn new(init: &mut Init, channels: usize) -> Result<Self> {
        Ok(Self {
            weight: init.parameter(channels, Filling::Ones)?,
            bias: init.parameter(channels, Filling::Zeros)?,
            running_mean: init.buffer(channels, 0.0)?,
            running_var: init.buffer(channels, 1.0)?,
            mode: Mode::new(),
            epsilon: 1e-5,
            momentum: 0.1,
        })
    }
}

impl Module for BatchNorm2d {
    fn forward(&self, images: &Tensor) -> Result<Tensor> {
        let running = [&self.running_mean, &self.running_var];
        let statistics = match self.mode.is_training() {
            // The first forward pass has already updated the running averages for this batch.
            true if is_running_again() => BatchStatistics::Batch,
            true => BatchStatistics::Remembered { running, momentum: self.momentum },
            false => BatchStatistics::Given(running),
        };
        images.batch_norm(Some(&self.weight), Some(&self.bias), statistics, self.epsilon)
    }

    fn visit(&self, visitor: &mut Visitor) {
        visitor.parameter("weight", &self.weight);
        visitor.parameter("bias", &self.bias);
        visitor.buffer("running_mean", &self.running_mean);
        visitor.buffer("running_var", &self.running_var);
        visitor.mode(&self.mode);
    }
}
