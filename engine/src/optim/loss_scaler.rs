//! Loss scaling, which scales losses so that f16 gradients do not underflow, and skips steps whose gradients overflow.

use highwater_recorder::{Category, Phase, scope};

use super::clip::gradients;
use super::in_backward::demand_gradients_left;
use super::optimizer::Optimizer;
use super::pending::run_each;
use super::rule::{demand, scale_in_place};
use crate::autograd::Operation;
use crate::autograd::backward::backward_phase;
use crate::backend::Call;
use crate::nn::Parameter;
use crate::{DType, Error, Result, Tensor, no_grad};

/// Dynamic loss scaling, with the settings, defaults and decisions of PyTorch's `torch.amp.GradScaler`. If a gradient
/// is infinite or NaN, the step is skipped and the scale is reduced. After many finite steps in a row, the scale is
/// increased.
///
/// Gradients are checked on the device, with one f32 as the result, which is read on devices with values. On other
/// devices no step is skipped. A skipped step uses the same memory as any other.
///
/// ```
/// # use highwater_engine::nn::{Init, Linear, Module};
/// # use highwater_engine::optim::{AdamW, Form, LossScaler, MasterWeights, Optimizer, RuleOptimizer};
/// # use highwater_engine::{DType, Device, Tensor};
/// # let device = Device::cpu();
/// # let model = Linear::new(&mut Init::new(&device, DType::F16, 0), [3, 1])?;
/// let rule = MasterWeights { rule: AdamW { form: Form::Fused, ..AdamW::default() } };
/// let mut optimizer = RuleOptimizer::new(rule, model.parameters())?;
/// let mut scaler = LossScaler::default();
/// for _ in 0..3 {
///     let loss = model.forward(&Tensor::ones([8, 3], DType::F16, &device)?)?.mean()?;
///     scaler.backward(&loss)?;
///     scaler.step(&mut optimizer)?;
///     optimizer.zero_grad();
/// }
/// # Ok::<(), highwater_engine::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct LossScaler {
    settings: LossScaling,
    scale: f64,
    good_steps: u32,
    /// Whether a gradient of the next step is infinite or NaN; `None` if the gradients are not unscaled yet.
    unscaled: Option<bool>,
}

/// Settings of a [`LossScaler`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LossScaling {
    /// Initial scale.
    pub first: f64,
    /// Growth factor of the scale, applied after `growth_interval` finite steps in a row.
    pub growth: f64,
    /// Backoff factor of the scale, applied after a skipped step.
    pub backoff: f64,
    /// Number of finite steps in a row after which the scale grows.
    pub growth_interval: u32,
}

impl Default for LossScaling {
    fn default() -> Self {
        Self { first: 65536.0, growth: 2.0, backoff: 0.5, growth_interval: 2000 }
    }
}

impl Default for LossScaler {
    fn default() -> Self {
        let settings = LossScaling::default();
        Self { settings, scale: settings.first, good_steps: 0, unscaled: None }
    }
}

impl LossScaler {
    /// Creates a loss scaler.
    ///
    /// # Errors
    /// Fails if a setting is invalid.
    pub fn new(settings: LossScaling) -> Result<Self> {
        let op = "loss_scaler";
        let LossScaling { first, growth, backoff, growth_interval } = settings;
        demand(op, first > 0.0 && first.is_finite(), || {
            format!("invalid initial scale {first}: expected a number above 0")
        })?;
        demand(op, growth >= 1.0, || format!("invalid growth {growth}: expected at least 1"))?;
        demand(op, backoff > 0.0 && backoff < 1.0, || {
            format!("invalid backoff {backoff}: expected a number between 0 and 1")
        })?;
        demand(op, growth_interval > 0, || "invalid growth_interval 0: expected at least 1".to_owned())?;
        Ok(Self { settings, scale: first, ..Self::default() })
    }

    /// Returns the current scale.
    pub fn scale(&self) -> f64 {
        self.scale
    }

    /// Runs backward from the scaled `loss`, which has one element. Allocates no more memory than [`Tensor::backward`].
    ///
    /// # Errors
    /// Fails if `loss` has more than one element, or if backward fails.
    pub fn backward(&self, loss: &Tensor) -> Result<()> {
        backward_from_scaled(loss, self.scale)
    }

    /// Divides the gradients by the scale before the step, so that they can be clipped or inspected. Does nothing if
    /// they have been divided since the last step.
    ///
    /// # Errors
    /// Fails for f16, where small gradients would underflow to 0. Clip scaled gradients instead, with [`Self::scale`]
    /// times the norm. Also fails if an optimizer [in backward](super::run_in_backward) has already used up gradients.
    pub fn unscale(&mut self, parameters: &[Parameter]) -> Result<()> {
        if self.unscaled.is_none() {
            let is_found = find(parameters)?;
            let _mode = no_grad();
            scale_in_place(gradients(parameters).iter().map(|grad| (grad, 1.0 / self.scale)))?;
            self.unscaled = Some(is_found);
        }
        Ok(())
    }

    /// Runs a step with unscaled gradients, or skips it if a gradient is infinite or NaN, then updates the scale.
    /// Returns whether the step ran.
    ///
    /// # Errors
    /// Fails for f16 gradients that would have to be unscaled in place, or if an optimizer
    /// [in backward](super::run_in_backward) has already used up gradients.
    pub fn step(&mut self, optimizer: &mut dyn Optimizer) -> Result<bool> {
        let _phase = scope::phase_of_call(Phase::Optimizer);
        let (is_found, scale) = match self.unscaled {
            Some(is_found) => (is_found, 1.0),
            None => (find(optimizer.parameters())?, 1.0 / self.scale),
        };
        if is_found {
            optimizer.skip()?;
        } else {
            optimizer.step_scaled(scale)?;
        }
        self.unscaled = None;
        self.change(is_found);
        Ok(!is_found)
    }

    fn change(&mut self, is_found: bool) {
        if is_found {
            self.scale *= self.settings.backoff;
            self.good_steps = 0;
            return;
        }
        self.good_steps += 1;
        if self.good_steps == self.settings.growth_interval {
            self.good_steps = 0;
            let grown = self.scale * self.settings.growth;
            // A larger scale would be infinite in f32.
            if grown <= f64::from(f32::MAX) {
                self.scale = grown;
            }
        }
    }
}

/// Returns whether any gradient is infinite or NaN, or false on devices without values.
fn find(parameters: &[Parameter]) -> Result<bool> {
    let op = "find_nonfinite";
    demand_gradients_left(op, parameters)?;
    let Some(first) = parameters.first() else {
        return Ok(false);
    };
    let _operation = Operation::begin(op, &[]);
    let _category = scope::category(Category::Temporary);
    let found = Tensor::zeros((), DType::F32, first.tensor.device())?;
    run_each(gradients(parameters).iter().map(|grad| {
        found.check_device(op, grad)?;
        Ok(Call::FindNonfinite(found.view(), grad.view()))
    }))?;
    Ok(found.known_item()?.is_some_and(|found| found != 0.0))
}

/// Runs backward from `scale` times `loss`, with the same memory as backward from `loss`.
pub(super) fn backward_from_scaled(loss: &Tensor, scale: f64) -> Result<()> {
    if loss.elements() != 1 {
        return Err(Error::NotScalar { shape: loss.shape().to_string().into() });
    }
    let _phase = backward_phase();
    let grad = {
        let _category = scope::category(Category::Temporary);
        Tensor::full(loss.shape(), scale, loss.dtype(), loss.device())?
    };
    loss.backward_from(grad)
}
