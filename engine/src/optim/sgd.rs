//! Stochastic gradient descent with momentum, weight decay and Nesterov momentum.

use super::pending::{Going, Pending, Step, run_each};
use super::rule::{Form, Rule, Update, begin_fused, count, decayed_grads, demand, demand_not_negative, remember};
use crate::autograd::Operation;
use crate::backend::{Binary, SgdStep, Unary};
use crate::{Result, Tensor};

/// Stochastic gradient descent, with the settings, defaults and arithmetic of PyTorch's `torch.optim.SGD`:
///
/// g ← g + weight_decay · p; b ← momentum · b + (1 − dampening) · g, at the first step b ← g;
/// p ← p − learning_rate · b, or with Nesterov's variant p ← p − learning_rate · (g + momentum · b).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sgd {
    /// Learning rate.
    pub learning_rate: f64,
    /// Momentum factor. With 0, no state is kept.
    pub momentum: f64,
    /// Dampening of the momentum.
    pub dampening: f64,
    /// Weight decay (L2), the multiple of the parameter that is added to its gradient.
    pub weight_decay: f64,
    /// Enables Nesterov momentum (Sutskever et al., 2013). Requires momentum and no dampening.
    pub nesterov: bool,
    /// The form of the loop over many parameters.
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

/// The state of [`Sgd`] for a parameter, if there is momentum.
#[derive(Debug)]
pub struct Momentum {
    /// Number of steps so far, without skipped ones. The buffer is uninitialized before the first step.
    steps: u32,
    /// Momentum buffer, with the parameter's shape and dtype.
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

    fn prepare<'a>(&self, mut updates: Vec<Update<'a, Momentum>>, pending: &mut Pending<'a>) -> Result<()> {
        if self.momentum != 0.0 {
            let _operation = Operation::begin("sgd.state", &[]);
            updates.iter_mut().try_for_each(count_step)?;
        }
        match self.form {
            Form::Foreach => self.update_together(updates),
            Form::PerTensor => updates.into_iter().try_for_each(|update| self.update_together(vec![update])),
            Form::Fused => self.prepare_fused(updates, pending),
        }
    }
}

/// Counts a step, and allocates the momentum buffer at the first step.
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
    fn direction<'a>(&self, state: &'a Option<Momentum>) -> Option<&'a Momentum> {
        state.as_ref().filter(|_| self.momentum != 0.0)
    }

    fn update_together(&self, updates: Vec<Update<'_, Momentum>>) -> Result<()> {
        let (grads, targets) = decayed_grads("sgd.weight_decay", updates, self.weight_decay)?;
        let known: Vec<Known<'_>> = targets
            .iter()
            .zip(&grads)
            .map(|(target, grad)| Known { parameter: target.parameter, grad, momentum: self.direction(target.state) })
            .collect();
        if self.momentum != 0.0 {
            self.turn("sgd.momentum", &known)?;
        }
        let op = "sgd.update";
        let _operation = Operation::begin(op, &[]);
        let step = Binary::AddScaled(-self.learning_rate);
        if self.nesterov {
            run_each(known.iter().map(|known| known.parameter.zip_call(op, step, known.grad)))?;
            let further = Binary::AddScaled(-self.learning_rate * self.momentum);
            let with_momentum = known.iter().filter_map(|known| Some((known.parameter, &known.momentum?.direction)));
            return run_each(with_momentum.map(|(parameter, direction)| parameter.zip_call(op, further, direction)));
        }
        run_each(known.iter().map(|known| {
            let way = known.momentum.map_or(known.grad, |momentum| &momentum.direction);
            known.parameter.zip_call(op, step, way)
        }))
    }

    /// Updates the momentum buffers with the gradients.
    fn turn(&self, op: &'static str, known: &[Known<'_>]) -> Result<()> {
        let _operation = Operation::begin(op, &[]);
        let mut former = Vec::with_capacity(known.len());
        for Known { grad, momentum, .. } in known {
            match momentum {
                Some(Momentum { steps: 0 | 1, direction }) => direction.copy_(grad)?,
                Some(Momentum { direction, .. }) => former.push((direction, *grad)),
                None => {}
            }
        }
        let keep = Unary::Affine { scale: self.momentum, shift: 0.0 };
        run_each(former.iter().map(|(direction, _)| direction.map_call(op, keep)))?;
        let enter = Binary::AddScaled(1.0 - self.dampening);
        run_each(former.iter().map(|(direction, grad)| direction.zip_call(op, enter, grad)))
    }

    fn prepare_fused<'a>(&self, updates: Vec<Update<'a, Momentum>>, pending: &mut Pending<'a>) -> Result<()> {
        let op = "sgd.fused";
        let _operation = Operation::begin(op, &[]);
        for update in updates {
            let Update { parameter, rounded, grad, grad_scale, state, .. } = update;
            begin_fused(op, parameter)?;
            let momentum = self.direction(state);
            let step = SgdStep {
                learning_rate: self.learning_rate,
                momentum: self.momentum,
                dampening: self.dampening,
                weight_decay: self.weight_decay,
                nesterov: self.nesterov,
                is_first: momentum.is_some_and(|momentum| momentum.steps <= 1),
                grad_scale,
            };
            let going = Going::Sgd(momentum.map(|momentum| &momentum.direction), step);
            pending.add(Step { parameter, rounded, grad, going });
        }
        Ok(())
    }
}

struct Known<'a> {
    parameter: &'a Tensor,
    grad: &'a Tensor,
    momentum: Option<&'a Momentum>,
}
