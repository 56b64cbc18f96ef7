//! Initialization of parameters: device, element type and random numbers.

use half::{bf16, f16};
use highwater_recorder::{Category, scope};

use crate::backend::Distribution;
use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::rng::Rng;
use crate::shape::Shape;
use crate::tensor::Tensor;

/// The initial values of a parameter.
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
    /// For the kernels of a transposed convolution, `[channels, channels, side, side]`: each channel alone, grown by
    /// linear interpolation between pixels (Long, Shelhamer and Darrell, 2015).
    Bilinear,
}

impl Filling {
    /// What PyTorch's linear and convolution layers begin with, weights and biases alike: evenly within 1/√inputs
    /// (He et al., 2015, with a slope of √5).
    pub fn kaiming_uniform(inputs: usize) -> Self {
        Self::Uniform { bound: 1.0 / (inputs as f64).sqrt() }
    }

    /// The bell curve, so that variances stay as they are through layers with ReLU (He et al., 2015): forward if `fan`
    /// is how many numbers each result is made of, backward if it is how many results each element goes into.
    pub fn kaiming_normal(fan: usize) -> Self {
        Self::Normal { deviation: (2.0 / fan as f64).sqrt() }
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

    /// A new buffer of the parameters' [statistics type](DType::statistics): no gradient, recorded as buffer within the
    /// scope that the thread is in.
    pub fn buffer(&mut self, shape: impl Into<Shape>, value: f64) -> Result<Tensor> {
        let _category = scope::category(Category::Buffer);
        Tensor::full(shape, value, self.dtype.statistics(), &self.device)
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

    /// A new parameter: a leaf that requires a gradient unless it is [frozen](Self::frozen), recorded as parameter
    /// within the scope that the thread is in.
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
            Filling::Bilinear => bilinear(&shape.into(), *dtype, device),
        }?;
        tensor.set_requires_grad(*trains)?;
        Ok(tensor)
    }
}

/// See [`Filling::Bilinear`].
fn bilinear(shape: &Shape, dtype: DType, device: &Device) -> Result<Tensor> {
    let &[channels, outputs, height, width] = shape.lengths() else {
        return Err(Error::shape("bilinear", shape, "expected a kernel of shape [channels, outputs, height, width]"));
    };
    if !device.has_values() {
        return Tensor::as_from_slice(shape, dtype, device);
    }
    // From 0 at the edges to 1 in the middle, which is between two pixels where the side is even.
    let share = |place: usize, side: usize| {
        let middle = (side as f64 - 1.0) / 2.0;
        1.0 - (place as f64 - middle).abs() / side.div_ceil(2) as f64
    };
    let mut numbers = vec![0.0; shape.elements()];
    for channel in 0..channels.min(outputs) {
        for (y, x) in (0..height).flat_map(|y| (0..width).map(move |x| (y, x))) {
            let place = ((channel * outputs + channel) * height + y) * width + x;
            numbers[place] = share(y, height) * share(x, width);
        }
    }
    match dtype {
        DType::F64 => Tensor::from_slice(&numbers, shape, device),
        DType::F32 => Tensor::from_slice(&narrowed(&numbers, |x| x as f32), shape, device),
        DType::Bf16 => Tensor::from_slice(&narrowed(&numbers, bf16::from_f64), shape, device),
        DType::F16 => Tensor::from_slice(&narrowed(&numbers, f16::from_f64), shape, device),
        found => Err(Error::DType {
            op: "bilinear",
            found,
            need: "expected floating-point parameters: f64, f32, bf16 or f16",
        }),
    }
}

fn narrowed<T>(numbers: &[f64], narrow: impl Fn(f64) -> T) -> Vec<T> {
    numbers.iter().map(|&number| narrow(number)).collect()
}
