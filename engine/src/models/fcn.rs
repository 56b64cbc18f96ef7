//! FCN, fully convolutional networks for semantic segmentation based on VGG16.

use super::vgg::Vgg16;
use crate::nn::{Child, Conv2d, ConvTranspose2d, Dropout2d, Filling, Init, LinearFilling, Module, Visitor};
use crate::ops::{ConvOptions, ConvTransposeOptions};
use crate::{Error, Result, Tensor};

/// Stride in pixels of the finest score map that a network uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FcnStride {
    /// FCN-8s, which uses scores of the third, fourth and last pooling layers.
    Eight,
    /// FCN-32s, which uses scores of the last pooling layer only.
    ThirtyTwo,
}

/// Padding of the image, so that the 7 × 7 kernel fits after five pooling layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FcnPadding {
    /// 100 pixels around the image, as in the paper's networks, which supports images of any size.
    Hundred,
    /// 1 pixel around the image, as in VGG16, and 3 around the input of the 7 × 7 kernel.
    One,
}

/// Sizes of a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FcnSize {
    /// Stride of the finest score map.
    pub stride: FcnStride,
    /// The padding of the images before the first convolution.
    pub padding: FcnPadding,
    /// Number of classes.
    pub classes: usize,
    /// Whether to apply channel dropout with probability 0.5 before the scores in training.
    pub dropout: bool,
    /// Divisor of the numbers of channels, at most 64. It is 1 for the original network.
    pub divisor: usize,
}

impl FcnSize {
    /// FCN-8s with the 21 classes of PASCAL VOC and 134,489,759 parameters.
    pub const VOC_8S: Self =
        Self { stride: FcnStride::Eight, padding: FcnPadding::Hundred, classes: 21, dropout: true, divisor: 1 };

    /// A small network that trains quickly on a CPU.
    pub const SMALL: Self = Self { padding: FcnPadding::One, classes: 4, divisor: 16, ..Self::VOC_8S };
}

/// A fully convolutional network (Long, Shelhamer and Darrell, 2015), which maps images `[batch, 3, height, width]` to
/// scores `[batch, classes, height, width]`.
#[derive(Debug)]
pub struct Fcn {
    features: Child<Vgg16>,
    fc6: Child<Conv2d>,
    fc7: Child<Conv2d>,
    drops: Option<[Child<Dropout2d>; 2]>,
    score_fr: Child<Conv2d>,
    grow: Grow,
    padding: FcnPadding,
}

/// The layers that upsample scores to the size of the image.
#[derive(Debug)]
enum Grow {
    Eight(Box<Eight>),
    ThirtyTwo { upscore: Child<ConvTranspose2d> },
}

#[derive(Debug)]
struct Eight {
    score_pool3: Child<Conv2d>,
    score_pool4: Child<Conv2d>,
    upscore2: Child<ConvTranspose2d>,
    upscore8: Child<ConvTranspose2d>,
    upscore_pool4: Child<ConvTranspose2d>,
}

/// Scores of the third and fourth pooling layers, for a network that adds these scores.
#[derive(Default)]
struct Skipped {
    pool3: Option<Tensor>,
    pool4: Option<Tensor>,
}

