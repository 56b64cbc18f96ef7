//! Learning rate schedules, which return the rate of each step.

use std::f64::consts::PI;

/// A learning rate schedule. Steps count from 0.
///
/// ```
/// # use highwater_engine::nn::{Init, Linear, Module};
/// # use highwater_engine::optim::{AdamW, Optimizer, Schedule, RuleOptimizer};
/// # use highwater_engine::{DType, Device};
/// # let model = Linear::new(&mut Init::new(&Device::cpu(), DType::F32, 0), [3, 1])?;
/// let mut optimizer = RuleOptimizer::new(AdamW::default(), model.parameters())?;
/// let schedule = Schedule::Cosine { peak: 3e-4, warmup: 10, steps: 100, floor: 3e-5 };
/// for step in 0..100 {
///     optimizer.set_learning_rate(schedule.at(step));
///     // forward, backward, optimizer.step() …
/// }
/// # Ok::<(), highwater_engine::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Schedule {
    /// Constant learning rate.
    Constant {
        /// Learning rate.
        rate: f64,
    },
    /// Multiplies the learning rate by a factor at regular intervals, like PyTorch's `StepLR`.
    Step {
        /// Initial learning rate.
        first: f64,
        /// Number of steps between two decays.
        every: u64,
        /// Decay factor.
        factor: f64,
    },
    /// Linear warmup from 0, then linear decay.
    Linear {
        /// Peak learning rate.
        peak: f64,
        /// Number of warmup steps; step `warmup` has the peak learning rate.
        warmup: u64,
        /// Step from which on the learning rate is `floor`.
        steps: u64,
        /// Final learning rate.
        floor: f64,
    },
    /// Linear warmup from 0, then cosine decay (Loshchilov and Hutter, 2017), like PyTorch's `CosineAnnealingLR`.
    Cosine {
        /// Peak learning rate.
        peak: f64,
        /// Number of warmup steps; step `warmup` has the peak learning rate.
        warmup: u64,
        /// Step from which on the learning rate is `floor`.
        steps: u64,
        /// Final learning rate.
        floor: f64,
    },
    /// One cycle: cosine increase, then cosine decay (Smith and Topin, 2018), like PyTorch's `OneCycleLR`.
    OneCycle {
        /// Peak learning rate.
        peak: f64,
        /// Total number of steps.
        steps: u64,
        /// Fraction of the steps in which the rate increases: 0.3 in PyTorch.
        rising: f64,
        /// Ratio of the peak to the initial learning rate: 25 in PyTorch.
        start_divisor: f64,
        /// Ratio of the initial to the final learning rate: 10,000 in PyTorch.
        end_divisor: f64,
    },
}

impl Schedule {
    /// Returns the learning rate of step `step`.
    pub fn at(&self, step: u64) -> f64 {
        match *self {
            Self::Constant { rate } => rate,
            Self::Step { first, every, factor } => first * factor.powf((step / every.max(1)) as f64),
            Self::Linear { peak, warmup, steps, floor } => {
                warmed_up(peak, warmup, step).unwrap_or_else(|| peak + (floor - peak) * share(step, warmup, steps))
            }
            Self::Cosine { peak, warmup, steps, floor } => {
                warmed_up(peak, warmup, step).unwrap_or_else(|| half_cosine(peak, floor, share(step, warmup, steps)))
            }
            Self::OneCycle { peak, steps, rising, start_divisor, end_divisor } => {
                let first = peak / start_divisor;
                // Positions of the peak and of the final learning rate; both may be between steps.
                let (top, last) = (rising * steps as f64 - 1.0, steps as f64 - 1.0);
                let step = (step as f64).min(last);
                if step <= top {
                    half_cosine(first, peak, step / top)
                } else {
                    half_cosine(peak, first / end_divisor, (step - top) / (last - top))
                }
            }
        }
    }
}

/// Returns the learning rate of a warmup step, or `None` after the warmup.
fn warmed_up(peak: f64, warmup: u64, step: u64) -> Option<f64> {
    (step < warmup).then(|| peak * step as f64 / warmup as f64)
}

/// Returns the position of `step` between `first` and `last`, from 0 to 1.
fn share(step: u64, first: u64, last: u64) -> f64 {
    if step >= last { 1.0 } else { (step - first) as f64 / (last - first) as f64 }
}

/// Interpolates between `from` and `to` along half a cosine.
fn half_cosine(from: f64, to: f64, share: f64) -> f64 {
    // The share is 0 / 0 if the interval is empty.
    let share = if share.is_nan() { 0.0 } else { share };
    to + (from - to) * (1.0 + (PI * share).cos()) / 2.0
}
