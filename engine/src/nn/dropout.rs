//! Dropout of elements or channels in training.

use std::sync::{Mutex, PoisonError};

use super::init::Init;
use super::module::{Mode, Module, Visitor};
use crate::error::Result;
use crate::rng::Rng;
use crate::tensor::Tensor;

/// What both kinds hold.
#[derive(Debug)]
struct Chance {
    share: f64,
    rng: Mutex<Rng>,
    mode: Mode,
}

impl Chance {
    fn new(init: &mut Init, share: f64) -> Self {
        Self { share, rng: Mutex::new(Rng::new(init.seed())), mode: Mode::new() }
    }

    /// `body` with the share and the random numbers; the input as it is outside of training.
    fn apply(&self, input: Tensor, body: impl FnOnce(Tensor, f64, &mut Rng) -> Result<Tensor>) -> Result<Tensor> {
        if !self.mode.is_training() || self.share == 0.0 {
            return Ok(input);
        }
        let mut rng = self.rng.lock().unwrap_or_else(PoisonError::into_inner);
        body(input, self.share, &mut rng)
    }
}

/// In training, each element is zero with some probability, and else grows so that the mean stays.
#[derive(Debug)]
pub struct Dropout(Chance);

impl Dropout {
    /// Zeros with probability `share`, from 0 up to but not including 1.
    pub fn new(init: &mut Init, share: f64) -> Self {
        Self(Chance::new(init, share))
    }
}

impl Module for Dropout {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        self.0.apply(input.clone(), |input, share, rng| input.dropout(share, rng))
    }

    fn visit(&self, visitor: &mut Visitor) {
        visitor.mode(&self.0.mode);
    }
}

/// In training, each channel of `[batch, channels, height, width]` is zero with some probability, and else grows so
/// that the mean stays.
#[derive(Debug)]
pub struct Dropout2d(Chance);

impl Dropout2d {
    /// Zeros with probability `share`, from 0 up to but not including 1.
    pub fn new(init: &mut Init, share: f64) -> Self {
        Self(Chance::new(init, share))
    }

    /// As [`Module::forward`], in the images' own memory if it is not shared.
    pub fn forward_into(&self, images: Tensor) -> Result<Tensor> {
        self.0.apply(images, |images, share, rng| images.into_dropout2d(share, rng))
    }
}

impl Module for Dropout2d {
    fn forward(&self, images: &Tensor) -> Result<Tensor> {
        self.0.apply(images.clone(), |images, share, rng| images.dropout2d(share, rng))
    }

    fn visit(&self, visitor: &mut Visitor) {
        visitor.mode(&self.0.mode);
    }
}
