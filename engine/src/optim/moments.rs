//! The running averages of gradient and squared gradient that Adam and AdamW share, and the step along them.

use highwater_recorder::scope;

use super::pending::{Going, Pending, Step, run_each};
use super::rule::{Form, Target, Update, begin_fused, count, decayed_grads, demand, demand_not_negative, remember};
use crate::autograd::Operation;
use crate::backend::{AdamStep, Binary, Call, Ternary, Unary};
use crate::error::Result;
use crate::tensor::Tensor;

/// The state that Adam keeps for a parameter.
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
        let _operation = Operation::begin("adam.state", &[]);
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

/// The part shared by Adam and AdamW: a step along the averages.
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
    pub(super) fn update(&self, updates: Vec<Update<'_, Moments>>) -> Result<()> {
        let mut pending = Pending::default();
        self.prepare(updates, &mut pending)?;
        pending.run()
    }

    /// [`Self::update`], of which fused steps are left to `pending`.
    pub(super) fn prepare<'a>(&self, mut updates: Vec<Update<'a, Moments>>, pending: &mut Pending<'a>) -> Result<()> {
        Moments::count_steps(&mut updates)?;
        match self.form {
            Form::Foreach => self.together(updates),
            Form::PerTensor => updates.into_iter().try_for_each(|update| self.together(vec![update])),
            Form::Fused => self.fused(updates, pending),
        }
    }

    fn together(&self, updates: Vec<Update<'_, Moments>>) -> Result<()> {
        let [beta_mean, beta_square] = self.betas;
        if self.keep != 1.0 {
            let op = "adamw.weight_decay";
            let _operation = Operation::begin(op, &[]);
            let decay = Unary::Affine { scale: self.keep, shift: 0.0 };
            run_each(updates.iter().map(|update| update.parameter.map_call(op, decay)))?;
        }
        let (grads, targets) = decayed_grads("adam.weight_decay", updates, self.weight_decay)?;
        let weight = Binary::Lerp(1.0 - beta_mean);
        in_turn("adam.mean", &targets, &grads, |op, grad, _, moments| moments.mean.zip_call(op, weight, grad))?;
        let square = Ternary::AddMul { keep: beta_square, scale: 1.0 - beta_square };
        in_turn("adam.square", &targets, &grads, |op, grad, _, moments| {
            moments.square.combine_call(op, square, grad, grad)
        })?;
        let divisors = self.divisors(&targets, grads)?;
        in_turn("adam.update", &targets, &divisors, |op, divisor, parameter, moments| {
            let [correction, _] = self.corrections(moments.steps);
            let step = Ternary::AddDiv(-self.learning_rate / correction);
            parameter.combine_call(op, step, &moments.mean, divisor)
        })
    }

    /// What the averaged gradients are divided by, made of the averaged squares: in the gradients' memory where that is
    /// free, else in new memory, after the gradient was let go. PyTorch keeps these for all parameters at once, too:
    /// that is what makes its step the peak.
    fn divisors(&self, targets: &[Target<'_, Moments>], grads: Vec<Tensor>) -> Result<Vec<Tensor>> {
        let _operation = Operation::begin("adam.sqrt", &[]);
        let mut divisors = Vec::with_capacity(grads.len());
        for (target, grad) in targets.iter().zip(grads) {
            let _scope = scope::scope_again(target.scope);
            let Some(moments) = &*target.state else { continue };
            divisors.push(if grad.is_free_to_write() {
                grad
            } else {
                drop(grad);
                moments.square.same_shape()?
            });
        }
        let known = targets.iter().filter_map(|target| target.state.as_ref());
        run_each(divisors.iter().zip(known).map(|(divisor, moments)| {
            let [_, correction] = self.corrections(moments.steps);
            let root = Unary::AffineSqrt { scale: 1.0 / correction.sqrt(), shift: self.epsilon };
            Ok(Call::Unary(divisor.view(), root, Some(moments.square.view())))
        }))?;
        Ok(divisors)
    }

    fn fused<'a>(&self, updates: Vec<Update<'a, Moments>>, pending: &mut Pending<'a>) -> Result<()> {
        let op = "adam.fused";
        let _operation = Operation::begin(op, &[]);
        for update in updates {
            let Update { parameter, rounded, grad, grad_scale, state, .. } = update;
            let Some(moments) = &*state else { continue };
            begin_fused(op, parameter)?;
            let step = self.fused_step(moments.steps, grad_scale);
            let going = Going::Adam([&moments.mean, &moments.square], step);
            pending.add(Step { parameter, rounded, grad, going });
        }
        Ok(())
    }
}

/// Operation `op`: calls of one parameter after another, each with one of `operands`.
fn in_turn<'a>(
    op: &'static str,
    targets: &'a [Target<'_, Moments>],
    operands: &'a [Tensor],
    call: impl Fn(&'static str, &'a Tensor, &'a Tensor, &'a Moments) -> Result<Call<'a>>,
) -> Result<()> {
    let _operation = Operation::begin(op, &[]);
    run_each(targets.iter().zip(operands).filter_map(|(target, operand)| {
        let moments = target.state.as_ref()?;
        Some(call(op, operand, target.parameter, moments))
    }))
}
