//! Moments: the running averages of gradient and square that Adam and AdamW share, and the step along them.

use highwater_recorder::scope;

use super::rule::{Form, Target, Update, begin_fused, count, decayed_grads, demand, demand_not_negative, remember};
use crate::autograd::Operation;
use crate::backend::{self, AdamStep, Unary};
use crate::error::Result;
use crate::tensor::Tensor;

/// What Adam remembers for a parameter.
#[derive(Debug)]
pub struct Moments {
    /// Steps so far, kept on the host.
    steps: u32,
    /// The running average of the gradient.
    mean: Tensor,
    /// The running average of its square.
    square: Tensor,
}

impl Moments {
    /// Counts a step of each parameter; at its first, its averages are made.
    pub(super) fn count_steps(updates: &mut [Update<'_, Self>]) -> Result<()> {
        let _operation = Operation::begin("adam.state");
        for update in updates {
            if update.state.is_none() {
                let zeros = || update.parameter.zeros_like();
                let make = || Ok(Self { steps: 0, mean: zeros()?, square: zeros()? });
                *update.state = Some(remember(update.scope, make)?);
            }
            if let Some(moments) = update.state {
                count(&mut moments.steps);
            }
        }
        Ok(())
    }
}

/// What Adam and AdamW have in common: a step along the averages.
#[derive(Clone, Copy)]
pub(super) struct Averaging {
    pub(super) learning_rate: f64,
    pub(super) betas: [f64; 2],
    pub(super) epsilon: f64,
    /// The share of the parameter that is added to its gradient.
    pub(super) weight_decay: f64,
    /// The share of itself that the parameter keeps.
    pub(super) keep: f64,
    pub(super) form: Form,
}

impl Averaging {
    /// Fails, naming optimizer `op`, if a setting makes no sense.
    pub(super) fn check(&self, op: &'static str) -> Result<()> {
        let Self { learning_rate, epsilon, weight_decay, .. } = *self;
        let settings = [("learning_rate", learning_rate), ("epsilon", epsilon), ("weight_decay", weight_decay)];
        demand_not_negative(op, &settings)?;
        let check = |beta: f64| {
            let what = || format!("a beta is {beta}; give a number from 0 up to but not including 1");
            demand(op, (0.0..1.0).contains(&beta), what)
        };
        self.betas.into_iter().try_for_each(check)
    }

    /// 1 − β₁ᵗ and 1 − β₂ᵗ, by which averages that began at 0 are too small.
    fn corrections(&self, steps: u32) -> [f64; 2] {
        // A step that is left out before the first computes nothing, but need not divide by 0 either.
        self.betas.map(|beta| 1.0 - beta.powf(f64::from(steps.max(1))))
    }

    /// What a fused step after `steps` steps, itself included, computes.
    pub(super) fn fused_step(&self, steps: u32, grad_scale: f64) -> AdamStep {
        let [mean, square] = self.corrections(steps);
        AdamStep {
            rate: self.learning_rate / mean,
            betas: self.betas,
            square_scale: 1.0 / square.sqrt(),
            epsilon: self.epsilon,
            weight_decay: self.weight_decay,
            keep: self.keep,
            grad_scale,
        }
    }

    /// Adds to the averages and moves the parameters along them.
    pub(super) fn update(&self, mut updates: Vec<Update<'_, Moments>>) -> Result<()> {
        Moments::count_steps(&mut updates)?;
        match self.form {
            Form::Foreach => self.together(updates),
            Form::PerTensor => updates.into_iter().try_for_each(|update| self.together(vec![update])),
            Form::Fused => self.fused(updates),
        }
    }

    fn together(&self, updates: Vec<Update<'_, Moments>>) -> Result<()> {
        let [beta_mean, beta_square] = self.betas;
        if self.keep != 1.0 {
            let _operation = Operation::begin("adamw.weight_decay");
            updates.iter().try_for_each(|update| update.parameter.affine_(self.keep, 0.0))?;
        }
        let (grads, targets) = decayed_grads("adam.weight_decay", updates, self.weight_decay)?;
        in_turn("adam.mean", &targets, &grads, |grad, _, moments| moments.mean.lerp_(grad, 1.0 - beta_mean))?;
        in_turn("adam.square", &targets, &grads, |grad, _, moments| {
            moments.square.affine_(beta_square, 0.0)?;
            moments.square.addcmul_(grad, grad, 1.0 - beta_square)
        })?;
        let divisors = roots(&targets, grads)?;
        in_turn("adam.divisor", &targets, &divisors, |divisor, _, moments| {
            let [_, correction] = self.corrections(moments.steps);
            divisor.affine_(1.0 / correction.sqrt(), self.epsilon)
        })?;
        in_turn("adam.update", &targets, &divisors, |divisor, parameter, moments| {
            let [correction, _] = self.corrections(moments.steps);
            parameter.addcdiv_(&moments.mean, divisor, -self.learning_rate / correction)
        })
    }

    fn fused(&self, updates: Vec<Update<'_, Moments>>) -> Result<()> {
        let op = "adam.fused";
        let _operation = Operation::begin(op);
        for update in updates {
            let _scope = scope::scope_again(update.scope);
            let Some(moments) = &*update.state else { continue };
            begin_fused(op, update.parameter)?;
            let step = self.fused_step(moments.steps, update.grad_scale);
            let rounded = update.rounded.map(Tensor::view);
            let averages = [moments.mean.view(), moments.square.view()];
            backend::adam(update.parameter.view(), rounded, update.grad.view(), averages, step)?;
        }
        Ok(())
    }
}

/// The square roots of the averaged squares: in the gradients' memory where that is free, else in new memory, after the
/// gradient was let go. PyTorch keeps these for all parameters at once, too: that is what makes its step the peak.
fn roots(targets: &[Target<'_, Moments>], grads: Vec<Tensor>) -> Result<Vec<Tensor>> {
    let _operation = Operation::begin("adam.sqrt");
    let mut roots = Vec::with_capacity(grads.len());
    for (target, grad) in targets.iter().zip(grads) {
        let _scope = scope::scope_again(target.scope);
        let Some(moments) = &*target.state else { continue };
        let root = if grad.is_free_to_write() {
            grad
        } else {
            drop(grad);
            moments.square.same_shape()?
        };
        backend::unary(root.view(), Unary::Sqrt, Some(moments.square.view()))?;
        roots.push(root);
    }
    Ok(roots)
}

/// Operation `op`, for one parameter after another, each within its own scope and with one of `operands`.
fn in_turn(
    op: &'static str,
    targets: &[Target<'_, Moments>],
    operands: &[Tensor],
    mut each: impl FnMut(&Tensor, &Tensor, &Moments) -> Result<()>,
) -> Result<()> {
    let _operation = Operation::begin(op);
    for (target, operand) in targets.iter().zip(operands) {
        let _scope = scope::scope_again(target.scope);
        if let Some(moments) = &*target.state {
            each(operand, target.parameter, moments)?;
        }
    }
    Ok(())
}
