//! Individual and batched matrix products.

use super::product::{ProductGradient, RightIs, batch_of, check, multiply, with_matrix};
use crate::autograd::{Operation, Saved, gradient};
use crate::tensor::autocast;
use crate::{Error, Result, Shape, Tensor};

impl Tensor {
    /// Returns the matrix product of `[…, rows, inner]` and `[…, inner, columns]`, where the axes before the last two
    /// broadcast. Transposed views are not copied. Saves each input if the other input requires a gradient.
    ///
    /// # Errors
    /// Fails if the shapes or data types do not match, or if memory runs out.
    pub fn matmul(&self, other: &Self) -> Result<Self> {
        let op = "matmul";
        if let Some(dtype) = autocast::for_product(&[self, other]) {
            return self.to_dtype(dtype)?.matmul(&other.to_dtype(dtype)?);
        }
        let operation = Operation::begin(op, &[self, other]);
        check(op, self, other, RightIs::Plain)?;
        if self.rank() < 2 {
            return Err(Error::shape(op, self.shape(), "expected at least two axes; add one with unsqueeze"));
        }
        let batch = Shape::broadcast(op, &batch_of(self.shape()), &batch_of(other.shape()))?;
        let (rows, columns) = (self.shape()[self.rank() - 2], other.shape()[other.rank() - 1]);
        let out = Self::empty(with_matrix(op, &batch, rows, columns)?, self.dtype(), self.device())?;
        multiply(&out, &self.operand()?, &other.operand()?, 0.0)?;
        Ok(operation.record(out, &[self, other], |needs| {
            let left = needs[1].then(|| Saved::new(self));
            let right = needs[0].then(|| Saved::new(other));
            // d(l·r) = dl·r + l·dr, so the gradients are grad·rᵀ and lᵀ·grad.
            let product = ProductGradient { op, left, right, right_is_turned: RightIs::Plain };
            gradient(move |grad, inputs| product.backward(grad, inputs))
        }))
    }
}
