//! Gradient accumulation: one step for several small batches, with the memory of one.

use highwater_recorder::{Phase, scope};

use super::in_backward::demand_gradients_left;
use super::loss_scaler::{LossScaler, backward_from_scaled};
use super::optimizer::Optimizer;
use super::rule::demand;
use crate::error::Result;
use crate::tensor::Tensor;

/// Counts the small batches of a large one. Each loss enters with its share, so that the sum of the gradients is the
/// gradient of the mean of the losses.
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
    /// For one step every `batches` small batches. Fails for 0.
    pub fn new(batches: u32) -> Result<Self> {
        demand("accumulation", batches > 0, || "0 batches make no step; expected at least 1".to_owned())?;
        Ok(Self { batches, done: 0 })
    }

    /// Backward from `loss`, a single number, as one of the small batches. No other memory is taken than by
    /// [`Tensor::backward`].
    pub fn backward(&mut self, loss: &Tensor) -> Result<()> {
        self.backward_by(loss, 1.0)
    }

    /// Like [`Self::backward`], of the loss as `scaler` scales it; the step is [`LossScaler::step`], when
    /// [complete](Self::is_complete).
    pub fn backward_scaled(&mut self, loss: &Tensor, scaler: &LossScaler) -> Result<()> {
        self.backward_by(loss, scaler.scale())
    }

    fn backward_by(&mut self, loss: &Tensor, scale: f64) -> Result<()> {
        if self.is_complete() {
            self.done = 0;
        }
        backward_from_scaled(loss, scale / f64::from(self.batches))?;
        self.done += 1;
        Ok(())
    }

    /// Whether the last backward completed the large batch: now is the time for a step, and then for zero_grad.
    pub fn is_complete(&self) -> bool {
        self.done == self.batches
    }

    /// A step and zero_grad, if the large batch is complete; tells whether it was. Fails if there are no gradients
    /// then, since an optimizer in backward has used each up.
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
