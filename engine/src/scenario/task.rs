//! A model with its data, ready to compute a loss.

use highwater_recorder::{Category, scope};

use super::options::Options;
use crate::device::Device;
use crate::dtype::DType;
use crate::error::Result;
use crate::nn::{Module, Parameter, checkpoint_scopes};
use crate::rng::Rng;
use crate::shape::Shape;
use crate::tensor::Tensor;

/// A model with its data. The loss is the only thing that outlives a forward.
pub trait Task {
    /// Runs forward.
    fn loss(&self) -> Result<Tensor>;

    /// Runs backward.
    fn backward(&self, loss: &Tensor) -> Result<()> {
        loss.backward()
    }

    /// What is trained.
    fn parameters(&self) -> Vec<Parameter>;
}

/// The sum of what a model makes of its input.
pub(crate) struct SumOfResults<M> {
    pub(crate) model: M,
    pub(crate) input: Tensor,
}

impl<M: Module> Task for SumOfResults<M> {
    fn loss(&self) -> Result<Tensor> {
        self.model.forward(&self.input)?.sum()
    }

    fn parameters(&self) -> Vec<Parameter> {
        self.model.parameters()
    }
}

/// How well a model tells its inputs' labels: the mean cross-entropy.
pub(crate) struct Classification<M> {
    pub(crate) model: M,
    pub(crate) input: Tensor,
    pub(crate) labels: Tensor,
}

impl<M: Module> Task for Classification<M> {
    fn loss(&self) -> Result<Tensor> {
        self.model.forward(&self.input)?.cross_entropy(&self.labels, None)
    }

    fn parameters(&self) -> Vec<Parameter> {
        self.model.parameters()
    }
}

/// Normal numbers, recorded as input.
pub(crate) fn random_input(shape: impl Into<Shape>, dtype: DType, device: &Device, rng: &mut Rng) -> Result<Tensor> {
    let _category = scope::category(Category::Input);
    Tensor::randn(shape, dtype, device, rng)
}

/// The labels 0, 1, 2, … over and over, recorded as input.
pub(crate) fn labels(count: usize, classes: usize, device: &Device) -> Result<Tensor> {
    let _category = scope::category(Category::Input);
    if !device.has_values() {
        return Tensor::as_from_slice(count, DType::I64, device);
    }
    let labels: Vec<i64> = (0..count).map(|example| (example % classes) as i64).collect();
    Tensor::from_slice(&labels, count, device)
}

/// The random numbers of the data, separate from the model's.
pub(crate) fn data_rng(options: &Options) -> Rng {
    Rng::new(!options.seed)
}

/// Has the model's blocks, whose scopes match `pattern`, run again in backward if that is asked for.
pub(crate) fn checkpoint_if_asked<M: Module>(model: &M, pattern: &str, options: &Options) {
    if options.checkpoint {
        let blocks = checkpoint_scopes(model, pattern);
        debug_assert!(blocks > 0, "a model has blocks where it says so");
    }
}

/// Has the first blocks not trained, as many as are asked for, nor the modules and parameters `before` them; blocks are
/// numbered within `blocks`.
pub(crate) fn freeze_if_asked<M: Module>(model: &M, before: &[&str], blocks: &str, options: &Options) -> Result<()> {
    let Some(count) = options.sizes.freeze else {
        return Ok(());
    };
    for parameter in model.parameters() {
        let within = |module: &str| {
            parameter.path.strip_prefix(module).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        let number = parameter.path.strip_prefix(blocks).and_then(|rest| rest.strip_prefix('.')?.split('.').next());
        let is_early = number.and_then(|number| number.parse().ok()).is_some_and(|number: usize| number < count);
        if is_early || before.iter().any(|module| within(module)) {
            parameter.tensor.set_requires_grad(false)?;
        }
    }
    Ok(())
}
