//! Dropout: some numbers become zero by chance.

use std::sync::{Mutex, PoisonError};

use super::init::Init;
use super::module::{Module, Visitor};
use crate::error::Result;
use crate::rng::Rng;
use crate::tensor::Tensor;

/// Each number is zero with some probability, and else grows so that the mean stays. Every call draws other numbers.
#[derive(Debug)]
pub struct Dropout {
    share: f64,
    rng: Mutex<Rng>,
}

impl Dropout {
    /// Zeros with probability `share`, from 0 up to but not including 1.
    pub fn new(init: &mut Init, share: f64) -> Self {
        Self { share, rng: Mutex::new(Rng::new(init.seed())) }
    }
}

impl Module for Dropout {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        if self.share == 0.0 {
            return Ok(input.clone());
        }
        // A generator is sound also after a panic elsewhere.
        input.dropout(self.share, &mut self.rng.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn visit(&self, _: &mut Visitor) {}
}
