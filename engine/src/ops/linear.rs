//! A linear layer, with matrix product and bias in one operation.

use super::product::{ProductGradient, RightIs, check, multiply, multiply_onto_bias};
use crate::autograd::{Operation, Saved, gradient};
use crate::tensor::autocast;
use crate::{Error, Result, Tensor, backend};

impl Tensor {
    /// Returns `self · weightᵀ + bias`, with input `[…, inputs]`, weight `[outputs, inputs]` and bias `[outputs]`. The
    /// product that computes the weight's gradient also adds it to an existing one that is contiguous and not shared.
    /// Saves the input if the weight requires a gradient, and the weight if the input does.
    ///
    /// # Errors
    /// Fails if the shapes or data types do not match, or if memory runs out.
    pub fn linear(&self, weight: &Self, bias: Option<&Self>) -> Result<Self> {
        if let Some(dtype) = autocast::for_product(&[self, weight]) {
            let bias = bias.map(|bias| bias.to_dtype(dtype)).transpose()?;
            return self.to_dtype(dtype)?.linear(&weight.to_dtype(dtype)?, bias.as_ref());
        }
        if self.rank() == 1 {
            return self.unsqueeze(0)?.linear(weight, bias)?.squeeze(0);
        }
        let op = "linear";
        let operation = Operation::begin(op, &[self, weight]);
        check(op, self, weight, RightIs::Transposed)?;
        if weight.rank() != 2 {
            return Err(Error::shape(op, weight.shape(), "expected a weight of shape [outputs, inputs]"));
        }
        let outputs = weight.shape()[0];
        if let Some(bias) = bias {
            self.check_operand(op, bias)?;
            if **bias.shape() != [outputs] {
                return Err(Error::shapes(op, weight.shape(), bias.shape(), "expected a bias of shape [outputs]"));
            }
        }
        let shape = self.shape().with_axis(self.rank() - 1, outputs);
        let out = Self::empty(shape, self.dtype(), self.device())?;
        match bias {
            Some(bias) => multiply_onto_bias(&out, &self.operand()?, &weight.transposed().operand()?, bias)?,
            None => multiply(&out, &self.operand()?, &weight.transposed().operand()?, 0.0)?,
        }
        let mut inputs = vec![self, weight];
        inputs.extend(bias);
        // d(x·wᵀ + b) = dx·wᵀ + x·dwᵀ + db.
        Ok(operation.record(out, &inputs, |needs| {
            let left = needs[1].then(|| Saved::new(self));
            let right = needs[0].then(|| Saved::new(weight));
            let product = ProductGradient { op, left, right, right_is_turned: RightIs::Transposed };
            gradient(move |grad, inputs| {
                if let Some(shape) = inputs.shape(2).copied() {
                    let existing = inputs.take_sum(2);
                    let sum = match existing {
                        Some(sum) => {
                            let repeated = sum.broadcast_to(op, grad.shape())?;
                            backend::sum(repeated.view(), grad.view(), 1.0, 1.0)?;
                            drop(repeated);
                            sum
                        }
                        None => grad.clone().into_sum_to(&shape)?,
                    };
                    inputs.give(2, sum)?;
                }
                product.backward(grad, inputs)
            })
        }))
    }
}
