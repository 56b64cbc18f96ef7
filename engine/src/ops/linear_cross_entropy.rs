//! A model's last linear layer and its cross-entropy loss in one operation, without storing all logits at once.

use highwater_recorder::{Category, scope};

use super::product::multiply;
use crate::autograd::{Gradient, InputGradients, Operation, Saved};
use crate::backend::{self, Binary};
use crate::tensor::autocast;
use crate::tensor::grad_mode::recomputes;
use crate::{DType, Error, Result, Shape, Tensor};

/// Maximum number of chunks in half precision if the weight requires a gradient. Its sum over rows is rounded once per
/// chunk, which costs little accuracy with this number of chunks.
const CHUNKS_OF_HALVES: usize = 8;

/// Minimum number of rows per chunk. Each chunk reads the weight twice, and reads and writes its gradient if required.
/// With fewer rows, the products wait for memory.
const MIN_ROWS: usize = 512;

impl Tensor {
    /// Returns the mean cross-entropy of the logits `self · weightᵀ`, with `self` `[rows, width]`, weight
    /// `[classes, width]` and `targets` `[rows]` (I64). Rows whose target is `ignore_index` are not counted. The loss
    /// has the statistics type.
    ///
    /// Logits are computed for a chunk of rows at a time and immediately overwritten with their gradient. The gradients
    /// of the rows and of the weight are then products, which are saved instead of the logits (Hsu et al.: "Liger
    /// Kernel", 2024). The arithmetic is the same as for separate operations. A chunk's logits take at most twice the
    /// bytes of `self` or 512 rows, whichever is more, or up to a quarter of all logits in half precision if the weight
    /// requires a gradient. Saves the gradients that are required. All logits are computed and saved instead if the
    /// weight requires a gradient that is not smaller than they are, or within
    /// [`no_recompute`](crate::autograd::no_recompute).
    ///
    /// # Errors
    /// Fails if the shapes or data types do not match, if memory runs out, or, on a device with values, if a target is
    /// neither a class index nor `ignore_index`.
    pub fn linear_cross_entropy(&self, weight: &Self, targets: &Self, ignore_index: Option<i64>) -> Result<Self> {
        let op = "linear_cross_entropy";
        if let Some(dtype) = autocast::for_product(&[self, weight]) {
            let (rows, weight) = (self.to_dtype(dtype)?, weight.to_dtype(dtype)?);
            return rows.linear_cross_entropy(&weight, targets, ignore_index);
        }
        check(op, self, weight, targets)?;
        let [rows, width] = [self.shape()[0], self.shape()[1]];
        let inputs = [self, weight];
        let wants = inputs.map(|input| Operation::is_recorded(&[input]));
        let logits_are_less = wants[1] && rows <= width;
        if logits_are_less || !recomputes() {
            return self
                .linear(weight, None)?
                .cross_entropy(targets, ignore_index)?
                .to_dtype(self.dtype().statistics());
        }
        let operation = Operation::begin(op, &inputs);
        let (hidden, table, targets) = (self.in_order()?, weight.in_order()?, targets.in_order()?);
        let ignored = ignore_index.unwrap_or(i64::MIN);
        let statistics = self.dtype().statistics();
        let loss = Self::zeros((), statistics, self.device())?;
        let count = Self::empty(2, statistics, self.device())?;
        backend::count_targets(count.view(), targets.view(), ignored)?;
        let grads =
            [wants[0].then(|| hidden.same_shape()).transpose()?, wants[1].then(|| table.same_shape()).transpose()?];
        let chunk = rows_at_a_time(self, weight, wants[1]);
        let logits = {
            let _category = scope::category(Category::Workspace);
            Self::empty([chunk.min(rows), weight.shape()[0]], self.dtype(), self.device())?
        };
        for start in (0..rows).step_by(chunk) {
            let count_here = chunk.min(rows - start);
            let logits = logits.rows(0, count_here)?;
            let [hidden, targets] = [hidden.rows(start, count_here)?, targets.rows(start, count_here)?];
            multiply(&logits, &hidden, &table.transposed(), 0.0)?;
            let known = [count.view(), targets.view()];
            backend::cross_entropy_in_place(logits.view(), loss.view(), known, ignored)?;
            if let Some(grad) = &grads[0] {
                multiply(&grad.rows(start, count_here)?, &logits, &table, 0.0)?;
            }
            if let Some(grad) = &grads[1] {
                multiply(grad, &logits.transposed(), &hidden, if start == 0 { 0.0 } else { 1.0 })?;
            }
        }
        if rows == 0 {
            // The mean over no rows is NaN.
            backend::fill(loss.view(), f64::NAN)?;
        }
        drop((logits, hidden, targets));
        Ok(operation.record(loss, &inputs, |_| LinearCrossEntropy {
            grads: grads.map(|grad| grad.as_ref().map(Saved::memory)),
            count: Saved::memory(&count),
        }))
    }

