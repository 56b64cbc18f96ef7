//! The tasks that both engines train, and the measurement of a step's time.

use std::time::{Duration, Instant};

use anyhow::Result;

/// A model with its input.
pub enum Task {
    Gpt2 { layers: usize, tokens: usize },
    TinyNerf { width: usize, points: usize },
}

pub const WIDTH: usize = 768;
pub const HEADS: usize = 12;
pub const VOCABULARY: usize = 50_257;
pub const POSITIONS: usize = 1024;
pub const EPSILON: f64 = 1e-5;
pub const NERF_LAYERS: usize = 8;
pub const NERF_INPUTS: usize = 39;
pub const NERF_OUTPUTS: usize = 4;

impl Task {
    pub const ALL: [Self; 3] = [
        Self::Gpt2 { layers: 12, tokens: 128 },
        Self::TinyNerf { width: 64, points: 16_384 },
        Self::TinyNerf { width: 256, points: 16_384 },
    ];

    pub fn name(&self) -> &'static str {
        match self {
            Self::Gpt2 { .. } => "gpt2",
            Self::TinyNerf { width: 64, .. } => "tiny-nerf-64",
            Self::TinyNerf { .. } => "tiny-nerf-256",
        }
    }

    /// Random token ids, of which each is to be predicted from those before it.
    pub fn tokens(count: usize) -> Vec<i64> {
        (0..=count as i64).map(|i| (i * 7919 + i * i * 31) % VOCABULARY as i64).collect()
    }

    /// Pseudorandom numbers within ±1.
    pub fn numbers(count: usize) -> Vec<f32> {
        (0..count).map(|i| ((i * 2_654_435_761) % 20_011) as f32 / 10_005.5 - 1.0).collect()
    }
}

/// The durations of a step's phases.
pub struct Phases([Duration; 3]);

impl Phases {
    /// Runs and times the phases; the last one gets the result of the one before it.
    pub fn time<F, B>(
        forward: impl FnOnce() -> Result<F>,
        backward: impl FnOnce(F) -> Result<B>,
        optimizer: impl FnOnce(B) -> Result<f64>,
    ) -> Result<(Self, f64)> {
        let start = Instant::now();
        let loss = forward()?;
        let after_forward = start.elapsed();
        let grads = backward(loss)?;
        let after_backward = start.elapsed();
        let loss = optimizer(grads)?;
        let phases = [after_forward, after_backward - after_forward, start.elapsed() - after_backward];
        Ok((Self(phases), loss))
    }

    /// The duration of forward, backward or the optimizer by its number; of another number, of the whole step.
    pub fn of(&self, phase: usize) -> Duration {
        self.0.get(phase).copied().unwrap_or_else(|| self.0.iter().sum())
    }
}

/// An implementation that trains a task.
pub trait Trainer {
    /// Runs a step, and returns its durations and its loss.
    fn step(&mut self) -> Result<(Phases, f64)>;
}
