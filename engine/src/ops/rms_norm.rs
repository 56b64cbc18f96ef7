//! RMS norm: divides rows by their root mean square.

use std::sync::Arc;

use crate::autograd::{Gradient, InputGradients, Operation, Recipe, Saved};
use crate::backend;
use crate::error::{Error, Result};
use crate::tensor::{Tensor, autocast};

const OP: &str = "rms_norm";

impl Tensor {
    /// Divides each row of the last axis by the root of its mean square (with `epsilon` added to the mean), and
    /// multiplies by `weight` of the last axis's length (Zhang and Sennrich: "Root Mean Square Layer Normalization",
    /// 2019). Saves the input, and one element per row in the statistics type; the result can be recomputed from these.
    /// The input's gradient overwrites the result's gradient.
    ///
    /// # Errors
    ///
    /// Fails if the shapes or data types do not match, or if memory runs out.
    pub fn rms_norm(&self, weight: Option<&Self>, epsilon: f64) -> Result<Self> {
        if let Some(weight) =
            weight.filter(|weight| autocast::of_products().is_some() && weight.dtype() != self.dtype())
        {
            return self.to_dtype(weight.dtype())?.rms_norm(Some(weight), epsilon);
        }
        let inputs: Vec<&Self> = [self].into_iter().chain(weight).collect();
        let operation = Operation::begin(OP, &inputs);
        self.check_float(OP)?;
        let Some((&width, rows)) = self.shape().split_last() else {
            return Err(Error::shape(OP, self.shape(), "expected at least one axis to normalize over"));
        };
        if let Some(weight) = weight {
            self.check_operand(OP, weight)?;
            if **weight.shape() != [width] || !weight.is_contiguous() {
                let need = "expected a contiguous weight of shape [last axis]";
                return Err(Error::shapes(OP, self.shape(), weight.shape(), need));
            }
        }
        let rows = crate::Shape::filled(rows);
        let input = self.in_order()?;
        let out = self.same_shape()?;
        let inverse = Self::empty(rows, self.dtype().statistics(), self.device())?;
        backend::rms_norm(out.view(), inverse.view(), input.view(), weight.map(Self::view), epsilon)?;
        let known =
            || Known { input: Saved::new(&input), inverse: Saved::new(&inverse), weight: weight.map(Saved::new) };
        Ok(operation.record_known(out, &inputs, known, RmsNorm))
    }
}

/// The tensors saved for backward, from which the result can be recomputed.
struct Known {
    input: Saved,
    inverse: Saved,
    weight: Option<Saved>,
}

impl Recipe for Known {
    fn compute(&self) -> Result<Tensor> {
        let (input, inverse) = (self.input.get(OP)?, self.inverse.get(OP)?);
        let weight = self.weight.as_ref().map(|weight| weight.get(OP)).transpose()?;
        let out = input.same_shape()?;
        backend::rms_norm_again(out.view(), inverse.view(), input.view(), weight.as_ref().map(Tensor::view))?;
        Ok(out)
    }
}

/// With x̂ the row divided by its root: dx = (g·w − x̂ · mean(g·w·x̂)) / root, dw = Σ g·x̂.
struct RmsNorm(Arc<Known>);

impl Gradient for RmsNorm {
    fn backward(self: Box<Self>, grad: Tensor, inputs: &mut InputGradients<'_>) -> Result<()> {
        let known = &self.0;
        let (input, inverse) = (known.input.get(OP)?, known.inverse.get(OP)?);
        let weight = known.weight.as_ref().map(|weight| weight.get(OP)).transpose()?;
        drop(self);
        let grad = grad.into_order()?;
        if inputs.needs(1) {
            let (sum, keep) = inputs.take_sum_or_new(1, &grad)?;
            backend::rms_norm_backward_weight(sum.view(), grad.view(), inverse.view(), input.view(), keep)?;
            inputs.give(1, sum)?;
        }
        if !inputs.needs(0) {
            return Ok(());
        }
        let weight = weight.as_ref().map(Tensor::view);
        let out = grad.rewritten(Tensor::is_free_to_write, |out, grad| {
            backend::rms_norm_backward(out, grad, inverse.view(), input.view(), weight)
        })?;
        inputs.give(0, out)
    }
}
