//! Optimizer steps in backward, which update each parameter as soon as its gradient is complete, and free the gradient
//! at once.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use highwater_recorder::scope;

use super::rule::{Rule, Update};
use crate::nn::Parameter;
use crate::{Error, Result, no_grad};

/// Makes every following backward pass update each parameter and free its gradient as soon as the gradient is complete,
/// using hooks that each own the state of one parameter. There is no optimizer phase, and only a few gradients are live
/// at any time. This is the method of PyTorch's tutorial "How to save memory by fusing the optimizer step into the
/// backward pass". The rule's intermediate results are written to the gradient's memory, so every [`Form`](super::Form)
/// uses the same memory.
///
/// The returned handle can change the learning rate.
///
/// # Errors
/// Fails if a setting of the rule is invalid.
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

/// Handle to the settings of a rule that runs in backward. Clones share the settings.
#[derive(Clone, Debug)]
pub struct InBackward<R> {
    rule: Arc<Mutex<R>>,
}

impl<R: Rule> InBackward<R> {
    /// Returns a copy of the rule.
    pub fn rule(&self) -> R {
        self.lock().clone()
    }

    /// Sets the learning rate, starting with the next gradient.
    pub fn set_learning_rate(&self, rate: f64) {
        self.lock().set_learning_rate(rate);
    }

    fn lock(&self) -> MutexGuard<'_, R> {
        // Always replaced as a whole, so it is valid even after a panic elsewhere.
        self.rule.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns an error if an optimizer in backward has already used up a gradient. Called by operation `op`, which needs
/// the gradients of all parameters after backward.
pub(super) fn demand_gradients_left(op: &'static str, parameters: &[Parameter]) -> Result<()> {
    let is_gone = |parameter: &&Parameter| parameter.tensor.grad().is_none() && parameter.tensor.has_hooks();
    match parameters.iter().find(is_gone) {
        None => Ok(()),
        Some(parameter) => {
            let what = format!(
                "the gradient of '{}' was already used by an optimizer in backward; step after backward instead",
                parameter.path
            );
            Err(Error::Setting { op, what })
        }
    }
}
