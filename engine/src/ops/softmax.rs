//! Softmax and log-softmax along an axis.

use crate::autograd::{Operation, Saved, gradient};
use crate::backend::{self, View};
use crate::{Result, Tensor};

/// Writes the first view from the second, or works in place if there is no second.
type Rows = fn(View<'_>, Option<View<'_>>) -> Result<()>;
/// Like [`Rows`], for the gradient. The third view is the forward's result.
type RowsBack = fn(View<'_>, Option<View<'_>>, View<'_>) -> Result<()>;

impl Tensor {
    /// Returns eˣ divided by its sum along `axis`. Saves its result.
    ///
    /// # Errors
    /// Fails if the axis is out of range, if the elements are not floating-point numbers, or if memory runs out.
    pub fn softmax(&self, axis: isize) -> Result<Self> {
        self.by_rows("softmax", axis, backend::softmax, backend::softmax_backward)
    }

    /// Returns the logarithm of the softmax along `axis`. Saves its result.
    ///
    /// # Errors
    /// See [`Self::softmax`].
    pub fn log_softmax(&self, axis: isize) -> Result<Self> {
        self.by_rows("log_softmax", axis, backend::log_softmax, backend::log_softmax_backward)
    }

    fn by_rows(&self, op: &'static str, axis: isize, forward: Rows, back: RowsBack) -> Result<Self> {
        let operation = Operation::begin(op, &[self]);
        self.check_float(op)?;
        let axis = self.shape().axis(op, axis)?;
        // Rows are along the last axis; another axis is moved there, and the result is a view with the axes moved back.
        let last = self.rank() - 1;
        let input = self.with_layout(self.layout().transpose(axis, last));
        let rows = input.same_shape()?;
        forward(rows.view(), Some(input.view()))?;
        let out = rows.with_layout(rows.layout().transpose(axis, last));
        Ok(operation.record(out, &[self], |_| {
            let result = Saved::memory(&rows);
            gradient(move |grad, inputs| {
                let result = result.take(op)?;
                let rows = grad.with_layout(grad.layout().transpose(axis, last));
                drop(grad);
                let out = rows.rewritten(Self::is_free_in_order, |out, grad| back(out, grad, result.view()))?;
                drop(result);
                let turned = out.with_layout(out.layout().transpose(axis, last));
                drop(out);
                inputs.give(0, turned)
            })
        }))
    }
}
