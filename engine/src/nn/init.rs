//! Init: how parameters are made: on which device, of which type, and from which random numbers.

use highwater_recorder::{Category, scope};

use crate::backend::Distribution;
use crate::device::Device;
use crate::dtype::DType;
use crate::error::Result;
use crate::rng::Rng;
use crate::shape::Shape;
use crate::tensor::Tensor;

/// What a parameter holds before training.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Filling {
    /// All 0.
    Zeros,
    /// All 1.
    Ones,
    /// The bell curve around 0.
    Normal {
        /// The standard deviation.
        deviation: f64,
    },
    /// Evenly between `-bound` and `bound`.
    Uniform {
        /// The largest magnitude.
        bound: f64,
    },
}

impl Filling {
    /// What PyTorch's linear and convolution layers begin with, weights and biases alike: evenly within 1/√inputs
    /// (He et al., 2015, with a slope of √5).
    pub fn kaiming_uniform(inputs: usize) -> Self {
        Self::Uniform { bound: 1.0 / (inputs as f64).sqrt() }
    }

    /// Evenly, so that variances stay as they are both forward and backward (Glorot and Bengio, 2010).
    pub fn xavier_uniform(inputs: usize, outputs: usize) -> Self {
        Self::Uniform { bound: (6.0 / (inputs + outputs) as f64).sqrt() }
    }
}

/// Makes the parameters of a model, one after another. The same seed and the same order give the same numbers on every
/// device.
#[derive(Debug)]
pub struct Init {
    device: Device,
    dtype: DType,
    rng: Rng,
    trains: bool,
}

impl Init {
    /// Parameters of type `dtype` on `device`, with the random numbers of `seed`.
    pub fn new(device: &Device, dtype: DType, seed: u64) -> Self {
        Self { device: device.clone(), dtype, rng: Rng::new(seed), trains: true }
    }

    /// A seed of its own, for a module that draws random numbers.
    pub fn seed(&mut self) -> u64 {
        let [low, high, ..] = self.rng.draw(2).words(0);
        u64::from(low) | u64::from(high) << 32
    }

    /// Where parameters are made.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The type that parameters are of.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Calls `make`, whose parameters are frozen: they require no gradient, and no optimizer changes them.
    pub fn frozen<R>(&mut self, make: impl FnOnce(&mut Self) -> R) -> R {
        self.with(self.dtype, false, make)
    }

    /// Calls `make`, whose parameters train even within [`Self::frozen`], and are of type `dtype`.
    pub fn trained<R>(&mut self, dtype: DType, make: impl FnOnce(&mut Self) -> R) -> R {
        self.with(dtype, true, make)
    }

    fn with<R>(&mut self, dtype: DType, trains: bool, make: impl FnOnce(&mut Self) -> R) -> R {
        let former = (self.dtype, self.trains);
        (self.dtype, self.trains) = (dtype, trains);
        let made = make(self);
        (self.dtype, self.trains) = former;
        made
    }

    /// A new parameter: a leaf that requires a gradient unless it is [frozen](Self::frozen), recorded as parameter within
    /// the scope that the thread is in.
    pub fn parameter(&mut self, shape: impl Into<Shape>, filling: Filling) -> Result<Tensor> {
        let _category = scope::category(Category::Parameter);
        let Self { device, dtype, rng, trains } = self;
        let tensor = match filling {
            Filling::Zeros => Tensor::zeros(shape, *dtype, device),
            Filling::Ones => Tensor::ones(shape, *dtype, device),
            Filling::Normal { deviation } => {
                Tensor::random(shape, Distribution::Normal { mean: 0.0, deviation }, *dtype, device, rng)
            }
            Filling::Uniform { bound } => Tensor::uniform(shape, [-bound, bound], *dtype, device, rng),
        }?;
        tensor.set_requires_grad(*trains)?;
        Ok(tensor)
    }
}
