//! The trait of models with data that compute a loss, and functions that create them.

use highwater_recorder::{Category, scope};

use super::options::Options;
use crate::nn::{Module, Parameter, checkpoint_scopes};
use crate::{DType, Device, Error, Result, Rng, Shape, Tensor};

/// A model with its data. Only the loss outlives a forward pass.
pub trait Task {
    /// Runs forward on `part` of the batch and returns the loss. A task without a batch receives only the whole.
    ///
    /// # Errors
    /// Fails if memory cannot be allocated.
    fn loss(&self, part: MicroBatch) -> Result<Tensor>;

    /// Runs backward from `loss`, which is that of the whole batch, or of a micro-batch if the losses are summed.
    ///
    /// # Errors
    /// Fails if memory cannot be allocated.
    fn backward(&self, loss: &Tensor) -> Result<()> {
        loss.backward()
    }

    /// Returns how the loss of a batch is computed from the losses of its parts; `None` if the batch cannot be split.
    fn batch(&self) -> Option<Batch> {
        None
    }

    /// Returns the model's parameters.
    fn parameters(&self) -> Vec<Parameter>;
}

/// A batch that can be split into micro-batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Batch size.
    pub size: usize,
    /// The reduction of the losses of micro-batches.
    pub loss: Reduction,
}

/// The computation of a loss from the losses of the parts of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduction {
    /// The loss of the batch is the mean of the losses of its parts.
    Mean,
    /// The loss of the batch is the sum of the losses of its parts.
    Sum,
}

/// One of the equal parts of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MicroBatch {
    index: usize,
    count: usize,
}

impl MicroBatch {
    /// Returns the `count` parts of a batch in order. With a `count` of 1, the part is the whole batch.
    pub fn all(count: usize) -> impl Iterator<Item = Self> {
        (0..count).map(move |index| Self { index, count })
    }

    /// Returns this part of `batch`, a tensor whose first axis is divided among the examples of the batch, as a view.
    ///
    /// # Errors
    /// Fails if the parts would not be equal.
    pub fn of(self, batch: &Tensor) -> Result<Tensor> {
        let Self { index, count } = self;
        if count == 1 {
            return Ok(batch.clone());
        }
        let rows = batch.shape()[0];
        check_parts(rows, count)?;
        batch.narrow(0, index * (rows / count), rows / count)
    }
}

pub(crate) fn check_parts(size: usize, count: usize) -> Result<()> {
    if count > 0 && size.is_multiple_of(count) {
        return Ok(());
    }
    let what = format!("a batch of {size} cannot be split into {count} equal micro-batches; give a divisor of {size}");
    Err(Error::Setting { op: "--accumulate", what })
}

struct Training<M, F> {
    model: M,
    batch: Option<Batch>,
    loss: F,
}

impl<M: Module, F: Fn(&M, MicroBatch) -> Result<Tensor>> Task for Training<M, F> {
    fn loss(&self, part: MicroBatch) -> Result<Tensor> {
        (self.loss)(&self.model, part)
    }

    fn batch(&self) -> Option<Batch> {
        self.batch
    }

    fn parameters(&self) -> Vec<Parameter> {
        self.model.parameters()
    }
}

/// Returns the task of a model whose batch cannot be split.
pub(crate) fn of_whole<M: Module + 'static>(
    model: M,
    loss: impl Fn(&M) -> Result<Tensor> + 'static,
) -> Result<Box<dyn Task>> {
    Ok(Box::new(Training { model, batch: None, loss: move |model: &M, _| loss(model) }))
}

pub(crate) fn of_batch<M: Module + 'static>(
    model: M,
    (size, reduction): (usize, Reduction),
    loss: impl Fn(&M, MicroBatch) -> Result<Tensor> + 'static,
) -> Result<Box<dyn Task>> {
    Ok(Box::new(Training { model, batch: Some(Batch { size, loss: reduction }), loss }))
}

/// Returns a classification task, with mean cross-entropy as the loss.
pub(crate) fn classification<M: Module + 'static>(model: M, input: Tensor, labels: Tensor) -> Result<Box<dyn Task>> {
    of_batch(model, (input.shape()[0], Reduction::Mean), move |model, part| {
        model.forward(&part.of(&input)?)?.cross_entropy(&part.of(&labels)?, None)
    })
}

/// Creates an input tensor from the standard normal distribution.
pub(crate) fn random_input(shape: impl Into<Shape>, dtype: DType, device: &Device, rng: &mut Rng) -> Result<Tensor> {
    let _category = scope::category(Category::Input);
    Tensor::randn(shape, dtype, device, rng)
}

/// Creates an input tensor of the labels 0, 1, 2 and so on, repeated cyclically.
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

/// Enables checkpointing of the modules given in `options`. The pattern `blocks` matches the paths of the model's
/// blocks.
pub(crate) fn checkpoint_if_asked<M: Module>(model: &M, blocks: &str, options: &Options) -> Result<()> {
    if options.checkpoint.blocks {
        checkpoint_scopes(model, blocks)?;
    }
    for pattern in &options.checkpoint.scopes {
        checkpoint_scopes(model, &pattern.to_string()).map_err(|_| {
            let what = format!("no module matches '{pattern}'; the blocks of the model are {blocks}");
            Error::Setting { op: "--checkpoint", what }
        })?;
    }
    Ok(())
}

/// Freezes the first blocks, as many as `options` request, and the modules and parameters `before` them. `blocks` is
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