impl Fcn {
    /// Creates a network of these sizes. As in the paper, scores are initialized to zero and upsampling to bilinear
    /// interpolation.
    ///
    /// # Errors
    /// Fails if the divisor is not from 1 to 64, or if memory cannot be allocated.
    pub fn new(init: &mut Init, size: FcnSize) -> Result<Self> {
        if !(1..=64).contains(&size.divisor) {
            let what = format!("invalid divisor {}: expected an integer from 1 to 64", size.divisor);
            return Err(Error::Setting { op: "fcn", what });
        }
        let hidden = 4096 / size.divisor;
        let (around_image, around_fc6) = match size.padding {
            FcnPadding::Hundred => (100, 0),
            FcnPadding::One => (1, 3),
        };
        let drops = |init: &mut Init| -> Result<[Child<Dropout2d>; 2]> {
            let drop = |init: &mut Init| Ok(Dropout2d::new(init, 0.5));
            Ok([Child::new("drop6", init, drop)?, Child::new("drop7", init, drop)?])
        };
        let top = Vgg16::channels(5, size.divisor);
        Ok(Self {
            features: Child::new("features", init, |init| Vgg16::new(init, 3, around_image, size.divisor))?,
            fc6: wide(init, "fc6", [top, hidden, 7], around_fc6)?,
            fc7: wide(init, "fc7", [hidden, hidden, 1], 0)?,
            drops: size.dropout.then(|| drops(init)).transpose()?,
            score_fr: score(init, "score_fr", [hidden, size.classes])?,
            grow: match size.stride {
                FcnStride::Eight => Grow::Eight(Box::new(Eight::new(init, size)?)),
                FcnStride::ThirtyTwo => Grow::ThirtyTwo { upscore: upscore(init, "upscore", size.classes, 32)? },
            },
            padding: size.padding,
        })
    }

    /// Applies `fc6` and `fc7`. ReLU follows dropout. The result is the same as in the opposite order, because dropout
    /// multiplies by zero or by a positive factor, but dropout can then overwrite the convolution's output. After ReLU,
    /// which keeps its output for backward, it would need more memory.
    fn head(&self, pool5: &Tensor) -> Result<Tensor> {
        let mut hidden = pool5.clone();
        for (number, layer) in [&self.fc6, &self.fc7].into_iter().enumerate() {
            hidden = layer.forward(&hidden)?;
            if let Some(drops) = &self.drops {
                hidden = drops[number].forward_into(hidden)?;
            }
            hidden = hidden.into_relu()?;
        }
        Ok(hidden)
    }
}

impl Eight {
    fn new(init: &mut Init, size: FcnSize) -> Result<Self> {
        let channels = |block| Vgg16::channels(block, size.divisor);
        Ok(Self {
            score_pool3: score(init, "score_pool3", [channels(3), size.classes])?,
            score_pool4: score(init, "score_pool4", [channels(4), size.classes])?,
            upscore2: upscore(init, "upscore2", size.classes, 2)?,
            upscore8: upscore(init, "upscore8", size.classes, 8)?,
            upscore_pool4: upscore(init, "upscore_pool4", size.classes, 2)?,
        })
    }
}

fn wide(init: &mut Init, name: &str, size: [usize; 3], padding: usize) -> Result<Child<Conv2d>> {
    let [inputs, _, side] = size;
    let filling = LinearFilling { weight: Filling::kaiming_normal(inputs * side * side), bias: Some(Filling::Zeros) };
    let options = ConvOptions { padding: [padding; 2], ..ConvOptions::default() };
    Child::new(name, init, |init| Conv2d::filled(init, size, options, filling))
}

fn score(init: &mut Init, name: &str, [inputs, classes]: [usize; 2]) -> Result<Child<Conv2d>> {
    let zeros = LinearFilling { weight: Filling::Zeros, bias: Some(Filling::Zeros) };
    Child::new(name, init, |init| Conv2d::filled(init, [inputs, classes, 1], ConvOptions::default(), zeros))
}

fn upscore(init: &mut Init, name: &str, classes: usize, stride: usize) -> Result<Child<ConvTranspose2d>> {
    let filling = LinearFilling { weight: Filling::Bilinear, bias: None };
    let options = ConvTransposeOptions { stride: [stride; 2], ..ConvTransposeOptions::default() };
    let size = [classes, classes, 2 * stride];
    Child::new(name, init, |init| ConvTranspose2d::filled(init, size, options, filling))
}

