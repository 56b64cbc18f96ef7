//! Embedding, a table of vectors that are looked up by index.

use super::init::{Filling, Init};
use super::module::Module;
use crate::{Result, Tensor};

/// A table of `entries` vectors, which maps indices (I64) of any shape to `[…, width]`.
#[derive(Debug)]
pub struct Embedding {
    weight: Tensor,
}

impl Embedding {
    /// Creates a table of `[entries, width]` from the normal distribution with standard deviation 1, as in PyTorch.
    ///
    /// # Errors
    /// Fails if memory cannot be allocated.
    pub fn new(init: &mut Init, size: [usize; 2]) -> Result<Self> {
        Self::filled(init, size, Filling::Normal { deviation: 1.0 })
    }

    /// Creates a table of `[entries, width]` initialized with `filling`.
    ///
    /// # Errors
    /// Fails if memory cannot be allocated.
    pub fn filled(init: &mut Init, size: [usize; 2], filling: Filling) -> Result<Self> {
        Ok(Self { weight: init.parameter(size, filling)? })
    }

    /// Returns the table, for an output layer that shares it.
    pub fn weight(&self) -> &Tensor {
        &self.weight
    }
}

impl Module for Embedding {
    fn forward(&self, indices: &Tensor) -> Result<Tensor> {
        self.weight.embedding(indices)
    }

    crate::visit_fields!(weight);
}
