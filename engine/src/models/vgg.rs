//! The convolutional layers of VGG16, without its classifier.

use crate::nn::{Child, Conv2d, Filling, Init, LinearFilling, MaxPool2d, Module, Visitor};
use crate::ops::{ConvOptions, PoolOptions};
use crate::{Result, Tensor};

/// The convolutional layers of VGG16 (Simonyan and Zisserman, 2015), in five blocks that each end with 2 × 2 max
/// pooling. Pooling windows at the edge may be incomplete (`ceil`).
#[derive(Debug)]
pub struct Vgg16 {
    blocks: Vec<Block>,
}

#[derive(Debug)]
struct Block {
    convs: Vec<Child<Conv2d>>,
    pool: Child<MaxPool2d>,
}

impl Vgg16 {
    /// Number of convolutions and of channels of each block.
    const BLOCKS: [(usize, usize); 5] = [(2, 64), (2, 128), (3, 256), (3, 512), (3, 512)];

    /// Creates the layers for images with `colours` channels, initialized as in torchvision. The image is padded by
    /// `padding` pixels (1 in VGG). For small networks, the number of channels is divided by `divisor`.
    ///
    /// # Errors
    /// Fails if memory cannot be allocated.
    pub fn new(init: &mut Init, colours: usize, padding: usize, divisor: usize) -> Result<Self> {
        let mut inputs = colours;
        let mut blocks = Vec::new();
        for (block, (count, _)) in (1..).zip(Self::BLOCKS) {
            let width = Self::channels(block, divisor);
            let mut convs = Vec::new();
            for number in 1..=count {
                let padding = if (block, number) == (1, 1) { padding } else { 1 };
                let options = ConvOptions { padding: [padding; 2], ..ConvOptions::default() };
                let filling =
                    LinearFilling { weight: Filling::kaiming_normal(width * 3 * 3), bias: Some(Filling::Zeros) };
                let conv = |init: &mut Init| Conv2d::filled(init, [inputs, width, 3], options, filling);
                convs.push(Child::new(format!("conv{block}_{number}"), init, conv)?);
                inputs = width;
            }
            let pool = MaxPool2d(PoolOptions { ceil: true, ..PoolOptions::square(2) });
            blocks.push(Block { convs, pool: Child::new(format!("pool{block}"), init, |_| Ok(pool))? });
        }
        Ok(Self { blocks })
    }

    /// Returns the number of output channels of block `block` (1 to 5), divided by `divisor`.
    pub fn channels(block: usize, divisor: usize) -> usize {
        Self::BLOCKS[block - 1].1 / divisor
    }

    /// Applies block `block`, from 1 to 5, to the output of the previous block.
    ///
    /// # Errors
    /// Fails if `input` does not have the expected shape or dtype, or if memory cannot be allocated.
    pub fn block(&self, block: usize, input: &Tensor) -> Result<Tensor> {
        let Block { convs, pool } = &self.blocks[block - 1];
        let mut hidden = input.clone();
        for (number, conv) in (1..).zip(convs) {
            hidden = conv.forward(&hidden)?;
            // Max pooling and ReLU commute, in forward and backward. Pooling first frees the large convolution output
            // at once, which ReLU would otherwise keep for backward, and ReLU then keeps only a quarter as much.
            if number == convs.len() {
                hidden = pool.forward(&hidden)?;
            }
            hidden = hidden.into_relu()?;
        }
        Ok(hidden)
    }
}

impl Module for Vgg16 {
    fn forward(&self, images: &Tensor) -> Result<Tensor> {
        (1..=self.blocks.len()).try_fold(images.clone(), |hidden, block| self.block(block, &hidden))
    }

    fn visit(&self, visitor: &mut Visitor) {
        for block in &self.blocks {
            block.convs.iter().for_each(|conv| visitor.child(conv));
            visitor.child(&block.pool);
        }
    }
}
