//! Cross-entropy from logits.

use crate::autograd::{Operation, Saved, gradient};
use crate::{DType, Error, Result, Shape, Tensor, backend};

impl Tensor {
    /// Returns the mean of −log softmax(logits) at the target, over the rows of these logits `[rows, classes]`, or over
    /// all positions of `[batch, classes, …]`. `targets` (I64) have the same shape without the classes. Positions whose
    /// target is `ignore_index` are not counted.
    ///
    /// Saves the logits, the targets and one number per position. Backward overwrites the logits with their gradient if
    /// their memory is not shared, so there is no second buffer of their size.
    ///
    /// # Errors
    /// Fails if the shapes or data types do not match, if memory runs out, or, on a device with values, if a target is
    /// neither a class index nor `ignore_index`.
    pub fn cross_entropy(&self, targets: &Self, ignore_index: Option<i64>) -> Result<Self> {
        let op = "cross_entropy";
        let operation = Operation::begin(op, &[self]);
        self.check_device(op, targets)?;
        self.check_float(op)?;
        if targets.dtype() != DType::I64 {
            return Err(Error::DType { op, found: targets.dtype(), need: "expected class indices of dtype i64" });
        }
        if self.rank() < 2 || *targets.shape() != self.shape().without_axis(1) {
            let need = "expected logits [rows, classes] and targets [rows], or [batch, classes, …] and [batch, …]";
            return Err(Error::shapes(op, self.shape(), targets.shape(), need));
        }
        let (logits, targets) = (self.in_order()?, targets.in_order()?);
        // No class has this index, so nothing is ignored.
        let ignored = ignore_index.unwrap_or(i64::MIN);
        let loss = Self::empty((), self.dtype(), self.device())?;
        let statistics = Self::empty(targets.shape(), self.dtype().statistics(), self.device())?;
        let count = Self::empty((), self.dtype().statistics(), self.device())?;
        backend::cross_entropy(loss.view(), statistics.view(), count.view(), logits.view(), targets.view(), ignored)?;
        // dlogits = (softmax − 1 at the target) · g / n.
        Ok(operation.record(loss, &[self], |_| {
            let saved = [&logits, &targets, &statistics, &count].map(Saved::new);
            gradient(move |grad, inputs| {
                let [logits, targets, statistics, count] = saved.map(|saved| saved.take(op));
                let (logits, targets, statistics, count) = (logits?, targets?, statistics?, count?);
                let grad = grad.reshaped(&Shape::SCALAR)?;
                let known = [grad.view(), statistics.view(), count.view()];
                let out = logits.rewritten(Self::is_free_to_write, |out, logits| {
                    backend::cross_entropy_backward(out, logits, known, targets.view(), ignored)
                })?;
                inputs.give(0, out)
            })
        }))
    }
}