impl Module for Fcn {
    fn forward(&self, images: &Tensor) -> Result<Tensor> {
        let &[_, _, height, width] = images.shape().lengths() else {
            return Err(Error::shape("fcn", images.shape(), "expected images of shape [batch, 3, height, width]"));
        };
        let mut hidden = images.clone();
        let mut skipped = Skipped::default();
        for block in 1..=5 {
            hidden = self.features.run([hidden.clone()], move |features, [hidden]| features.block(block, &hidden))?;
            // Computes scores directly after their pool, so that in backward the pool's gradient from the later blocks
            // exists first and the scores' gradient is added to it in place.
            match (&self.grow, block) {
                (Grow::Eight(eight), 3) => skipped.pool3 = Some(eight.score_pool3.forward(&hidden)?),
                (Grow::Eight(eight), 4) => skipped.pool4 = Some(eight.score_pool4.forward(&hidden)?),
                _ => {}
            }
        }
        hidden = self.head(&hidden)?;
        let scores = self.score_fr.forward(&hidden)?;
        drop(hidden);
        match &self.grow {
            Grow::Eight(eight) => eight.grow(scores, skipped, [height, width], self.padding),
            Grow::ThirtyTwo { upscore } => {
                let start = |length: usize, axis: usize| match self.padding {
                    FcnPadding::Hundred => 19,
                    FcnPadding::One => middle(grown(scores.shape()[axis], 32), length),
                };
                let start = [start(height, 2), start(width, 3)];
                upscore.run([scores.clone()], move |upscore, [scores]| {
                    upscore.forward_part(&scores, start, [height, width])
                })
            }
        }
    }

    fn visit(&self, visitor: &mut Visitor) {
        visitor.child(&self.features);
        visitor.child(&self.fc6);
        visitor.child(&self.fc7);
        self.drops.iter().flatten().for_each(|drop| visitor.child(drop));
        visitor.child(&self.score_fr);
        match &self.grow {
            Grow::Eight(eight) => {
                visitor.child(&eight.score_pool3);
                visitor.child(&eight.score_pool4);
                visitor.child(&eight.upscore2);
                visitor.child(&eight.upscore8);
                visitor.child(&eight.upscore_pool4);
            }
            Grow::ThirtyTwo { upscore } => visitor.child(upscore),
        }
    }
}

/// Returns the output size in pixels of a transposed convolution of `pixels` whose kernel is twice as long as its
/// stride.
fn grown(pixels: usize, stride: usize) -> usize {
    (pixels + 1) * stride
}

/// Returns the start of the central part of `length` elements in `whole` elements.
fn middle(whole: usize, length: usize) -> usize {
    whole.saturating_sub(length) / 2
}

impl Eight {
    fn grow(
        &self,
        scores: Tensor,
        Skipped { pool3, pool4 }: Skipped,
        image: [usize; 2],
        padding: FcnPadding,
    ) -> Result<Tensor> {
        let (pool4, pool3) = (pool4.expect("the fourth block is missing"), pool3.expect("the third block is missing"));
        let scores = join(&self.upscore2, scores, pool4, (padding, 5))?;
        let scores = join(&self.upscore_pool4, scores, pool3, (padding, 9))?;
        let start = [0, 1].map(|axis| match padding {
            FcnPadding::Hundred => 31,
            FcnPadding::One => middle(grown(scores.shape()[axis + 2], 8), image[axis]),
        });
        self.upscore8.run([scores.clone()], move |upscore, [scores]| upscore.forward_part(&scores, start, image))
    }
}

/// Upsamples `coarse` scores by a factor of two and adds `fine` scores. The larger of the two is cropped. Fine scores
/// are cropped at `start` if the image has wide padding; otherwise the upsampled scores are cropped evenly on all
/// sides.
fn join(
    upscore: &Child<ConvTranspose2d>,
    coarse: Tensor,
    fine: Tensor,
    (padding, start): (FcnPadding, usize),
) -> Result<Tensor> {
    let grown = [2, 3].map(|axis| grown(coarse.shape()[axis], 2));
    if padding == FcnPadding::Hundred {
        let cut = fine.narrow(2, start, grown[0])?.narrow(3, start, grown[1])?;
        drop(fine);
        let coarse = upscore.forward(&coarse)?;
        return coarse.into_add(&cut);
    }
    let size = [fine.shape()[2], fine.shape()[3]];
    let start = [0, 1].map(|axis| middle(grown[axis], size[axis]));
    let part = upscore.run([coarse], move |upscore, [coarse]| upscore.forward_part(&coarse, start, size))?;
    part.into_add(&fine)
}
