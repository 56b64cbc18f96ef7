//! Descriptions of a fused optimizer step, as plain data for every device.

/// One step of stochastic gradient descent. With g = `grad_scale` · gradient + `weight_decay` · p:
/// b ← `momentum` · b + (1 − `dampening`) · g, at the first step b ← g; p ← p − `learning_rate` · b.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SgdStep {
    /// How far the step goes.
    pub learning_rate: f64,
    /// The share of the former direction b that is kept.
    pub momentum: f64,
    /// The share of the gradient that does not enter the direction.
    pub dampening: f64,
    /// The share of the parameter that is added to its gradient.
    pub weight_decay: f64,
    /// Goes along g + `momentum` · b instead of b.
    pub nesterov: bool,
    /// There is no former direction: its memory is written, not read.
    pub is_first: bool,
    /// The factor of the gradient.
    pub grad_scale: f64,
}

/// One step of Adam. With g = `grad_scale` · gradient + `weight_decay` · p, and p ← `keep` · p:
/// m ← β₁ · m + (1 − β₁) · g; v ← β₂ · v + (1 − β₂) · g²; p ← p − `rate` · m / (√v · `square_scale` + `epsilon`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamStep {
    /// The learning rate, over 1 − β₁ᵗ.
    pub rate: f64,
    /// β₁ and β₂.
    pub betas: [f64; 2],
    /// 1 / √(1 − β₂ᵗ).
    pub square_scale: f64,
    /// Keeps the divisor above 0.
    pub epsilon: f64,
    /// The share of the parameter that is added to its gradient.
    pub weight_decay: f64,
    /// The share of itself that the parameter keeps.
    pub keep: f64,
    /// The factor of the gradient.
    pub grad_scale: f64,
}