    fn rows(&self, start: usize, count: usize) -> Result<Self> {
        Ok(self.with_layout(self.layout().narrow("linear_cross_entropy", 0, start, count)?))
    }
}

fn check(op: &'static str, hidden: &Tensor, weight: &Tensor, targets: &Tensor) -> Result<()> {
    hidden.check_operand(op, weight)?;
    hidden.check_device(op, targets)?;
    hidden.check_float(op)?;
    if targets.dtype() != DType::I64 {
        return Err(Error::DType { op, found: targets.dtype(), need: "expected class indices of dtype i64" });
    }
    if hidden.rank() != 2 || weight.rank() != 2 || hidden.shape()[1] != weight.shape()[1] {
        let need = "expected rows of shape [rows, width] and a weight of shape [classes, width]";
        return Err(Error::shapes(op, hidden.shape(), weight.shape(), need));
    }
    if **targets.shape() != hidden.shape()[..1] {
        return Err(Error::shapes(op, hidden.shape(), targets.shape(), "expected one target per row"));
    }
    Ok(())
}

/// Returns the number of rows per chunk, whose logits have at most twice as many elements as `hidden`, but at least
/// [`MIN_ROWS`]. In half precision with `sums_over_rows`, there are at most [`CHUNKS_OF_HALVES`] chunks.
fn rows_at_a_time(hidden: &Tensor, weight: &Tensor, sums_over_rows: bool) -> usize {
    let [rows, width] = [hidden.shape()[0], hidden.shape()[1]];
    let chunks = weight.shape()[0].div_ceil(width.max(1)).max(1);
    let is_half = hidden.dtype().size() < hidden.dtype().statistics().size();
    let chunks = if sums_over_rows && is_half { chunks.min(CHUNKS_OF_HALVES) } else { chunks };
    rows.div_ceil(chunks).next_power_of_two().max(MIN_ROWS)
}

/// Scales the saved gradients by the loss's gradient and by 1 / the number of counted rows. If the latter were applied
/// in forward, gradients in low-precision dtypes would underflow before loss scaling could prevent that.
struct LinearCrossEntropy {
    grads: [Option<Saved>; 2],
    count: Saved,
}

impl Gradient for LinearCrossEntropy {
    fn backward(self: Box<Self>, grad: Tensor, inputs: &mut InputGradients<'_>) -> Result<()> {
        let op = "linear_cross_entropy";
        let factor = {
            let count = self.count.take(op)?;
            let share = count.with_layout(count.layout().select(0, 1));
            let grad = grad.reshaped(&Shape::SCALAR)?;
            grad.zip(Binary::Mul, &share, op)?
        };
        drop(grad);
        for (input, saved) in self.grads.into_iter().enumerate() {
            let Some(saved) = saved else { continue };
            let grad = saved.take(op)?;
            let factor = factor.converted(grad.dtype())?;
            inputs.give(input, grad.into_zip(Binary::Mul, &factor, op)?)?;
        }
        Ok(())
    }
}
