//! Optimizer steps in backward: updates each parameter as soon as its gradient is complete, which is then freed at
//! once.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use highwater_recorder::scope;

use super::rule::{Rule, Update};
use crate::autograd::no_grad;
use crate::error::{Error, Result};
use crate::nn::Parameter;

/// From now on, every backward pass steps and frees each parameter's gradient as soon as it is complete, by hooks that
/// each own the state of one parameter. There is no optimizer phase, and never more than a few gradients are alive.
/// This is the way of PyTorch's tutorial "How to save memory by fusing the optimizer step into the backward pass".
/// A gradient's memory serves as its rule's intermediate result, so every [`Form`](super::Form) takes the same.
///
/// The handle changes the rule's settings. [`Tensor::clear_hooks`](crate::Tensor::clear_hooks) of each parameter undoes
/// it all. Fails if a setting of the rule makes no sense.
pub fn run_in_backward<R: Rule>(rule: &R, parameters: &[Parameter]) -> Result<InBackward<R>> {
    rule.check()?;
    let shared = InBackward { rule: Arc::new(Mutex::new(rule.clone())) };
    for parameter in parameters.iter().filter(|parameter| parameter.tensor.requires_grad()) {
        let (shared, scope) = (shared.clone(), parameter.scope);
        let mut state = None;
        parameter.tensor.on_grad_ready(move |tensor| {
            let Some(grad) = tensor.take_grad() else {
                return Ok(());
            };
            scope::optimizer_ran();
            let _mode = no_grad();
            let rule = shared.rule();
            rule.update(vec![Update {
                parameter: tensor,
                rounded: None,
                scope,
                grad,
                grad_scale: 1.0,
                state: &mut state,
            }])
        })?;
    }
    Ok(shared)
}

/// The settings of a rule that runs in backward. Clones change the same.
#[derive(Clone, Debug)]
pub struct InBackward<R> {
    rule: Arc<Mutex<R>>,
}

impl<R: Rule> InBackward<R> {
    /// A copy of the rule.
    pub fn rule(&self) -> R {
        self.lock().clone()
    }

    /// Changes settings from the next gradient on. Fails, and changes nothing, if one makes no sense.
    pub fn set_rule(&self, rule: R) -> Result<()> {
        rule.check()?;
        *self.lock() = rule;
        Ok(())
    }

    /// Changes how far a step goes.
    pub fn set_learning_rate(&self, rate: f64) {
        self.lock().set_learning_rate(rate);
    }

    fn lock(&self) -> MutexGuard<'_, R> {
        // Replaced whole, so it is sound also after a panic elsewhere.
        self.rule.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Fails, for operation `op`, if a gradient is gone because an optimizer in backward has used it up: what `op` does
/// needs the gradients of all parameters after backward.
pub(super) fn demand_gradients_left(op: &'static str, parameters: &[Parameter]) -> Result<()> {
    let is_gone = |parameter: &&Parameter| parameter.tensor.grad().is_none() && parameter.tensor.has_hooks();
    match parameters.iter().find(is_gone) {
        None => Ok(()),
        Some(parameter) => {
            let what = format!(
                "the optimizer of '{}' runs within backward, which has used its gradient up; step after backward instead",
                parameter.path
            );
            Err(Error::Setting { op, what })
        }
    }
}
