//! Parameters of fused optimizer steps, as plain data for every device.

/// One step of stochastic gradient descent. With g = `grad_scale` · gradient + `weight_decay` · p, it computes b ←
/// `momentum` · b + (1 − `dampening`) · g, or b ← g at the first step, and then p ← p − `learning_rate` · b.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SgdStep {
    /// Learning rate.
    pub learning_rate: f64,
    /// Momentum.
    pub momentum: f64,
    /// Dampening of the momentum.
    pub dampening: f64,
    /// Weight decay.
    pub weight_decay: f64,
    /// Whether to use Nesterov momentum, in which the direction is g + `momentum` · b instead of b.
    pub nesterov: bool,
    /// Whether this is the first step, at which the momentum buffer is written but not read.
    pub is_first: bool,
    /// Factor of the gradient.
    pub grad_scale: f64,
}

/// One step of Adam. With g = `grad_scale` · gradient + `weight_decay` · p, and p ← `keep` · p, it computes
/// m ← β₁ · m + (1 − β₁) · g, then v ← β₂ · v + (1 − β₂) · g², then p ← p − `rate` · m / (√v · `square_scale` + `epsilon`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamStep {
    /// The learning rate divided by (1 − β₁ᵗ).
    pub rate: f64,
    /// β₁ and β₂.
    pub betas: [f64; 2],
    /// 1 / √(1 − β₂ᵗ).
    pub square_scale: f64,
    /// Term that keeps the divisor above 0.
    pub epsilon: f64,
    /// L2 penalty, the factor of the parameter that is added to its gradient.
    pub weight_decay: f64,
    /// Factor of the parameter before the step, for decoupled weight decay.
    pub keep: f64,
    /// Factor of the gradient.
    pub grad_scale: f64,
}
