//! Dropout of elements or channels.

use crate::autograd::{Gradient, InputGradients, Operation};
use crate::backend::{self, View};
use crate::rng::Draw;
use crate::{Error, Result, Rng, Tensor};

impl Tensor {
    /// Sets each element to zero with probability `share`, and divides the others by `1 − share` (Srivastava et al.:
    /// "Dropout", 2014). Saves nothing, because backward draws the same random numbers again.
    ///
    /// # Errors
    /// Fails if `share` is not at least 0 and below 1, if the elements are not floating-point numbers, or if memory
    /// runs out.
    pub fn dropout(&self, share: f64, rng: &mut Rng) -> Result<Self> {
        let operation = Operation::begin("dropout", &[self]);
        let chance = Chance::new("dropout", self, share, Unit::Number, rng)?;
        let out = self.same_shape()?;
        chance.apply(out.view(), Some(self.view()))?;
        Ok(operation.record(out, &[self], |_| chance))
    }

    /// Sets each channel of this `[batch, channels, …]` to zero with probability `share`, and divides the others by
    /// `1 − share` (Tompson et al., 2015). Saves nothing, because backward draws the same random numbers again.
    ///
    /// # Errors
    /// See [`Self::dropout`].
    pub fn dropout2d(&self, share: f64, rng: &mut Rng) -> Result<Self> {
        let operation = Operation::begin("dropout2d", &[self]);
        let chance = Chance::new("dropout2d", self, share, Unit::Channel, rng)?;
        let out = self.same_shape()?;
        chance.apply(out.view(), Some(self.view()))?;
        Ok(operation.record(out, &[self], |_| chance))
    }

    /// Like [`Self::dropout2d`], in this tensor's memory if it is contiguous and not shared.
    ///
    /// # Errors
    /// See [`Self::dropout`].
    pub fn into_dropout2d(self, share: f64, rng: &mut Rng) -> Result<Self> {
        if !self.is_free_in_order() {
            return self.dropout2d(share, rng);
        }
        let operation = Operation::begin("dropout2d", &[&self]);
        let chance = Chance::new("dropout2d", &self, share, Unit::Channel, rng)?;
        chance.apply(self.view(), None)?;
        self.storage().changed();
        Ok(operation.record(self.detach(), &[&self], |_| chance))
    }
}

#[derive(Clone, Copy)]
enum Unit {
    Number,
    Channel,
}

/// Dropout and its gradient, which is zero for dropped elements.
struct Chance {
    unit: Unit,
    share: f64,
    draw: Draw,
}

impl Chance {
    fn new(op: &'static str, input: &Tensor, share: f64, unit: Unit, rng: &mut Rng) -> Result<Self> {
        if !(0.0..1.0).contains(&share) {
            let what =
                format!("invalid dropout probability {share}: expected a number from 0 up to but not including 1");
            return Err(Error::Setting { op, what });
        }
        input.check_float(op)?;
        let numbers = match unit {
            Unit::Number => input.elements(),
            Unit::Channel if input.rank() >= 2 => input.shape()[0] * input.shape()[1],
            Unit::Channel => return Err(Error::shape(op, input.shape(), "expected [batch, channels, …]")),
        };
        Ok(Self { unit, share, draw: rng.draw(numbers) })
    }

    /// Without `input`, works in place on the contiguous `out`.
    fn apply(&self, out: View<'_>, input: Option<View<'_>>) -> Result<()> {
        match self.unit {
            Unit::Number => backend::dropout(out, input, self.share, self.draw),
            Unit::Channel => backend::dropout_channels(out, input, self.share, self.draw),
        }
    }
}

impl Gradient for Chance {
    fn backward(self: Box<Self>, grad: Tensor, inputs: &mut InputGradients<'_>) -> Result<()> {
        inputs.give(0, grad.rewritten(Tensor::is_free_in_order, |out, grad| self.apply(out, grad))?)
    }
}
