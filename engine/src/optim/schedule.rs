//! Learning rate schedules, as plain values.

use std::f64::consts::PI;

/// How the learning rate changes from step to step. Steps count from 0.
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
    /// Always the same.
    Constant {
        /// The rate.
        rate: f64,
    },
    /// Falls by a factor at regular intervals, like PyTorch's `StepLR`.
    Step {
        /// The rate at first.
        first: f64,
        /// Steps between two falls.
        every: u64,
        /// What the rate is multiplied with.
        factor: f64,
    },
    /// Rises evenly from 0, then falls evenly.
    Linear {
        /// The highest rate.
        peak: f64,
        /// Steps of rising; step `warmup` has the highest rate.
        warmup: u64,
        /// The step from which on the rate is `floor`.
        steps: u64,
        /// The last rate.
        floor: f64,
    },
    /// Rises evenly from 0, then falls along half a cosine (Loshchilov and Hutter, 2017), like PyTorch's
    /// `CosineAnnealingLR`.
    Cosine {
        /// The highest rate.
        peak: f64,
        /// Steps of rising; step `warmup` has the highest rate.
        warmup: u64,
        /// The step from which on the rate is `floor`.
        steps: u64,
        /// The last rate.
        floor: f64,
    },
    /// Rises along half a cosine, then falls along another (Smith and Topin, 2018), like PyTorch's `OneCycleLR`.
    OneCycle {
        /// The highest rate.
        peak: f64,
        /// How many steps there are.
        steps: u64,
        /// The share of the steps that rise: 0.3 in PyTorch.
        rising: f64,
        /// The first rate is the highest over this: 25 in PyTorch.
        start_divisor: f64,
        /// The last rate is the first over this: 10,000 in PyTorch.
        end_divisor: f64,
    },
}

impl Schedule {
    /// The learning rate of step `step`.
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
                // The places of the highest and of the last rate; both may lie between steps.
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

/// The rate of a step that rises evenly.
fn warmed_up(peak: f64, warmup: u64, step: u64) -> Option<f64> {
    (step < warmup).then(|| peak * step as f64 / warmup as f64)
}

/// How far `step` is from `first` to `last`, from 0 to 1.
fn share(step: u64, first: u64, last: u64) -> f64 {
    if step >= last { 1.0 } else { (step - first) as f64 / (last - first) as f64 }
}

/// From `from` to `to` along half a cosine.
fn half_cosine(from: f64, to: f64, share: f64) -> f64 {
    // At a share that is 0 / 0 the way has no length.
    let share = if share.is_nan() { 0.0 } else { share };
    to + (from - to) * (1.0 + (PI * share).cos()) / 2.0
}
