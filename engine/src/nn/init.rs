//! Initialization of parameters and buffers, with their device, dtype and random numbers.

use half::{bf16, f16};
use highwater_recorder::{Category, scope};

use crate::backend::Distribution;
use crate::{DType, Device, Error, Result, Rng, Shape, Tensor};

/// The initial values of a parameter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Filling {
    /// All 0.
    Zeros,
    /// All 1.
    Ones,
    /// Normal distribution with mean 0.
    Normal {
        /// The standard deviation.
        deviation: f64,
    },
    /// Uniform distribution from `-bound` (inclusive) to `bound` (exclusive).
    Uniform {
        /// Bound of the magnitude.
        bound: f64,
    },
    /// Bilinear interpolation, for the kernel of a transposed convolution, `[channels, channels, side, side]`, which
    /// upsamples each channel independently (Long, Shelhamer and Darrell, 2015).
    Bilinear,
}

impl Filling {
    /// Returns PyTorch's default for the weights and biases of linear and convolution layers, a uniform distribution
    /// within ±1/√inputs (He et al., 2015, with a slope of √5).
    pub fn kaiming_uniform(inputs: usize) -> Self {
        Self::Uniform { bound: 1.0 / (inputs as f64).sqrt() }
    }

    /// Returns the normal distribution that preserves variances through layers with ReLU (He et al., 2015). It
    /// preserves them in the forward pass if `fan` is the fan-in, and in the backward pass if it is the fan-out.
    pub fn kaiming_normal(fan: usize) -> Self {
        Self::Normal { deviation: (2.0 / fan as f64).sqrt() }
    }

    /// Returns the uniform distribution that preserves variances in both the forward and the backward pass (Glorot and
    /// Bengio, 2010).
    pub fn xavier_uniform(inputs: usize, outputs: usize) -> Self {
        Self::Uniform { bound: (6.0 / (inputs + outputs) as f64).sqrt() }
    }
}

/// Creates the parameters of a model in sequence. The same seed and the same order give the same values on every
/// device.
#[derive(Debug)]
pub struct Init {
    device: Device,
    dtype: DType,
    rng: Rng,
    trains: bool,
}

impl Init {
    /// Creates an initializer for parameters of dtype `dtype` on `device`, with random numbers seeded by `seed`.
    pub fn new(device: &Device, dtype: DType, seed: u64) -> Self {
        Self { device: device.clone(), dtype, rng: Rng::new(seed), trains: true }
    }

    /// Draws a new seed, for a module that needs its own random numbers.
    pub fn seed(&mut self) -> u64 {
        let [low, high, ..] = self.rng.draw(2).words(0);
        u64::from(low) | u64::from(high) << 32
    }

    /// Creates a buffer filled with `value`, in the parameters' [statistics dtype](DType::statistics). It requires no
    /// gradient and is recorded as a buffer in the thread's current scope.
    ///
    /// # Errors
    /// Fails if memory cannot be allocated.
    pub fn buffer(&mut self, shape: impl Into<Shape>, value: f64) -> Result<Tensor> {
        let _category = scope::category(Category::Buffer);
        Tensor::full(shape, value, self.dtype.statistics(), &self.device)
    }

    /// Returns the device of the parameters.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Returns the dtype of the parameters.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Calls `make` with frozen parameters, which require no gradient and are not changed by optimizers.
    pub fn frozen<R>(&mut self, make: impl FnOnce(&mut Self) -> R) -> R {
        self.with(self.dtype, false, make)
    }

    /// Calls `make` with trainable parameters of dtype `dtype`, even within [`Self::frozen`].
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

    /// Creates a parameter, a leaf that requires a gradient unless it is [frozen](Self::frozen). It is recorded as a
    /// parameter in the thread's current scope.
    ///
    /// # Errors
    /// Fails if memory cannot be allocated, or if `filling` does not support the shape or the dtype.
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

fn bilinear(shape: &Shape, dtype: DType, device: &Device) -> Result<Tensor> {
    let &[channels, outputs, height, width] = shape.lengths() else {
        return Err(Error::shape("bilinear", shape, "expected a kernel of shape [channels, outputs, height, width]"));
    };
    if !device.has_values() {
        return Tensor::as_from_slice(shape, dtype, device);
    }
    // Falls from 1 at the center to the edges; the center is between two pixels if the side is even.
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
