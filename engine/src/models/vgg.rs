//! The convolutions of VGG16, without its classifier.

use crate::error::Result;
use crate::nn::{Child, Conv2d, Filling, Init, LinearFilling, MaxPool2d, Module, Visitor};
use crate::ops::{ConvOptions, PoolOptions};
use crate::tensor::Tensor;

/// The convolutions of VGG16 (Simonyan and Zisserman, 2015): five blocks, each ending with a maximum over 2 by 2
/// pixels. What is left at an edge makes a window too.
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
    /// Convolutions of each block, and how many channels they have.
    const BLOCKS: [(usize, usize); 5] = [(2, 64), (2, 128), (3, 256), (3, 512), (3, 512)];

    /// The convolutions for images of `colours` channels, filled as torchvision's. The image is padded by `padding`
    /// pixels (VGG has 1). All channels are divided by `divisor`, for small nets.
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

    /// How many channels block `block` has, from 1 to 5.
    pub fn channels(block: usize, divisor: usize) -> usize {
        Self::BLOCKS[block - 1].1 / divisor
    }

    /// What block `block`, from 1 to 5, makes of the former block's result.
    pub fn block(&self, block: usize, input: &Tensor) -> Result<Tensor> {
        let Block { convs, pool } = &self.blocks[block - 1];
        let mut hidden = input.clone();
        for (number, conv) in (1..).zip(convs) {
            hidden = conv.forward(&hidden)?;
            // The largest of what ReLU makes is what ReLU makes of the largest, and the gradients are the same too. So
            // the pool comes first: the large result before it dies at once, where ReLU would keep it for backward, and
            // what ReLU keeps is a quarter.
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
