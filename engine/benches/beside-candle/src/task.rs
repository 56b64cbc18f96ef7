//! Task: what both are asked to train, and how a step's time is told.

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

    /// Token numbers, each followed by what should be predicted.
    pub fn tokens(count: usize) -> Vec<i64> {
        (0..=count as i64).map(|i| (i * 7919 + i * i * 31) % VOCABULARY as i64).collect()
    }

    /// Numbers within ±1 that look like chance.
    pub fn numbers(count: usize) -> Vec<f32> {
        (0..count).map(|i| ((i * 2_654_435_761) % 20_011) as f32 / 10_005.5 - 1.0).collect()
    }
}

/// How long a step's phases took.
pub struct Phases([Duration; 3]);

impl Phases {
    /// Runs and times the phases; the last gets what the one before it made.
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

    /// Of forward, backward, optimizer, or all.
    pub fn of(&self, phase: usize) -> Duration {
        self.0.get(phase).copied().unwrap_or_else(|| self.0.iter().sum())
    }
}

/// One that trains.
pub trait Trainer {
    /// A step; its times and its loss.
    fn step(&mut self) -> Result<(Phases, f64)>;
}
