//! Gradient accumulation, with one step for several micro-batches and the memory of one micro-batch.

use highwater_recorder::{Phase, scope};

use super::in_backward::demand_gradients_left;
use super::loss_scaler::backward_from_scaled;
use super::optimizer::Optimizer;
use super::rule::demand;
use crate::{Result, Tensor};

/// Gradient accumulation over the micro-batches of one step. Each loss is divided by their number, so that the sum of
/// the gradients is the gradient of the mean loss.
///
/// ```
/// # use highwater_engine::nn::{Init, Linear, Module};
/// # use highwater_engine::optim::{Accumulation, AdamW, Optimizer, RuleOptimizer};
/// # use highwater_engine::{DType, Device, Tensor};
/// # let device = Device::cpu();
/// # let model = Linear::new(&mut Init::new(&device, DType::F32, 0), [3, 1])?;
/// # let mut optimizer = RuleOptimizer::new(AdamW::default(), model.parameters())?;
/// # let batches = vec![Tensor::ones([8, 3], DType::F32, &device)?; 8];
/// let mut accumulation = Accumulation::new(4)?;
/// for batch in &batches {
///     let loss = model.forward(batch)?.mean()?;
///     accumulation.backward(&loss)?;
///     accumulation.step(&mut optimizer)?;
/// }
/// # Ok::<(), highwater_engine::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accumulation {
    batches: u32,
    done: u32,
}

impl Accumulation {
    /// Accumulates `batches` micro-batches per step.
    ///
    /// # Errors
    /// Fails if `batches` is 0.
    pub fn new(batches: u32) -> Result<Self> {
        demand("accumulation", batches > 0, || "invalid number of micro-batches 0: expected at least 1".to_owned())?;
        Ok(Self { batches, done: 0 })
    }

    /// Runs backward from `loss`, which has one element, as one of the micro-batches. Allocates no more memory than
    /// [`Tensor::backward`].
    ///
    /// # Errors
    /// Fails if `loss` has more than one element, or if backward fails.
    pub fn backward(&mut self, loss: &Tensor) -> Result<()> {
        if self.is_complete() {
            self.done = 0;
        }
        backward_from_scaled(loss, 1.0 / f64::from(self.batches))?;
        self.done += 1;
        Ok(())
    }

    /// Returns whether the last backward completed the batch, so that a step and then `zero_grad` are due.
    pub fn is_complete(&self) -> bool {
        self.done == self.batches
    }

    /// Runs a step and `zero_grad` if the batch is complete, and returns whether it was.
    ///
    /// # Errors
    /// Fails if the batch is complete but an optimizer in backward has already used up gradients, or if the step fails.
    pub fn step(&mut self, optimizer: &mut dyn Optimizer) -> Result<bool> {
        if !self.is_complete() {
            return Ok(false);
        }
        demand_gradients_left("accumulation", optimizer.parameters())?;
        {
            let _phase = scope::phase_of_call(Phase::Optimizer);
            optimizer.step()?;
        }
        let _phase = scope::phase_of_call(Phase::ZeroGrad);
        optimizer.zero_grad();
        self.done = 0;
        Ok(true)
    }
}
