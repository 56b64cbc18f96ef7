//! Max and average pooling.

use super::module::{Module, Visitor};
use crate::error::Result;
use crate::ops::PoolOptions;
use crate::tensor::Tensor;

/// The maximum of each window. A ReLU is better placed after it than before: it gives the same, and the larger
/// result need not be kept.
#[derive(Clone, Copy, Debug)]
pub struct MaxPool2d(pub PoolOptions);

impl Module for MaxPool2d {
    fn forward(&self, images: &Tensor) -> Result<Tensor> {
        images.max_pool2d(self.0)
    }

    fn visit(&self, _visitor: &mut Visitor) {}
}

/// The mean of each window, zeros in the padding counted, as PyTorch's.
#[derive(Clone, Copy, Debug)]
pub struct AvgPool2d(pub PoolOptions);

impl Module for AvgPool2d {
    fn forward(&self, images: &Tensor) -> Result<Tensor> {
        images.avg_pool2d(self.0, true)
    }

    fn visit(&self, _visitor: &mut Visitor) {}
}
