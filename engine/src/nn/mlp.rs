//! Feed-forward network: two linear layers with an activation between them.

use super::init::Init;
use super::linear::{Linear, LinearFilling};
use super::module::{Child, Module};
use crate::{Result, Tensor};

/// `fc2(gelu(fc1(x)))`, the feed-forward part of a transformer block.
#[derive(Debug)]
pub struct Mlp {
    fc1: Child<Linear>,
    fc2: Child<Linear>,
}

impl Mlp {
    /// Creates layers from `width` to `hidden` and back, where `filling` returns the initial values of a layer of
    /// `[inputs, outputs]`.
    ///
    /// # Errors
    /// Fails if memory cannot be allocated.
    pub fn new(
        init: &mut Init,
        [width, hidden]: [usize; 2],
        filling: impl Fn([usize; 2]) -> LinearFilling,
    ) -> Result<Self> {
        let layer = |name: &str, init: &mut Init, size| {
            Child::new(name, init, |init| Linear::filled(init, size, filling(size)))
        };
        Ok(Self { fc1: layer("fc1", init, [width, hidden])?, fc2: layer("fc2", init, [hidden, width])? })
    }
}

impl Module for Mlp {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        let hidden = self.fc1.forward(input)?.gelu()?;
        self.fc2.forward(&hidden)
    }

    crate::visit_fields!(fc1, fc2);
}
