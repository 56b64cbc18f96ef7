//! Dropout: some numbers, by chance, become zero.

use crate::autograd::{Gradient, InputGradients, Operation};
use crate::backend;
use crate::error::{Error, Result};
use crate::rng::{Draw, Rng};
use crate::tensor::Tensor;

impl Tensor {
    /// Each number is zero with probability `share`, and else divided by `1 − share` (Srivastava et al.: "Dropout",
    /// 2014). Keeps nothing: backward draws the same numbers again.
    pub fn dropout(&self, share: f64, rng: &mut Rng) -> Result<Self> {
        let op = "dropout";
        if !(0.0..1.0).contains(&share) {
            return Err(Error::Setting {
                op,
                what: format!("the share is {share}; give one from 0 up to but not including 1"),
            });
        }
        let operation = Operation::begin(op);
        self.check_float(op)?;
        let draw = rng.draw(self.elements());
        let out = self.same_shape()?;
        backend::dropout(out.view(), Some(self.view()), share, draw)?;
        Ok(operation.record(out, &[self], |_| Dropout { share, draw }))
    }
}

/// The gradient of what was kept.
struct Dropout {
    share: f64,
    draw: Draw,
}

impl Gradient for Dropout {
    fn backward(self: Box<Self>, grad: Tensor, inputs: &mut InputGradients<'_>) -> Result<()> {
        let out = if grad.is_free_to_write() && grad.is_contiguous() {
            backend::dropout(grad.view(), None, self.share, self.draw)?;
            grad
        } else {
            let out = grad.same_shape()?;
            backend::dropout(out.view(), Some(grad.view()), self.share, self.draw)?;
            out
        };
        inputs.give(0, out)
    }
}
