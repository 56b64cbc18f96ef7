//! The tiny NeRF in candle: positional encoding, eight layers, and rendering along rays.

use candle_core::{D, Device, Result, Tensor, Var};
use highwater_recorder::Category;

use crate::guards::{made_as, module, op};
use crate::scene::Chance;

/// Number of octaves of the positional encoding.
const OCTAVES: usize = 6;
/// Number of elements of an encoded point.
pub(crate) const ENCODED: usize = 3 * (1 + 2 * OCTAVES);
/// The layer before which the encoded points are concatenated again.
pub(crate) const JOINED_BEFORE: usize = 5;
/// Initial density everywhere: at density 0 there would be no gradient.
const FIRST_DENSITY: f32 = 0.1;
/// Keeps the transmittance of a ray above 0, so that points further away have a gradient.
const LEFT_OVER: f64 = 1e-10;

/// Whether operations are added to candle's graph.
#[derive(Clone, Copy)]
pub(crate) enum Graph {
    Kept,
    None,
}

struct Linear {
    name: String,
    weight: Var,
    bias: Var,
}

/// The network: layers and head.
pub(crate) struct Nerf {
    layers: Vec<Linear>,
    head: Linear,
}

impl Linear {
    fn new(name: String, [inputs, outputs]: [usize; 2], chance: &mut Chance, device: &Device) -> Result<Self> {
        let bound = (inputs as f32).sqrt().recip();
        let mut numbers = |count| chance.numbers(count, [-bound, bound]);
        let weight = Var::from_vec(numbers(outputs * inputs), (outputs, inputs), device)?;
        let bias = Var::from_vec(numbers(outputs), outputs, device)?;
        Ok(Self { name, weight, bias })
    }

    /// Computes the same as candle's own layer: a product and a sum, each in new memory.
    fn forward(&self, input: &Tensor, graph: Graph) -> Result<Tensor> {
        let [weight, bias] = [&self.weight, &self.bias].map(|parameter| match graph {
            Graph::Kept => parameter.as_tensor().clone(),
            Graph::None => parameter.as_detached_tensor(),
        });
        let product = op("matmul", || input.matmul(&weight.t()?))?;
        op("broadcast_add", || product.broadcast_add(&bias))
    }
}

impl Nerf {
    pub(crate) fn new([width, layers]: [usize; 2], chance: &mut Chance, device: &Device) -> Result<Self> {
        made_as(Category::Parameter, || {
            let mut linear =
                |name: String, lengths| module(&name, || Linear::new(name.clone(), lengths, chance, device));
            let layers = (0..layers).map(|position| {
                let inputs = match position {
                    0 => ENCODED,
                    JOINED_BEFORE => width + ENCODED,
                    _ => width,
                };
                linear(format!("network.layers.{position}"), [inputs, width])
            });
            let layers = layers.collect::<Result<Vec<_>>>()?;
            let head = linear("network.head".to_owned(), [if layers.is_empty() { ENCODED } else { width }, 4])?;
            let density = [0.0, 0.0, 0.0, FIRST_DENSITY];
            head.bias.set(&Tensor::new(&density, device)?)?;
            Ok(Self { layers, head })
        })
    }

    /// Returns the module path and the value of each parameter.
    pub(crate) fn parameters(&self) -> Vec<(&str, &Var)> {
        let linears = self.layers.iter().chain([&self.head]);
        linears.flat_map(|linear| [(&*linear.name, &linear.weight), (&*linear.name, &linear.bias)]).collect()
    }

    /// Colour and density at `points`, `[points, 4]`.
    pub(crate) fn look_at(&self, points: &Tensor, graph: Graph) -> Result<Tensor> {
        let encoded = encode(points)?;
        let mut hidden = encoded.clone();
        for (position, layer) in self.layers.iter().enumerate() {
            hidden = module(&layer.name, || {
                if position == JOINED_BEFORE {
                    hidden = op("cat", || Tensor::cat(&[&hidden, &encoded], 1))?;
                }
                let sum = layer.forward(&hidden, graph)?;
                op("relu", || sum.relu())
            })?;
        }
        module(&self.head.name, || self.head.forward(&hidden, graph))
    }
}

/// Returns the points with the sines and cosines of their octaves. No parameters are involved, so candle keeps no
/// graph; the result is kept by the graph of the layers.
fn encode(points: &Tensor) -> Result<Tensor> {
    let parts = made_as(Category::Temporary, || {
        let mut parts = vec![points.clone()];
        for octave in 0..OCTAVES {
            let scaled = op("affine", || points * f64::from(1 << octave))?;
            parts.push(op("sin", || scaled.sin())?);
            parts.push(op("cos", || scaled.cos())?);
        }
        Ok(parts)
    })?;
    op("cat", || Tensor::cat(&parts, 1))
}

/// Sums the colours along each ray, weighted by density and by the light that passes all points before. `raw` is
/// `[rays, samples, 4]`; returns `[rays, 3]`.
pub(crate) fn composite(raw: &Tensor, steps: &Tensor) -> Result<Tensor> {
    let (rays, count) = steps.dims2()?;
    let colours = sigmoid(&raw.narrow(D::Minus1, 0, 3)?)?;
    let density = op("reshape", || raw.narrow(D::Minus1, 3, 1)?.reshape((rays, count)))?;
    let density = op("relu", || density.relu())?;
    let depth = op("mul", || density * steps)?;
    let passing = op("exp", || depth.exp())?;
    let arriving = op("affine", || passing.affine(1.0, LEFT_OVER))?;
    let arriving = cumprod_exclusive(&arriving)?;
    let stopped = op("affine", || passing.affine(-1.0, 1.0))?;
    let weights = op("mul", || stopped * arriving)?;
    op("matmul", || weights.unsqueeze(1)?.matmul(&colours)?.reshape((rays, 3)))
}

/// Composed of operations that have a gradient, since candle-core has no such operation.
fn sigmoid(numbers: &Tensor) -> Result<Tensor> {
    let grown = op("neg", || numbers.neg())?;
    let grown = op("exp", || grown.exp())?;
    let grown = op("affine", || grown.affine(1.0, 1.0))?;
    op("recip", || grown.recip())
}

/// Products of all that stand before in their row, as a sum of logarithms: candle has no cumulative product, and its
/// cumulative sum is a product with a triangle, too.
fn cumprod_exclusive(factors: &Tensor) -> Result<Tensor> {
    let count = factors.dim(D::Minus1)?;
    let before: Vec<f32> = (0..count * count).map(|at| if at / count < at % count { 1.0 } else { 0.0 }).collect();
    let before = op("from_vec", || Tensor::from_slice(&before, (count, count), factors.device()))?;
    let logarithms = op("log", || factors.log())?;
    let sums = op("matmul", || logarithms.matmul(&before))?;
    op("exp", || sums.exp())
}
