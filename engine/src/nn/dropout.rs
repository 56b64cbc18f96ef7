//! Dropout of elements or channels in training.

use std::sync::{Mutex, PoisonError};

use super::init::Init;
use super::module::{Field, Mode, Module, Visitor};
use crate::{Result, Rng, Tensor};

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

    /// Calls `body` with the probability and the random number generator. Returns the input unchanged in inference, or
    /// if the probability is 0.
    fn apply(&self, input: Tensor, body: impl FnOnce(Tensor, f64, &mut Rng) -> Result<Tensor>) -> Result<Tensor> {
        if !self.mode.is_training() || self.share == 0.0 {
            return Ok(input);
        }
        let mut rng = self.rng.lock().unwrap_or_else(PoisonError::into_inner);
        body(input, self.share, &mut rng)
    }
}

/// Dropout, which in training zeroes each element with a given probability and scales the others to preserve the mean.
#[derive(Debug)]
pub struct Dropout(Chance);

impl Dropout {
    /// Creates a layer that zeroes elements with probability `share`, in [0, 1).
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

/// The layer does not add a name to module paths.
impl Field for Dropout {
    fn accept(&self, _name: &str, visitor: &mut Visitor) {
        self.visit(visitor);
    }
}

/// Channel dropout, which in training zeroes each channel of `[batch, channels, height, width]` with a given
/// probability and scales the others to preserve the mean.
#[derive(Debug)]
pub struct Dropout2d(Chance);

impl Dropout2d {
    /// Creates a layer that zeroes channels with probability `share`, in [0, 1).
    pub fn new(init: &mut Init, share: f64) -> Self {
        Self(Chance::new(init, share))
    }
}

impl Module for Dropout2d {
    fn forward(&self, images: &Tensor) -> Result<Tensor> {
        self.0.apply(images.clone(), |images, share, rng| images.dropout2d(share, rng))
    }

    fn forward_into(&self, images: Tensor) -> Result<Tensor> {
        self.0.apply(images, |images, share, rng| images.into_dropout2d(share, rng))
    }

    fn visit(&self, visitor: &mut Visitor) {
        visitor.mode(&self.0.mode);
    }
}
