//! Training: steps of forward, backward and optimizer, each a phase of the recording.

use candle_core::backprop::GradStore;
use candle_core::{CpuStorage, DType, Device, Error, Result, Storage, Tensor, Var};
use highwater_recorder::{Category, Phase, heap, scope};

use crate::adamw::AdamW;
use crate::guards::{made_as, module, op, phase};
use crate::nerf::{Graph, Nerf, composite};
use crate::scene::{Chance, Samples, Scene};

/// The options of training.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    /// Pixels on each side of the picture.
    pub(crate) image: usize,
    /// Points on each ray.
    pub(crate) samples: usize,
    pub(crate) width: usize,
    pub(crate) layers: usize,
    /// Number of points that are passed through the network at a time.
    pub(crate) chunk: usize,
    pub(crate) steps: u32,
    /// Whether chunks save only their result, and are recomputed in backward.
    pub(crate) checkpoint: bool,
}

/// A step's gradients in the order of the parameters, beside all that candle's backward gives, which is more, while it
/// is held.
type Gradients = (Vec<Tensor>, Option<GradStore>);

/// The tensors with which backward begins.
enum Forward {
    /// The loss, with its whole graph.
    Whole { loss: Tensor },
    /// The loss with the graph after the network; the network's chunks must be recomputed.
    InParts { loss: Tensor, raw: Var, points: Tensor },
}

/// A network, its scene and its optimizer.
pub(crate) struct Training {
    sizes: Sizes,
    scene: Scene,
    nerf: Nerf,
    optimizer: AdamW,
    chance: Chance,
}

impl Training {
    pub(crate) fn new(sizes: Sizes) -> Result<Self> {
        let mut chance = Chance(1);
        made_as(Category::Workspace, warm_up)?;
        let scene = Scene::sphere(sizes.image, &Device::Cpu)?;
        let nerf = Nerf::new([sizes.width, sizes.layers], &mut chance, &Device::Cpu)?;
        Ok(Self { sizes, scene, nerf, optimizer: AdamW::default(), chance })
    }

    /// Runs one step, and returns the loss.
    pub(crate) fn step(&mut self, number: u32) -> Result<f32> {
        scope::step(number);
        let forward = phase(Phase::Forward, || made_as(Category::Activation, || self.forward()))?;
        let loss = forward.loss().clone();
        let gradients = phase(Phase::Backward, || made_as(Category::Temporary, || self.backward(forward)))?;
        phase(Phase::Optimizer, || {
            let parameters = self.nerf.parameters();
            made_as(Category::Temporary, || self.optimizer.step(&parameters, &gradients.0))
        })?;
        // As most programs do it: the loss is read after the step, and until then it holds the whole graph.
        phase(Phase::ZeroGrad, move || {
            drop(gradients);
            loss.to_scalar()
        })
    }

    fn forward(&mut self) -> Result<Forward> {
        let Samples { points, steps } =
            made_as(Category::Temporary, || self.scene.sample(self.sizes.samples, &mut self.chance))?;
        let graph = if self.sizes.checkpoint { Graph::None } else { Graph::Kept };
        let chunks = chunks(&points, self.sizes.chunk)?;
        let category = if self.sizes.checkpoint { Category::Temporary } else { Category::Activation };
        let raw = made_as(category, || {
            let parts = chunks.iter().map(|chunk| self.nerf.look_at(chunk, graph)).collect::<Result<Vec<_>>>()?;
            match &parts[..] {
                [whole] => Ok(whole.clone()),
                _ => op("cat", || Tensor::cat(&parts, 0)),
            }
        })?;
        if self.sizes.checkpoint {
            // A leaf in the network's place: backward ends there, and gives its gradient.
            let raw = op("leaf", || Var::from_tensor(&raw))?;
            return Ok(Forward::InParts { loss: self.loss(raw.as_tensor(), &steps)?, raw, points });
        }
        Ok(Forward::Whole { loss: self.loss(&raw, &steps)? })
    }

