//! Patch embedding, which splits an image into square patches and projects each of them to a token.

use super::init::{Filling, Init};
use super::module::Module;
use crate::ops::conv::ConvOptions;
use crate::{Result, Tensor};

/// A convolution with non-overlapping windows, which maps `[batch, channels, height, width]` to
/// `[batch, tokens, width]`.
#[derive(Debug)]
pub struct PatchEmbedding {
    weight: Tensor,
    bias: Tensor,
    patch: usize,
}

impl PatchEmbedding {
    /// Creates a projection of patches of `patch` × `patch` pixels with `channels` channels to tokens of `width`
    /// elements, initialized as in torchvision.
    ///
    /// # Errors
    /// Fails if memory cannot be allocated.
    pub fn new(init: &mut Init, [channels, patch, width]: [usize; 3]) -> Result<Self> {
        let inputs = channels * patch * patch;
        let filling = Filling::Normal { deviation: (1.0 / inputs as f64).sqrt() };
        let weight = init.parameter([width, channels, patch, patch], filling)?;
        Ok(Self { weight, bias: init.parameter(width, Filling::Zeros)?, patch })
    }
}

impl Module for PatchEmbedding {
    fn forward(&self, images: &Tensor) -> Result<Tensor> {
        let options = ConvOptions { stride: [self.patch; 2], ..ConvOptions::default() };
        images.conv2d(&self.weight, Some(&self.bias), options)?.flatten_from(2)?.transpose(1, 2)
    }

    crate::visit_fields!(weight, bias);
}
