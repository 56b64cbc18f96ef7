//! Positional encoding of coordinates by sines and cosines.

use std::sync::Arc;

use crate::autograd::{Operation, Recipe, Saved, gradient};
use crate::{Error, Result, Tensor, backend};

impl Tensor {
    /// Returns the elements of the last axis, their sines and cosines, those of their doubles, and so on for `octaves`
    /// octaves. Maps `[…, width]` to `[…, width · (1 + 2 · octaves)]` (Mildenhall et al.: "NeRF", 2020). Saves the
    /// input. An operation that would save the result recomputes it, even if the input requires no gradient.
    ///
    /// # Errors
    /// Fails if the elements are not floating-point numbers, if there are no axes or more than 60 octaves, or if memory
    /// runs out.
    pub fn frequencies(&self, octaves: usize) -> Result<Self> {
        let op = "frequencies";
        let operation = Operation::begin(op, &[self]);
        self.check_float(op)?;
        if self.rank() == 0 || octaves > 60 {
            let need = "expected at least one axis, and at most 60 octaves";
            return Err(Error::shape(op, self.shape(), need));
        }
        let input = self.in_order()?;
        if !Operation::is_recording() {
            return waves(&input, octaves);
        }
        let known = Arc::new(Waves { input: Saved::new(&input), octaves });
        let out = waves(&input, octaves)?;
        if !Operation::is_recorded(&[self]) {
            return Ok(out.with_own_recipe(known));
        }
        let recipe = known.clone();
        // d sin(s·x) = s · cos(s·x) · dx, and so on, summed over the octaves.
        let back = gradient(move |grad, inputs| {
            let input = known.input.get(op)?;
            drop(known);
            let grad = grad.into_order()?;
            let out = inputs.allocate(0, &grad)?;
            backend::frequencies_backward(out.view(), grad.view(), input.view())?;
            drop((grad, input));
            inputs.give(0, out)
        });
        Ok(operation.record(out, &[self], |_| back).with_recipe(&recipe))
    }
}

struct Waves {
    input: Saved,
    octaves: usize,
}

fn waves(input: &Tensor, octaves: usize) -> Result<Tensor> {
    let last = input.rank() - 1;
    let width = input.shape()[last].saturating_mul(1 + 2 * octaves);
    let out = Tensor::empty(input.shape().with_axis(last, width), input.dtype(), input.device())?;
    backend::frequencies(out.view(), input.view())?;
    Ok(out)
}

impl Recipe for Waves {
    fn compute(&self) -> Result<Tensor> {
        waves(&self.input.get("frequencies")?, self.octaves)
    }
}