    /// The mean squared error of the picture that the network renders.
    fn loss(&self, raw: &Tensor, steps: &Tensor) -> Result<Tensor> {
        module("render", || {
            let (rays, samples) = steps.dims2()?;
            let seen = composite(&raw.reshape((rays, samples, 4))?, steps)?;
            let error = op("sub", || seen - &self.scene.colours)?;
            op("mse", || error.sqr()?.mean_all())
        })
    }

    fn backward(&self, forward: Forward) -> Result<Gradients> {
        match forward {
            Forward::Whole { loss } => {
                let all = op("backward", || loss.backward())?;
                let parameters = self.nerf.parameters().into_iter();
                let of_parameters = parameters.map(|(_, parameter)| gradient_in(&all, parameter));
                let of_parameters = of_parameters.collect::<Result<Vec<_>>>()?;
                of_parameters.iter().for_each(tag_as_gradient);
                Ok((of_parameters, Some(all)))
            }
            Forward::InParts { loss, raw, points } => {
                let of_raw = gradient_in(&op("backward", || loss.backward())?, &raw)?;
                drop((loss, raw));
                let mut of_parameters: Vec<Tensor> = Vec::new();
                let mut first = 0;
                for chunk in chunks(&points, self.sizes.chunk)? {
                    let of_chunk = of_raw.narrow(0, first, chunk.dim(0)?)?;
                    first += chunk.dim(0)?;
                    self.backward_of(&chunk, &of_chunk, &mut of_parameters)?;
                }
                of_parameters.iter().for_each(tag_as_gradient);
                Ok((of_parameters, None))
            }
        }
    }

    /// Recomputes a chunk, runs its backward from the gradient of its result, and accumulates parameter gradients.
    fn backward_of(&self, chunk: &Tensor, of_result: &Tensor, sums: &mut Vec<Tensor>) -> Result<()> {
        let result = made_as(Category::Activation, || self.nerf.look_at(chunk, Graph::Kept))?;
        let all = op("backward", || (result * of_result)?.sum_all()?.backward())?;
        for (position, (_, parameter)) in self.nerf.parameters().into_iter().enumerate() {
            let gradient = gradient_in(&all, parameter)?;
            match sums.get_mut(position) {
                Some(sum) => *sum = op("accumulate", || &*sum + gradient)?,
                None => sums.push(gradient),
            }
        }
        Ok(())
    }
}

impl Forward {
    fn loss(&self) -> &Tensor {
        match self {
            Self::Whole { loss } | Self::InParts { loss, .. } => loss,
        }
    }
}

/// Multiplies matrices, small ones on this thread and large ones on all: each thread's products share memory that its
/// first one takes, and that would carry this one's name for ever.
fn warm_up() -> Result<()> {
    for side in [32, 512] {
        let square = Tensor::ones((side, side), DType::F32, &Device::Cpu)?;
        op("matmul", || square.matmul(&square))?;
    }
    Ok(())
}

/// Splits `points` into parts of at most `most`.
fn chunks(points: &Tensor, most: usize) -> Result<Vec<Tensor>> {
    let count = points.dim(0)?;
    (0..count).step_by(most).map(|first| points.narrow(0, first, most.min(count - first))).collect()
}

fn gradient_in(all: &GradStore, parameter: &Tensor) -> Result<Tensor> {
    let missing = || Error::Msg("a parameter has no gradient: the loss does not depend on it".to_owned());
    all.get(parameter).cloned().ok_or_else(missing)
}

/// Sets the category of a gradient, which backward allocates as temporary and which is known only afterwards.
fn tag_as_gradient(gradient: &Tensor) {
    let (storage, _) = gradient.storage_and_layout();
    if let Storage::Cpu(CpuStorage::F32(numbers)) = &*storage {
        heap::tag(numbers.as_ptr(), Category::Gradient);
    }
}
