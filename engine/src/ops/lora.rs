//! LoRA, a low-rank product added to the output of a frozen layer.

use super::product::{multiply, multiply_scaled};
use crate::autograd::{Gradient, InputGradients, Operation, Saved};
use crate::{Error, Result, Tensor, backend};

const OP: &str = "lora";

impl Tensor {
    /// Returns `self + scale · (input · aᵀ) · bᵀ`, in this tensor's memory if it is contiguous and not shared. The
    /// input is `[…, inputs]`, `a` `[rank, inputs]`, `b` `[outputs, rank]` and this tensor `[…, outputs]` (Hu et al.:
    /// "LoRA", 2021).
    ///
    /// If `a` and `b` have a data type other than that of the other tensors, the products and the sum are computed in
    /// that type, as in PEFT, and the result has this tensor's type. Saves the input in its own type if `a` requires a
    /// gradient, and `input · aᵀ` if `b` does. Saves nothing of this tensor's size.
    ///
    /// # Errors
    /// Fails if the shapes or data types do not match, or if memory runs out.
    pub fn into_lora(self, input: &Self, a: &Self, b: &Self, scale: f64) -> Result<Self> {
        let operation = Operation::begin(OP, &[&self, input, a, b]);
        check(&self, input, a, b)?;
        let low = {
            let wide = input.converted(a.dtype())?.operand()?;
            let shape = input.shape().with_axis(input.rank() - 1, a.shape()[0]);
            let low = Self::empty(shape, a.dtype(), a.device())?;
            multiply(&low, &wide, &a.transposed().operand()?, 0.0)?;
            low
        };
        let free = self.is_free_in_order();
        let sum = match (self.dtype() == a.dtype(), free) {
            (true, true) => self.detach(),
            (true, false) => self.copied()?,
            (false, _) => self.converted(a.dtype())?,
        };
        multiply_scaled(&sum, &low, &b.transposed().operand()?, [scale, 1.0])?;
        let out = if self.dtype() == a.dtype() {
            sum
        } else {
            let out = if free { self.detach() } else { self.same_shape()? };
            backend::cast(out.view(), sum.view())?;
            out
        };
        if free {
            self.storage().changed();
        }
        Ok(operation.record(out, &[&self, input, a, b], |needs| Lora {
            input: needs[2].then(|| Saved::new(input)),
            low: needs[3].then(|| Saved::new(&low)),
            a: needs[1].then(|| Saved::new(a)),
            b: (needs[1] || needs[2]).then(|| Saved::new(b)),
            scale,
        }))
    }
}

fn check(base: &Tensor, input: &Tensor, a: &Tensor, b: &Tensor) -> Result<()> {
    base.check_operand(OP, input)?;
    base.check_float(OP)?;
    base.check_device(OP, a)?;
    a.check_operand(OP, b)?;
    a.check_float(OP)?;
    if a.rank() != 2 || b.rank() != 2 || a.shape()[0] != b.shape()[1] {
        return Err(Error::shapes(OP, a.shape(), b.shape(), "expected [rank, inputs] and [outputs, rank]"));
    }
    let rank = input.rank();
    if rank < 2 || input.shape()[rank - 1] != a.shape()[1] {
        let need = "expected an input of shape […, rows, inputs] and a of shape [rank, inputs]";
        return Err(Error::shapes(OP, input.shape(), a.shape(), need));
    }
    let sum = input.shape().with_axis(rank - 1, b.shape()[0]);
    let need = "expected a layer's output of shape […, rows, outputs], as many columns as b, [outputs, rank], has rows";
    if *base.shape() == sum { Ok(()) } else { Err(Error::shapes(OP, base.shape(), b.shape(), need)) }
}

/// With low = x·aᵀ: db = s · gᵀ·low, dlow = s · g·b, da = dlowᵀ·x, dx = dlow·a, and dself = g.
struct Lora {
    input: Option<Saved>,
    low: Option<Saved>,
    a: Option<Saved>,
    b: Option<Saved>,
    scale: f64,
}

impl Gradient for Lora {
    fn backward(self: Box<Self>, grad: Tensor, inputs: &mut InputGradients<'_>) -> Result<()> {
        let Self { input, low, a, b, scale } = *self;
        let low_grad = {
            let known = [low.as_ref(), b.as_ref()].into_iter().flatten().next();
            // If no adapter requires a gradient, the input requires none through them either.
            let Some(known) = known else { return inputs.give(0, grad) };
            let wide = grad.converted(known.get(OP)?.dtype())?.operand()?;
            if let Some(low) = low {
                let low = low.take(OP)?;
                give_product(&wide.transposed(), &low, scale, 3, inputs)?;
            }
            match b {
                Some(b) => {
                    let b = b.take(OP)?.operand()?;
                    let shape = wide.shape().with_axis(wide.rank() - 1, b.shape()[1]);
                    let low_grad = Tensor::empty(shape, b.dtype(), b.device())?;
                    multiply_scaled(&low_grad, &wide, &b, [scale, 0.0])?;
                    Some(low_grad)
                }
                None => None,
            }
        };
        if let Some(low_grad) = low_grad {
            let served = match input {
                Some(input) => Some(give_a(&low_grad, input.take(OP)?, inputs)?),
                None => None,
            };
            if let Some(a) = a {
                let kind = grad.dtype();
                give_input(&low_grad, served, &a.take(OP)?, kind, inputs)?;
            }
        }
        inputs.give(0, grad)
    }
}

/// Accumulates `scale · left · right`, summed over batches, into the gradient of the input with index `place`.
fn give_product(
    left: &Tensor,
    right: &Tensor,
    scale: f64,
    place: usize,
    inputs: &mut InputGradients<'_>,
) -> Result<()> {
    let (sum, keep) = match inputs.take_sum(place) {
        Some(sum) => (sum, 1.0),
        None => (inputs.allocate(place, right)?, 0.0),
    };
    multiply_scaled(&sum, left, right, [scale, keep])?;
    inputs.give(place, sum)
}

/// Accumulates the gradient of `a`. Returns the input in the type of `a`, whose memory may then be overwritten.
fn give_a(low_grad: &Tensor, input: Tensor, inputs: &mut InputGradients<'_>) -> Result<Tensor> {
    let wide = input.converted(low_grad.dtype())?;
    drop(input);
    let operand = wide.operand()?;
    give_product(&low_grad.transposed(), &operand, 1.0, 2, inputs)?;
    drop(operand);
    Ok(wide)
}

/// Accumulates the input's gradient of dtype `kind`, in place into an existing gradient or in memory that is no longer
/// needed.
fn give_input(
    low_grad: &Tensor,
    served: Option<Tensor>,
    a: &Tensor,
    kind: crate::DType,
    inputs: &mut InputGradients<'_>,
) -> Result<()> {
    let a = a.operand()?;
    if kind == a.dtype()
        && let Some(sum) = inputs.take_sum(1)
    {
        drop(served);
        multiply(&sum, low_grad, &a, 1.0)?;
        return inputs.give(1, sum);
    }
    let Some(shape) = inputs.shape(1).copied() else { return Ok(()) };
    let served = served.filter(|input| input.is_free_in_order() && input.fills_storage());
    let out = match served {
        Some(input) => {
            input.storage().changed();
            input
        }
        None if kind == a.dtype() => inputs.allocate(1, &a)?,
        None => Tensor::empty(shape, a.dtype(), a.device())?,
    };
    multiply(&out, low_grad, &a, 0.0)?;
    let converted = out.converted(kind)?;
    drop(out);
    inputs.give(1, converted)
}
