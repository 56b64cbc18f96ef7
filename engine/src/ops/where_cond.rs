//! Selects elements of one tensor where a condition is true, and of another tensor elsewhere.

use crate::autograd::{Operation, Saved, gradient};
use crate::{DType, Error, Result, Shape, Tensor, backend};

impl Tensor {
    /// Returns `yes` where this condition (Bool or U8) is true or not 0, and `no` elsewhere (PyTorch's `where`). All
    /// three shapes broadcast. Saves the condition.
    ///
    /// # Errors
    /// Fails if the shapes do not broadcast, if the data types do not match, or if memory runs out.
    pub fn where_cond(&self, yes: &Self, no: &Self) -> Result<Self> {
        let op = "where";
        let operation = Operation::begin(op, &[yes, no]);
        if !matches!(self.dtype(), DType::Bool | DType::U8) {
            return Err(Error::DType { op, found: self.dtype(), need: "expected a condition of dtype bool or u8" });
        }
        self.check_device(op, yes)?;
        yes.check_operand(op, no)?;
        let shape = Shape::broadcast(op, self.shape(), &Shape::broadcast(op, yes.shape(), no.shape())?)?;
        let out = Self::empty(shape, yes.dtype(), self.device())?;
        let condition = self.broadcast_to(op, &shape)?;
        let sides = [yes.broadcast_to(op, &shape)?, no.broadcast_to(op, &shape)?];
        backend::where_cond(out.view(), condition.view(), Some(sides[0].view()), Some(sides[1].view()))?;
        let shapes = [*yes.shape(), *no.shape()];
        Ok(operation.record(out, &[yes, no], |_| {
            let condition = Saved::new(&condition);
            gradient(move |grad, inputs| {
                let condition = condition.take(op)?;
                if inputs.needs(0) && inputs.needs(1) {
                    let of_yes = grad.same_shape()?;
                    backend::where_cond(of_yes.view(), condition.view(), Some(grad.view()), None)?;
                    inputs.give(0, of_yes.into_sum_to(&shapes[0])?)?;
                }
                let last = if inputs.needs(1) { 1 } else { 0 };
                let rest = grad.into_cleared(&condition, last == 0)?;
                drop(condition);
                inputs.give(last, rest.into_sum_to(&shapes[last])?)
            })
        }))
    }
}

impl Tensor {
    /// Returns this tensor with zeros where `condition` is not `wanted`. Uses the memory of this tensor if it is not
    /// shared.
    fn into_cleared(self, condition: &Self, wanted: bool) -> Result<Self> {
        if self.is_free_to_write() {
            backend::clear(self.view(), condition.view(), wanted)?;
            return Ok(self);
        }
        let out = self.same_shape()?;
        let side = Some(self.view());
        let [yes, no] = if wanted { [side, None] } else { [None, side] };
        backend::where_cond(out.view(), condition.view(), yes, no)?;
        Ok(out)
    }
}
