//! Adam, and AdamW with decoupled weight decay.

use highwater_recorder::scope;

use super::pending::{Going, Pending, Step, run_each};
use super::rule::{
    Form, Rule, Target, Update, begin_fused, count, decayed_grads, demand, demand_not_negative, remember,
};
use crate::autograd::Operation;
use crate::backend::{AdamStep, Binary, Call, Ternary, Unary};
use crate::{Result, Tensor};

/// Adam (Kingma and Ba, 2015), with the settings, defaults and arithmetic of PyTorch's `torch.optim.Adam`.
///
/// m ← β₁ · m + (1 − β₁) · g; v ← β₂ · v + (1 − β₂) · g²; p ← p − learning_rate / (1 − β₁ᵗ) · m / (√v / √(1 − β₂ᵗ) +
/// ε), where g is the gradient plus weight_decay · p.
pub type Adam = AdamRule<false>;

/// Adam with decoupled weight decay (Loshchilov and Hutter, 2019), with the settings, defaults and arithmetic of
/// PyTorch's `torch.optim.AdamW`. Before the step, p ← p · (1 − learning_rate · weight_decay).
pub type AdamW = AdamRule<true>;

/// [`Adam`], or [`AdamW`] if its weight decay is decoupled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamRule<const IS_DECOUPLED: bool> {
    /// Learning rate.
    pub learning_rate: f64,
    /// Decay rates of the running averages of the gradient and of its square.
    pub betas: [f64; 2],
    /// Added to the divisor for numerical stability.
    pub epsilon: f64,
    /// Weight decay. If decoupled, it is multiplied by the learning rate. Otherwise (L2), this multiple of the
    /// parameter is added to its gradient.
    pub weight_decay: f64,
    /// The form of the loop over many parameters.
    pub form: Form,
}

impl<const IS_DECOUPLED: bool> Default for AdamRule<IS_DECOUPLED> {
    fn default() -> Self {
        let weight_decay = if IS_DECOUPLED { 1e-2 } else { 0.0 };
        Self { learning_rate: 1e-3, betas: [0.9, 0.999], epsilon: 1e-8, weight_decay, form: Form::default() }
    }
}

/// The state of Adam for a parameter.
#[derive(Debug)]
pub struct Moments {
    /// Number of steps so far, without skipped ones.
    steps: u32,
    mean: Tensor,
    square: Tensor,
}

impl Moments {
    /// Counts a step for each parameter, and allocates its averages at the first step.
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

impl<const IS_DECOUPLED: bool> Rule for AdamRule<IS_DECOUPLED> {
    type State = Moments;

    fn check(&self) -> Result<()> {
        self.check_as(if IS_DECOUPLED { "adamw" } else { "adam" })
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

    fn prepare<'a>(&self, mut updates: Vec<Update<'a, Moments>>, pending: &mut Pending<'a>) -> Result<()> {
        Moments::count_steps(&mut updates)?;
        match self.form {
            Form::Foreach => self.together(updates),
            Form::PerTensor => updates.into_iter().try_for_each(|update| self.together(vec![update])),
            Form::Fused => self.fused(updates, pending),
        }
    }
}

impl<const IS_DECOUPLED: bool> AdamRule<IS_DECOUPLED> {
    pub(super) fn check_as(&self, op: &'static str) -> Result<()> {
        let Self { learning_rate, epsilon, weight_decay, .. } = *self;
        let settings = [("learning_rate", learning_rate), ("epsilon", epsilon), ("weight_decay", weight_decay)];
        demand_not_negative(op, &settings)?;
        let check = |beta: f64| {
            let what = || format!("invalid beta {beta}: expected a number from 0 up to but not including 1");
            demand(op, (0.0..1.0).contains(&beta), what)
        };
        self.betas.into_iter().try_for_each(check)
    }

    /// Returns the factor of the parameter before the step, and the multiple of it that is added to its gradient.
    fn decay(&self) -> [f64; 2] {
        if IS_DECOUPLED { [1.0 - self.learning_rate * self.weight_decay, 0.0] } else { [1.0, self.weight_decay] }
    }

    /// Returns the bias corrections 1 − β₁ᵗ and 1 − β₂ᵗ.
    fn corrections(&self, steps: u32) -> [f64; 2] {
        // A skipped step before the first computes nothing, but must not divide by 0.
        self.betas.map(|beta| 1.0 - beta.powf(f64::from(steps.max(1))))
    }

    /// Returns the settings of a fused step, where `steps` includes this step.
    pub(super) fn fused_step(&self, steps: u32, grad_scale: f64) -> AdamStep {
        let ([mean, square], [keep, weight_decay]) = (self.corrections(steps), self.decay());
        AdamStep {
            rate: self.learning_rate / mean,
            betas: self.betas,
            square_scale: 1.0 / square.sqrt(),
            epsilon: self.epsilon,
            weight_decay,
            keep,
            grad_scale,
        }
    }

    fn together(&self, updates: Vec<Update<'_, Moments>>) -> Result<()> {
        let ([beta_mean, beta_square], [keep, weight_decay]) = (self.betas, self.decay());
        if keep != 1.0 {
            let op = "adamw.weight_decay";
            let _operation = Operation::begin(op, &[]);
            let decay = Unary::Affine { scale: keep, shift: 0.0 };
            run_each(updates.iter().map(|update| update.parameter.map_call(op, decay)))?;
        }
        let (grads, targets) = decayed_grads("adam.weight_decay", updates, weight_decay)?;
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

    /// Computes the divisors of the update from the averages of squares. They are in the gradients' memory if it is not
    /// shared, otherwise in new memory, after the gradient has been dropped. As in PyTorch, the divisors of all
    /// parameters are live at the same time.
    fn divisors(&self, targets: &[Target<'_, Moments>], grads: Vec<Tensor>) -> Result<Vec<Tensor>> {
        let _operation = Operation::begin("adam.sqrt", &[]);
        let mut divisors = Vec::with_capacity(grads.len());
        for (target, grad) in targets.iter().zip(grads) {
            let _scope = scope::enter_scope_id(target.scope);
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

/// Runs operation `op` for each parameter in order, with its element of `operands`.
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
