//! The squared error loss as one operation.

use crate::autograd::{Operation, Saved, gradient};
use crate::{Error, Result, Shape, Tensor, backend};

impl Tensor {
    /// Returns the mean of `(self − target)²`, which is NaN for empty tensors. Both tensors have the same shape. Saves
    /// both. Backward overwrites one of them with its gradient if its memory is not shared.
    ///
    /// # Errors
    /// Fails if the shapes or data types differ, or if memory runs out.
    pub fn mse_loss(&self, target: &Self) -> Result<Self> {
        let op = "mse_loss";
        let operation = Operation::begin(op, &[self, target]);
        self.check_operand(op, target)?;
        self.check_float(op)?;
        if self.shape() != target.shape() {
            return Err(Error::shapes(op, self.shape(), target.shape(), "expected equal shapes"));
        }
        let scale = 1.0 / self.elements() as f64;
        let loss = Self::empty((), self.dtype(), self.device())?;
        backend::squared_error(loss.view(), self.view(), target.view(), scale)?;
        // d((l − r)²) = 2 (l − r) (dl − dr).
        Ok(operation.record(loss, &[self, target], |_| {
            let saved = [self, target].map(Saved::new);
            gradient(move |grad, inputs| {
                let [left, right] = saved;
                let (left, right) = (left.take(op)?, right.take(op)?);
                let grad = grad.reshaped(&Shape::SCALAR)?;
                if inputs.needs(0) && inputs.needs(1) {
                    let of_right = right.same_shape()?;
                    let known = (grad.view(), Some(right.view()));
                    backend::squared_error_backward(of_right.view(), known.0, known.1, left.view(), 2.0 * scale)?;
                    inputs.give(1, of_right)?;
                }
                let (wanted, own, other) = if inputs.needs(0) { (0, left, right) } else { (1, right, left) };
                let out = own.rewritten(Self::is_free_to_write, |out, own| {
                    backend::squared_error_backward(out, grad.view(), own, other.view(), 2.0 * scale)
                })?;
                drop(other);
                inputs.give(wanted, out)
            })
        }))
    }
}
