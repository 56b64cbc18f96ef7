//! NeRF, which represents a scene as a network that predicts color and density at every point in space.

use crate::nn::{Child, Init, Linear, Module, Sequence};
use crate::{Error, Result, Rng, Tensor, no_grad};

/// Sizes of a tiny NeRF.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NerfSize {
    /// Hidden size.
    pub width: usize,
    /// Number of hidden layers. The encoded points are concatenated again to the input of the sixth layer, if there is
    /// one.
    pub layers: usize,
    /// Number of octaves of the positional encoding.
    pub octaves: usize,
    /// Number of points per pass through the network.
    pub chunk: usize,
}

impl NerfSize {
    /// Eight layers of width 64, with points in chunks of 65,536.
    pub const TINY: Self = Self { width: 64, layers: 8, octaves: 6, chunk: 65_536 };

    /// A small model that trains quickly on a CPU.
    pub const SMALL: Self = Self { width: 32, layers: 3, octaves: 3, chunk: 1024 };
}

/// Index of the layer before which the encoded points are concatenated again.
const JOINED_BEFORE: usize = 5;
/// Index of the density in the output, after the color.
const DENSITY: usize = 3;
/// Initial bias of the density. It must be above 0, because ReLU passes no gradient where the density is 0.
const FIRST_DENSITY: f64 = 0.1;
/// Minimum transmittance. Above 0, so that points behind other points have a gradient.
const LEFT_OVER: f64 = 1e-10;
/// Step length of the last point of a ray.
const TO_INFINITY: f64 = 1e10;

/// A neural radiance field (Mildenhall et al., 2020) in its tiny form, which has no view directions and only one
/// network.
#[derive(Debug)]
pub struct Nerf {
    network: Child<RadianceField>,
    octaves: usize,
    chunk: usize,
}

/// Rays through the pixels of an image, each tensor of shape `[rays, 3]`.
#[derive(Clone, Debug)]
pub struct Rays {
    /// Origin of each ray.
    pub origins: Tensor,
    /// Direction of each ray.
    pub directions: Tensor,
}

/// Sample points along rays.
#[derive(Debug)]
pub struct Samples {
    /// Positions, `[rays, samples, 3]`.
    pub points: Tensor,
    /// Negated distances to the next point, `[rays, samples]`; −10¹⁰ for the last point of a ray.
    pub steps: Tensor,
}

impl Samples {
    /// Samples `count` points on each ray between distances `near` and `far`. The range is divided evenly, with one
    /// random point in each part. No gradient flows through the points.
    ///
    /// # Errors
    /// Fails if the rays do not have the expected shape or dtype, or if memory cannot be allocated.
    pub fn along(rays: &Rays, count: usize, [near, far]: [f64; 2], rng: &mut Rng) -> Result<Self> {
        let Rays { origins, directions } = rays;
        let (rays, dtype, device) = (origins.shape()[0], origins.dtype(), origins.device());
        let length = (far - near) / count as f64;
        let distances = Tensor::uniform([rays, count], [0.0, length], dtype, device, rng)?;
        distances.add_(&Tensor::arange(count, near, length, dtype, device)?)?;
        let steps = distances.copied()?;
        let between = count.saturating_sub(1);
        steps.narrow(1, 0, between)?.add_scaled_(&distances.narrow(1, count - between, between)?, -1.0)?;
        steps.narrow(1, between, count - between)?.fill_(-TO_INFINITY)?;
        let along = directions.unsqueeze(1)?.mul(&distances.unsqueeze(2)?)?;
        drop(distances);
        Ok(Self { points: along.into_add(&origins.unsqueeze(1)?)?, steps })
    }
}

impl Nerf {
    /// Creates a network of these sizes, initialized like PyTorch's linear layers.
    ///
    /// # Errors
    /// Fails if the chunk size is 0, or if memory cannot be allocated.
    pub fn new(init: &mut Init, size: NerfSize) -> Result<Self> {
        if size.chunk == 0 {
            let what = "invalid chunk size 0: expected at least 1 point".to_owned();
            return Err(Error::Setting { op: "nerf", what });
        }
        let network = Child::new("network", init, |init| RadianceField::new(init, size))?;
        Ok(Self { network, octaves: size.octaves, chunk: size.chunk })
    }

