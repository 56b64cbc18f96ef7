//! Optimizers: apply an update rule to the parameters of a model.

use std::fmt;

use highwater_recorder::{Phase, scope};

use super::rule::{Rule, Update, scale_in_place};
use crate::autograd::no_grad;
use crate::backend::arithmetic;
use crate::error::Result;
use crate::nn::Parameter;

/// What a training loop does with its optimizer.
pub trait Optimizer {
    /// Changes every parameter that has a gradient. State is allocated at a parameter's first step, as optimizer state.
    fn step(&mut self) -> Result<()> {
        self.step_scaled(1.0)
    }

    /// Like [`Self::step`], with every gradient multiplied by `scale`. Gradients may be changed. Fails for f16 where
    /// that would lose small gradients.
    fn step_scaled(&mut self, scale: f64) -> Result<()>;

    /// Takes and frees all the memory that a step would, and changes nothing: so that a step that is skipped for its
    /// values' sake looks the same in a recording as on a device that knows no values.
    fn skip(&mut self) -> Result<()>;

    /// Drops all gradients, so that their memory is free until the next backward.
    fn zero_grad(&mut self);

    /// What it changes.
    fn parameters(&self) -> &[Parameter];

    /// How far a step goes.
    fn learning_rate(&self) -> f64;

    /// Changes how far a step goes: a [`Schedule`](super::Schedule) tells how.
    fn set_learning_rate(&mut self, rate: f64);
}

/// An [`Optimizer`] that steps by a [`Rule`].
pub struct RuleOptimizer<R: Rule> {
    rule: R,
    parameters: Vec<Parameter>,
    states: Vec<Option<R::State>>,
}

impl<R: Rule> RuleOptimizer<R> {
    /// Applies `rule` to those of `parameters` that require a gradient. Fails if a setting of the rule makes no sense.
    pub fn new(rule: R, parameters: Vec<Parameter>) -> Result<Self> {
        rule.check()?;
        let parameters: Vec<Parameter> =
            parameters.into_iter().filter(|parameter| parameter.tensor.requires_grad()).collect();
        let states = parameters.iter().map(|_| None).collect();
        Ok(Self { rule, parameters, states })
    }

    /// The rule with its settings.
    pub fn rule(&self) -> &R {
        &self.rule
    }

    /// The rule, to change settings between steps: a learning rate, for example.
    pub fn rule_mut(&mut self) -> &mut R {
        &mut self.rule
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
        // Where there are none, as before the first step, nothing is done.
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

/// Multiplies each gradient with its scale, which is 1 from then on.
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
