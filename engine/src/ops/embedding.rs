//! Embedding lookup, which selects rows of a table.

use crate::autograd::{Operation, Saved, gradient};
use crate::{DType, Error, Result, Shape, Tensor, backend};

impl Tensor {
    /// Returns the rows of this table `[rows, width]` at `indices` (I64 of any shape), as `[…, width]`. Saves the
    /// indices. The gradient is added in place to an existing one that is contiguous and not shared.
    ///
    /// # Errors
    /// Fails if the shapes or data types do not match, if memory runs out, or, on a device with values, if an index is
    /// out of range.
    pub fn embedding(&self, indices: &Self) -> Result<Self> {
        let op = "embedding";
        let operation = Operation::begin(op, &[self]);
        self.check_device(op, indices)?;
        self.check_float(op)?;
        if indices.dtype() != DType::I64 {
            return Err(Error::DType { op, found: indices.dtype(), need: "expected indices of dtype i64" });
        }
        if self.rank() != 2 {
            return Err(Error::shape(op, self.shape(), "expected a table of shape [rows, width]"));
        }
        let width = self.shape()[1];
        let shape = indices.shape().with_last(op, width)?;
        let (table, places) = (self.in_order()?, indices.in_order()?);
        let out = Self::empty(shape, self.dtype(), self.device())?;
        backend::gather_rows(out.view(), table.view(), places.view())?;
        Ok(operation.record(out, &[self], |_| {
            let indices = Saved::new(&places);
            gradient(move |grad, inputs| {
                let indices = indices.take(op)?;
                let grad = grad.into_order()?;
                let rows = grad.reshaped(&Shape::from([indices.elements(), width]))?;
                let table = inputs.take_sum_or_zeros(0, &grad)?;
                drop(grad);
                backend::add_rows(table.view(), rows.view(), indices.view())?;
                inputs.give(0, table)
            })
        }))
    }
}