    /// Computes the color of each ray, `[rays, 3]`, from its sample points.
    ///
    /// # Errors
    /// Fails if the samples do not have the expected shape or dtype, or if memory cannot be allocated.
    pub fn render(&self, samples: Samples) -> Result<Tensor> {
        let Samples { points, steps } = samples;
        if steps.rank() != 2 {
            return Err(Error::shape("nerf", steps.shape(), "expected steps of shape [rays, samples]"));
        }
        let (rays, count) = (steps.shape()[0], steps.shape()[1]);
        let raw = self.look_at(&points.reshape([rays * count, 3])?)?.reshape([rays, count, 4])?;
        composite(raw, &steps)
    }

    /// Computes color and density at each of `points`, `[points, 4]`, chunk by chunk.
    fn look_at(&self, points: &Tensor) -> Result<Tensor> {
        let look = |chunk: &Tensor| self.network.forward(&chunk.frequencies(self.octaves)?);
        let parts = points.split(self.chunk, 0)?.iter().map(look).collect::<Result<Vec<_>>>()?;
        match &parts[..] {
            [whole] => Ok(whole.clone()),
            _ => Tensor::concat(&parts.iter().collect::<Vec<_>>(), 0),
        }
    }
}

/// Sums the colors along each ray, weighted by density and by the transmittance up to the point (Max, 1995). `raw`,
/// `[rays, samples, 4]`, is consumed. Forward keeps only six elements per point, namely the color (3), the density, the
/// step, and the fraction of light that passes the point. The rest is computed from these.
fn composite(raw: Tensor, steps: &Tensor) -> Result<Tensor> {
    let (rays, count) = (raw.shape()[0], raw.shape()[1]);
    let colours = raw.narrow(2, 0, 3)?.sigmoid()?;
    let density = raw.narrow(2, DENSITY, 1)?.reshape([rays, count])?.relu()?;
    drop(raw);
    let depth = density.mul(steps)?;
    drop(density);
    let passing = depth.exp()?;
    drop(depth);
    let arriving = passing.add_scalar(LEFT_OVER)?.cumprod_exclusive(1)?;
    let weights = passing.affine(-1.0, 1.0)?.mul(&arriving)?;
    drop((passing, arriving));
    weights.unsqueeze(1)?.matmul(&colours)?.reshape([rays, 3])
}

impl Module for Nerf {
    /// Computes color and density, `[points, 4]`, at points `[points, 3]`.
    fn forward(&self, points: &Tensor) -> Result<Tensor> {
        self.look_at(points)
    }

    crate::visit_fields!(network);
}

/// The network, which maps encoded points to color and density.
#[derive(Debug)]
struct RadianceField {
    layers: Child<Sequence<Linear>>,
    head: Child<Linear>,
}

impl RadianceField {
    fn new(init: &mut Init, size: NerfSize) -> Result<Self> {
        let NerfSize { width, layers, octaves, .. } = size;
        let encoded = 3 * (1 + 2 * octaves);
        let layer = |position: usize, init: &mut Init| {
            let inputs = match position {
                0 => encoded,
                JOINED_BEFORE => width + encoded,
                _ => width,
            };
            Linear::new(init, [inputs, width])
        };
        let last = if layers == 0 { encoded } else { width };
        let layers = Child::new("layers", init, |init| Sequence::new(layers, init, layer))?;
        let head = Child::new("head", init, |init| Linear::new(init, [last, 4]))?;
        if let Some(bias) = head.bias() {
            let _mode = no_grad();
            bias.narrow(0, DENSITY, 1)?.fill_(FIRST_DENSITY)?;
        }
        Ok(Self { layers, head })
    }
}

impl Module for RadianceField {
    fn forward(&self, encoded: &Tensor) -> Result<Tensor> {
        let hidden = self.layers.run([encoded.clone()], |layers, [encoded]| {
            let mut hidden = encoded.clone();
            for (position, layer) in layers.iter().enumerate() {
                if position == JOINED_BEFORE {
                    hidden = Tensor::concat(&[&hidden, &encoded], -1)?;
                }
                hidden = layer.forward(&hidden)?.into_relu()?;
            }
            Ok(hidden)
        })?;
        self.head.forward(&hidden)
    }

    crate::visit_fields!(layers, head);
}
