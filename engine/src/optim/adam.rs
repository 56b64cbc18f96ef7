//! Adam, and AdamW with decoupled weight decay.

use super::moments::{Averaging, Moments};
use super::pending::Pending;
use super::rule::{Form, Rule, Update};
use crate::error::Result;

/// Adam (Kingma and Ba, 2015), with the settings, defaults and arithmetic of PyTorch's `torch.optim.Adam`.
///
/// m ← β₁ · m + (1 − β₁) · g; v ← β₂ · v + (1 − β₂) · g²;
/// p ← p − learning_rate / (1 − β₁ᵗ) · m / (√v / √(1 − β₂ᵗ) + ε), where g is the gradient plus weight_decay · p.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Adam {
    /// Learning rate.
    pub learning_rate: f64,
    /// Decay rates of the running averages of the gradient and of its square.
    pub betas: [f64; 2],
    /// Added to the divisor for numerical stability.
    pub epsilon: f64,
    /// Weight decay (L2): this multiple of the parameter is added to its gradient.
    pub weight_decay: f64,
    /// The form of the loop over many parameters.
    pub form: Form,
}

impl Default for Adam {
    fn default() -> Self {
        Self { learning_rate: 1e-3, betas: [0.9, 0.999], epsilon: 1e-8, weight_decay: 0.0, form: Form::default() }
    }
}

/// Adam with decoupled weight decay (Loshchilov and Hutter, 2019), with the settings, defaults and arithmetic of
/// PyTorch's `torch.optim.AdamW`: before the step, p ← p · (1 − learning_rate · weight_decay).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamW {
    /// Learning rate.
    pub learning_rate: f64,
    /// Decay rates of the running averages of the gradient and of its square.
    pub betas: [f64; 2],
    /// Added to the divisor for numerical stability.
    pub epsilon: f64,
    /// Decoupled weight decay; multiplied by the learning rate.
    pub weight_decay: f64,
    /// The form of the loop over many parameters.
    pub form: Form,
}

impl Default for AdamW {
    fn default() -> Self {
        let Adam { learning_rate, betas, epsilon, form, .. } = Adam::default();
        Self { learning_rate, betas, epsilon, weight_decay: 1e-2, form }
    }
}

/// A rule whose step is an [`Averaging`].
trait Averaged: Clone + Send + 'static {
    fn averaging(&self) -> Averaging;

    fn learning_rate_mut(&mut self) -> &mut f64;
}

impl<R: Averaged> Rule for R {
    type State = Moments;

    fn check(&self) -> Result<()> {
        self.averaging().check()
    }

    fn learning_rate(&self) -> f64 {
        self.averaging().learning_rate
    }

    fn set_learning_rate(&mut self, rate: f64) {
        *self.learning_rate_mut() = rate;
    }

    fn is_fused(&self) -> bool {
        self.averaging().form == Form::Fused
    }

    fn prepare<'a>(&self, updates: Vec<Update<'a, Moments>>, pending: &mut Pending<'a>) -> Result<()> {
        self.averaging().prepare(updates, pending)
    }
}

impl Averaged for Adam {
    fn averaging(&self) -> Averaging {
        let Self { learning_rate, betas, epsilon, weight_decay, form } = *self;
        Averaging { op: "adam", learning_rate, betas, epsilon, weight_decay, is_decoupled: false, form }
    }

    fn learning_rate_mut(&mut self) -> &mut f64 {
        &mut self.learning_rate
    }
}

impl Averaged for AdamW {
    fn averaging(&self) -> Averaging {
        let Self { learning_rate, betas, epsilon, weight_decay, form } = *self;
        Averaging { op: "adamw", learning_rate, betas, epsilon, weight_decay, is_decoupled: true, form }
    }

    fn learning_rate_mut(&mut self) -> &mut f64 {
        &mut self.learning_rate
    }
}
