//! SGD: stochastic gradient descent, with momentum, weight decay and Nesterov's variant.

use highwater_recorder::scope;

use super::rule::{Form, Rule, Update, begin_fused, count, decayed_grads, demand, demand_not_negative, remember};
use crate::autograd::Operation;
use crate::backend::{self, SgdStep};
use crate::error::Result;
use crate::tensor::Tensor;

/// Stochastic gradient descent, with the settings, defaults and arithmetic of PyTorch's `torch.optim.SGD`:
///
/// g ← g + weight_decay · p; b ← momentum · b + (1 − dampening) · g, at the first step b ← g;
/// p ← p − learning_rate · b, or with Nesterov's variant p ← p − learning_rate · (g + momentum · b).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sgd {
    /// How far a step goes.
    pub learning_rate: f64,
    /// The share of the former direction that is kept; 0 keeps no state.
    pub momentum: f64,
    /// The share of the gradient that does not enter the direction.
    pub dampening: f64,
    /// The share of the parameter that is added to its gradient (L2).
    pub weight_decay: f64,
    /// Looks one step ahead (Sutskever et al., 2013). Needs momentum, and no dampening.
    pub nesterov: bool,
    /// How it goes through many parameters.
    pub form: Form,
}

impl Default for Sgd {
    fn default() -> Self {
        Self {
            learning_rate: 1e-3,
            momentum: 0.0,
            dampening: 0.0,
            weight_decay: 0.0,
            nesterov: false,
            form: Form::default(),
        }
    }
}

/// What [`Sgd`] remembers for a parameter, if it has momentum.
#[derive(Debug)]
pub struct Momentum {
    /// Steps so far, kept on the host. Before the first, the direction means nothing.
    steps: u32,
    /// The direction, in the parameter's shape and type.
    direction: Tensor,
}

impl Rule for Sgd {
    type State = Momentum;

    fn check(&self) -> Result<()> {
        let op = "sgd";
        let Self { learning_rate, momentum, weight_decay, .. } = *self;
        let settings = [("learning_rate", learning_rate), ("momentum", momentum), ("weight_decay", weight_decay)];
        demand_not_negative(op, &settings)?;
        let can_look_ahead = self.momentum > 0.0 && self.dampening == 0.0;
        demand(op, !self.nesterov || can_look_ahead, || {
            "nesterov needs a momentum above 0 and a dampening of 0".to_owned()
        })
    }

    fn learning_rate(&self) -> f64 {
        self.learning_rate
    }

    fn set_learning_rate(&mut self, rate: f64) {
        self.learning_rate = rate;
    }

    fn is_fused(&self) -> bool {
        self.form == Form::Fused
    }

    fn update(&self, mut updates: Vec<Update<'_, Momentum>>) -> Result<()> {
        if self.momentum != 0.0 {
            let _operation = Operation::begin("sgd.state");
            updates.iter_mut().try_for_each(count_step)?;
        }
        match self.form {
            Form::Foreach => self.update_together(updates),
            Form::PerTensor => updates.into_iter().try_for_each(|update| self.update_together(vec![update])),
            Form::Fused => self.update_fused(updates),
        }
    }
}

/// Counts a step; at the first, there is memory for a direction.
fn count_step(update: &mut Update<'_, Momentum>) -> Result<()> {
    if update.state.is_none() {
        let make = || Ok(Momentum { steps: 0, direction: update.parameter.same_shape()? });
        *update.state = Some(remember(update.scope, make)?);
    }
    if let Some(momentum) = update.state {
        count(&mut momentum.steps);
    }
    Ok(())
}

impl Sgd {
    /// The direction, if there is momentum.
    fn direction<'a>(&self, state: &'a Option<Momentum>) -> Option<&'a Momentum> {
        state.as_ref().filter(|_| self.momentum != 0.0)
    }

    fn update_together(&self, updates: Vec<Update<'_, Momentum>>) -> Result<()> {
        let (grads, targets) = decayed_grads("sgd.weight_decay", updates, self.weight_decay)?;
        if self.momentum != 0.0 {
            // Turns the directions towards the gradients.
            let _operation = Operation::begin("sgd.momentum");
            for (target, grad) in targets.iter().zip(&grads) {
                match self.direction(target.state) {
                    Some(Momentum { steps: 0 | 1, direction }) => direction.copy_(grad)?,
                    Some(Momentum { direction, .. }) => {
                        direction.affine_(self.momentum, 0.0)?;
                        direction.add_scaled_(grad, 1.0 - self.dampening)?;
                    }
                    None => {}
                }
            }
        }
        let _operation = Operation::begin("sgd.update");
        for (target, grad) in targets.iter().zip(&grads) {
            match self.direction(target.state) {
                Some(Momentum { direction, .. }) if self.nesterov => {
                    target.parameter.add_scaled_(grad, -self.learning_rate)?;
                    target.parameter.add_scaled_(direction, -self.learning_rate * self.momentum)?;
                }
                Some(Momentum { direction, .. }) => target.parameter.add_scaled_(direction, -self.learning_rate)?,
                None => target.parameter.add_scaled_(grad, -self.learning_rate)?,
            }
        }
        Ok(())
    }

    fn update_fused(&self, updates: Vec<Update<'_, Momentum>>) -> Result<()> {
        let op = "sgd.fused";
        let _operation = Operation::begin(op);
        for update in updates {
            let _scope = scope::scope_again(update.scope);
            begin_fused(op, update.parameter)?;
            let momentum = self.direction(update.state);
            let step = SgdStep {
                learning_rate: self.learning_rate,
                momentum: self.momentum,
                dampening: self.dampening,
                weight_decay: self.weight_decay,
                nesterov: self.nesterov,
                is_first: momentum.is_some_and(|momentum| momentum.steps <= 1),
                grad_scale: update.grad_scale,
            };
            let direction = momentum.map(|momentum| momentum.direction.view());
            let rounded = update.rounded.map(Tensor::view);
            backend::sgd(update.parameter.view(), rounded, update.grad.view(), direction, step)?;
        }
        Ok(())
    }
}
