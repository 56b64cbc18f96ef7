//! Saved: a tensor kept from forward for backward.

use crate::error::{Error, Result};
use crate::tensor::Tensor;

/// A tensor kept for backward: its memory without its history, so that the graph does not hold itself. Its memory is
/// named an activation in recordings, unless it is known to be something else, such as a parameter.
pub struct Saved {
    tensor: Tensor,
    version: u32,
}

impl Saved {
    /// Keeps `tensor`.
    pub fn new(tensor: &Tensor) -> Self {
        tensor.storage().tag_saved();
        Self { tensor: tensor.detach(), version: tensor.storage().version() }
    }

    /// Gives the tensor back to operation `op`. Fails if it was changed in place since.
    pub fn take(self, op: &'static str) -> Result<Tensor> {
        if self.tensor.storage().version() == self.version { Ok(self.tensor) } else { Err(Error::Overwritten { op }) }
    }
}
