//! SGD: stochastic gradient descent, with momentum, weight decay and Nesterov's variant.

use super::rule::{Form, Rule, Update, decayed_grads, demand, remember};
use crate::autograd::Operation;
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

impl Rule for Sgd {
    /// The direction, in the parameter's shape and type.
    type State = Tensor;

    fn check(&self) -> Result<()> {
        let op = "sgd";
        for (name, value) in
            [("learning_rate", self.learning_rate), ("momentum", self.momentum), ("weight_decay", self.weight_decay)]
        {
            demand(op, value >= 0.0, || format!("{name} is {value}; give 0 or more"))?;
        }
        let can_look_ahead = self.momentum > 0.0 && self.dampening == 0.0;
        demand(op, !self.nesterov || can_look_ahead, || {
            "nesterov needs a momentum above 0 and a dampening of 0".to_owned()
        })
    }

    fn update(&self, updates: &mut [Update<'_, Tensor>]) -> Result<()> {
        match self.form {
            Form::Foreach => self.update_together(updates),
            Form::PerTensor => updates.chunks_mut(1).try_for_each(|update| self.update_together(update)),
        }
    }
}

impl Sgd {
    fn update_together(&self, updates: &mut [Update<'_, Tensor>]) -> Result<()> {
        let grads = decayed_grads("sgd.weight_decay", updates, self.weight_decay)?;
        if self.momentum != 0.0 {
            self.turn(updates, &grads)?;
        }
        let _operation = Operation::begin("sgd.update");
        for (update, grad) in updates.iter().zip(&grads) {
            match &*update.state {
                Some(direction) if self.nesterov => {
                    update.parameter.add_scaled_(grad, -self.learning_rate)?;
                    update.parameter.add_scaled_(direction, -self.learning_rate * self.momentum)?;
                }
                Some(direction) => update.parameter.add_scaled_(direction, -self.learning_rate)?,
                None => update.parameter.add_scaled_(grad, -self.learning_rate)?,
            }
        }
        Ok(())
    }

    /// Turns the directions towards the gradients.
    fn turn(&self, updates: &mut [Update<'_, Tensor>], grads: &[Tensor]) -> Result<()> {
        let _operation = Operation::begin("sgd.momentum");
        for (update, grad) in updates.iter_mut().zip(grads) {
            match &*update.state {
                Some(direction) => {
                    direction.affine_(self.momentum, 0.0)?;
                    direction.add_scaled_(grad, 1.0 - self.dampening)?;
                }
                None => *update.state = Some(remember(update.scope, || grad.copied())?),
            }
        }
        Ok(())
    }
}
