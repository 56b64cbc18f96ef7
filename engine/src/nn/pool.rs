//! Max and average pooling.

use super::module::{Module, Visitor};
use crate::ops::PoolOptions;
use crate::{Result, Tensor};

/// Max pooling. Place a ReLU after it rather than before it: the result is the same, but the larger tensor need not be
/// saved.
#[derive(Clone, Copy, Debug)]
pub struct MaxPool2d(pub PoolOptions);

impl Module for MaxPool2d {
    fn forward(&self, images: &Tensor) -> Result<Tensor> {
        images.max_pool2d(self.0)
    }

    fn visit(&self, _visitor: &mut Visitor) {}
}

/// Average pooling, in which zeros in the padding count, as in PyTorch.
#[derive(Clone, Copy, Debug)]
pub struct AvgPool2d(pub PoolOptions);

impl Module for AvgPool2d {
    fn forward(&self, images: &Tensor) -> Result<Tensor> {
        images.avg_pool2d(self.0, true)
    }

    fn visit(&self, _visitor: &mut Visitor) {}
}
