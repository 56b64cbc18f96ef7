//! Adam: steps scaled by running averages of the gradient and of its square; and AdamW, which decays weights apart.

use highwater_recorder::scope;

use super::rule::{Form, Rule, Update, decayed_grads, demand, remember};
use crate::autograd::Operation;
use crate::backend::Unary;
use crate::error::Result;
use crate::tensor::Tensor;

/// Adam (Kingma and Ba, 2015), with the settings, defaults and arithmetic of PyTorch's `torch.optim.Adam`.
///
/// m ← β₁ · m + (1 − β₁) · g; v ← β₂ · v + (1 − β₂) · g²;
/// p ← p − learning_rate / (1 − β₁ᵗ) · m / (√v / √(1 − β₂ᵗ) + ε), where g is the gradient and weight_decay · p.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Adam {
    /// How far a step goes.
    pub learning_rate: f64,
    /// The shares of the former averages that are kept: of the gradient and of its square.
    pub betas: [f64; 2],
    /// Keeps the divisor above 0.
    pub epsilon: f64,
    /// The share of the parameter that is added to its gradient (L2).
    pub weight_decay: f64,
    /// How it goes through many parameters.
    pub form: Form,
}

impl Default for Adam {
    fn default() -> Self {
        Self { learning_rate: 1e-3, betas: [0.9, 0.999], epsilon: 1e-8, weight_decay: 0.0, form: Form::default() }
    }
}

/// Adam whose weight decay does not pass through the averages (Loshchilov and Hutter, 2019), with the settings,
/// defaults and arithmetic of PyTorch's `torch.optim.AdamW`: before the step, p ← p · (1 − learning_rate · weight_decay).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamW {
    /// How far a step goes.
    pub learning_rate: f64,
    /// The shares of the former averages that are kept: of the gradient and of its square.
    pub betas: [f64; 2],
    /// Keeps the divisor above 0.
    pub epsilon: f64,
    /// The share of itself that a parameter loses in a step, times the learning rate.
    pub weight_decay: f64,
    /// How it goes through many parameters.
    pub form: Form,
}

impl Default for AdamW {
    fn default() -> Self {
        let Adam { learning_rate, betas, epsilon, form, .. } = Adam::default();
        Self { learning_rate, betas, epsilon, weight_decay: 1e-2, form }
    }
}

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

impl Rule for Adam {
    type State = Moments;

    fn check(&self) -> Result<()> {
        check(self, "adam")
    }

    fn update(&self, updates: &mut [Update<'_, Moments>]) -> Result<()> {
        each_group(self.form, updates, |group| {
            count_step(group)?;
            average_and_move(self, group)
        })
    }
}

impl Rule for AdamW {
    type State = Moments;

    fn check(&self) -> Result<()> {
        check(&self.without_decay(), "adamw")?;
        demand("adamw", self.weight_decay >= 0.0, || format!("weight_decay is {}; give 0 or more", self.weight_decay))
    }

    fn update(&self, updates: &mut [Update<'_, Moments>]) -> Result<()> {
        each_group(self.form, updates, |group| {
            count_step(group)?;
            if self.weight_decay != 0.0 {
                let _operation = Operation::begin("adamw.weight_decay");
                let keep = 1.0 - self.learning_rate * self.weight_decay;
                group.iter().try_for_each(|update| update.parameter.affine_(keep, 0.0))?;
            }
            average_and_move(&self.without_decay(), group)
        })
    }
}

impl AdamW {
    fn without_decay(&self) -> Adam {
        let Self { learning_rate, betas, epsilon, form, .. } = *self;
        Adam { learning_rate, betas, epsilon, weight_decay: 0.0, form }
    }
}

fn check(rule: &Adam, op: &'static str) -> Result<()> {
    for (name, value) in
        [("learning_rate", rule.learning_rate), ("epsilon", rule.epsilon), ("weight_decay", rule.weight_decay)]
    {
        demand(op, value >= 0.0, || format!("{name} is {value}; give 0 or more"))?;
    }
    for beta in rule.betas {
        demand(op, (0.0..1.0).contains(&beta), || {
            format!("a beta is {beta}; give a number from 0 up to but not including 1")
        })?;
    }
    Ok(())
}

type Group<'a, 'b> = &'a mut [Update<'b, Moments>];

fn each_group(form: Form, updates: Group<'_, '_>, mut step: impl FnMut(Group<'_, '_>) -> Result<()>) -> Result<()> {
    match form {
        Form::Foreach => step(updates),
        Form::PerTensor => updates.chunks_mut(1).try_for_each(step),
    }
}

/// Counts a step for each parameter; at its first, its averages are made.
fn count_step(updates: Group<'_, '_>) -> Result<()> {
    let _operation = Operation::begin("adam.state");
    for update in updates {
        if update.state.is_none() {
            let zeros = || update.parameter.zeros_like();
            *update.state =
                Some(remember(update.scope, || Ok(Moments { steps: 0, mean: zeros()?, square: zeros()? }))?);
        }
        if let Some(moments) = update.state {
            moments.steps += 1;
        }
    }
    Ok(())
}

fn average_and_move(rule: &Adam, updates: Group<'_, '_>) -> Result<()> {
    let [beta_mean, beta_square] = rule.betas;
    let grads = decayed_grads("adam.weight_decay", updates, rule.weight_decay)?;
    in_turn("adam.mean", updates, |index, _, moments| moments.mean.lerp_(&grads[index], 1.0 - beta_mean))?;
    in_turn("adam.square", updates, |index, _, moments| {
        moments.square.affine_(beta_square, 0.0)?;
        moments.square.addcmul_(&grads[index], &grads[index], 1.0 - beta_square)
    })?;
    drop(grads);
    // PyTorch keeps these for all parameters at once, too: that is what makes its optimizer step the peak.
    let mut divisors = Vec::with_capacity(updates.len());
    in_turn("adam.sqrt", updates, |_, _, moments| {
        divisors.push(moments.square.map(Unary::Sqrt)?);
        Ok(())
    })?;
    in_turn("adam.divisor", updates, |index, _, moments| {
        let correction = 1.0 - beta_square.powi(moments.steps as i32);
        divisors[index].affine_(1.0 / correction.sqrt(), rule.epsilon)
    })?;
    in_turn("adam.update", updates, |index, parameter, moments| {
        let correction = 1.0 - beta_mean.powi(moments.steps as i32);
        parameter.addcdiv_(&moments.mean, &divisors[index], -rule.learning_rate / correction)
    })
}

/// Operation `op`, for one parameter after another, each within its own scope.
fn in_turn(
    op: &'static str,
    updates: Group<'_, '_>,
    mut each: impl FnMut(usize, &Tensor, &Moments) -> Result<()>,
) -> Result<()> {
    let _operation = Operation::begin(op);
    for (index, update) in updates.iter().enumerate() {
        let _scope = scope::scope_again(update.scope);
        if let Some(moments) = &*update.state {
            each(index, update.parameter, moments)?;
        }
    }
    Ok(())
}
