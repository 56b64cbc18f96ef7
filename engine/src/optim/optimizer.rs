//! Optimizers, which apply an update rule to the parameters of a model.

use std::fmt;

use highwater_recorder::{Phase, scope};

use super::rule::{Rule, Update, scale_in_place};
use crate::backend::arithmetic;
use crate::nn::Parameter;
use crate::{Result, no_grad};

/// The interface between a training loop and its optimizer.
pub trait Optimizer {
    /// Updates every parameter that has a gradient. A parameter's state is allocated at its first step, as optimizer
    /// state.
    ///
    /// # Errors
    /// See [`Self::step_scaled`].
    fn step(&mut self) -> Result<()> {
        self.step_scaled(1.0)
    }

    /// Like [`Self::step`], with every gradient multiplied by `scale`. Gradients may be overwritten.
    ///
    /// # Errors
    /// Fails if memory cannot be allocated, or for f16 gradients if scaling them in place would lose small values.
    fn step_scaled(&mut self, scale: f64) -> Result<()>;

    /// Allocates and frees the same memory as a step, but changes nothing. A step that is skipped because of its values
    /// then has the same recording as on a device without values.
    ///
    /// # Errors
    /// Fails if memory cannot be allocated.
    fn skip(&mut self) -> Result<()>;

    /// Drops all gradients, which frees their memory until the next backward.
    fn zero_grad(&mut self);

    /// Returns the parameters that the optimizer updates.
    fn parameters(&self) -> &[Parameter];

    /// Returns the learning rate.
    fn learning_rate(&self) -> f64;

    /// Sets the learning rate.
    fn set_learning_rate(&mut self, rate: f64);
}

/// An [`Optimizer`] that updates parameters with a [`Rule`].
pub struct RuleOptimizer<R: Rule> {
    rule: R,
    parameters: Vec<Parameter>,
    states: Vec<Option<R::State>>,
}

impl<R: Rule> RuleOptimizer<R> {
    /// Creates an optimizer that applies `rule` to the `parameters` that require a gradient.
    ///
    /// # Errors
    /// Fails if a setting of the rule is invalid.
    pub fn new(rule: R, parameters: Vec<Parameter>) -> Result<Self> {
        rule.check()?;
        let parameters: Vec<Parameter> =
            parameters.into_iter().filter(|parameter| parameter.tensor.requires_grad()).collect();
        let states = parameters.iter().map(|_| None).collect();
        Ok(Self { rule, parameters, states })
    }

    /// Returns the rule with its settings.
    pub fn rule(&self) -> &R {
        &self.rule
    }
}

impl<R: Rule> Optimizer for RuleOptimizer<R> {
    fn step_scaled(&mut self, scale: f64) -> Result<()> {
        let _phase = scope::phase_of_call(Phase::Optimizer);
        let _mode = no_grad();
        let with_grad = self.parameters.iter().zip(&mut self.states).filter_map(|(parameter, state)| {
            let (grad, scope) = (parameter.tensor.grad()?, parameter.scope);
            Some(Update { parameter: &parameter.tensor, rounded: None, scope, grad, grad_scale: scale, state })
        });
        let mut updates: Vec<_> = with_grad.collect();
        if !self.rule.is_fused() {
            scale_all_in_place(&mut updates)?;
        }
        self.rule.update(updates)
    }

    fn skip(&mut self) -> Result<()> {
        let _arithmetic = arithmetic::leave_out();
        self.step()
    }

    fn zero_grad(&mut self) {
        let grads: Vec<_> = self.parameters.iter().filter_map(|parameter| parameter.tensor.take_grad()).collect();
        // Without gradients, as before the first step, no phase is recorded.
        let _phase = if grads.is_empty() { None } else { scope::phase_of_call(Phase::ZeroGrad) };
        drop(grads);
    }

    fn parameters(&self) -> &[Parameter] {
        &self.parameters
    }

    fn learning_rate(&self) -> f64 {
        self.rule.learning_rate()
    }

    fn set_learning_rate(&mut self, rate: f64) {
        self.rule.set_learning_rate(rate);
    }
}

/// Multiplies each gradient by its scale, and resets the scale to 1.
pub(super) fn scale_all_in_place<S>(updates: &mut [Update<'_, S>]) -> Result<()> {
    scale_in_place(updates.iter().map(|update| (&update.grad, update.grad_scale)))?;
    updates.iter_mut().for_each(|update| update.grad_scale = 1.0);
    Ok(())
}

impl<R: Rule + fmt::Debug> fmt::Debug for RuleOptimizer<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} over {} parameters", self.rule, self.parameters.len())
    }
}
