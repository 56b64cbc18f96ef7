//! The trait of models with data that compute a loss, and helpers to build them.

use highwater_recorder::{Category, scope};

use super::options::Options;
use crate::device::Device;
use crate::dtype::DType;
use crate::error::Result;
use crate::nn::{Module, Parameter, checkpoint_scopes};
use crate::rng::Rng;
use crate::shape::Shape;
use crate::tensor::Tensor;

/// A model with its data. Only the loss outlives a forward pass.
pub trait Task {
    /// Runs forward and returns the loss.
    ///
    /// # Errors
    /// If memory cannot be allocated.
    fn loss(&self) -> Result<Tensor>;

    /// Runs backward from `loss`.
    ///
    /// # Errors
    /// If memory cannot be allocated.
    fn backward(&self, loss: &Tensor) -> Result<()> {
        loss.backward()
    }

    /// Returns the model's parameters.
    fn parameters(&self) -> Vec<Parameter>;
}

/// A task whose loss is the sum of the model's outputs.
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

/// A classification task, with mean cross-entropy as the loss.
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

/// Creates an input tensor from the standard normal distribution.
pub(crate) fn random_input(shape: impl Into<Shape>, dtype: DType, device: &Device, rng: &mut Rng) -> Result<Tensor> {
    let _category = scope::category(Category::Input);
    Tensor::randn(shape, dtype, device, rng)
}

/// Creates an input tensor of the labels 0, 1, 2, …, repeated cyclically.
pub(crate) fn labels(count: usize, classes: usize, device: &Device) -> Result<Tensor> {
    let _category = scope::category(Category::Input);
    if !device.has_values() {
        return Tensor::as_from_slice(count, DType::I64, device);
    }
    let labels: Vec<i64> = (0..count).map(|example| (example % classes) as i64).collect();
    Tensor::from_slice(&labels, count, device)
}

/// Returns the random number generator of the data, separate from the model's.
pub(crate) fn data_rng(options: &Options) -> Rng {
    Rng::new(!options.seed)
}

/// Enables checkpointing of the blocks whose scopes match `pattern`, if `options` ask for it.
pub(crate) fn checkpoint_if_asked<M: Module>(model: &M, pattern: &str, options: &Options) {
    if options.checkpoint {
        let blocks = checkpoint_scopes(model, pattern);
        debug_assert!(blocks > 0, "a model has blocks where it says so");
    }
}

/// Freezes the first blocks, up to the number in `options`, and the modules and parameters `before` them; `blocks` is
/// the path of the module that contains the numbered blocks.
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
