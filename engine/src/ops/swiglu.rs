//! SwiGLU, the gated product of a transformer's MLP.

use std::sync::Arc;

use crate::autograd::{Gradient, InputGradients, Operation, Recipe, Saved};
use crate::{Error, Result, Tensor, backend};

const OP: &str = "swiglu";

impl Tensor {
    /// Returns `silu(gate) · up` of two tensors of the same shape (Shazeer: "GLU Variants Improve Transformer", 2020).
    /// Saves gate and up, from which the result can be recomputed, or only the gate if only `up` requires a gradient.
    /// Backward overwrites the saved tensors, or the result's gradient, with both gradients, if their memory is not
    /// shared.
    ///
    /// # Errors
    /// Fails if the shapes or data types differ, or if memory runs out.
    pub fn swiglu(gate: &Self, up: &Self) -> Result<Self> {
        let operation = Operation::begin(OP, &[gate, up]);
        gate.check_operand(OP, up)?;
        gate.check_float(OP)?;
        if gate.shape() != up.shape() {
            return Err(Error::shapes(OP, gate.shape(), up.shape(), "gate and up must have the same shape"));
        }
        let inputs = [gate.in_order()?, up.in_order()?];
        let out = gate.same_shape()?;
        backend::swiglu(out.view(), inputs[0].view(), inputs[1].view())?;
        if !gate.requires_grad() {
            return Ok(operation.record(out, &[gate, up], |_| SwiGlu::OfUp(Saved::new(&inputs[0]))));
        }
        let known = || Known { gate: Saved::new(&inputs[0]), up: Saved::new(&inputs[1]) };
        Ok(operation.record_known(out, &[gate, up], known, SwiGlu::Of))
    }
}

struct Known {
    gate: Saved,
    up: Saved,
}

impl Recipe for Known {
    fn compute(&self) -> Result<Tensor> {
        let (gate, up) = (self.gate.get(OP)?, self.up.get(OP)?);
        let out = gate.same_shape()?;
        backend::swiglu(out.view(), gate.view(), up.view())?;
        Ok(out)
    }
}

/// With s = sigmoid(gate): dgate = g · up · s · (1 + gate · (1 − s)), dup = g · gate · s.
enum SwiGlu {
    /// At least the gate requires a gradient.
    Of(Arc<Known>),
    /// Only `up` requires a gradient, which does not depend on `up`.
    OfUp(Saved),
}

impl Gradient for SwiGlu {
    fn backward(self: Box<Self>, grad: Tensor, inputs: &mut InputGradients<'_>) -> Result<()> {
        let grad = grad.into_order()?;
        match *self {
            Self::Of(known) => {
                let (gate, up) = (known.gate.get(OP)?, known.up.get(OP)?);
                drop(known);
                of_gate(grad, gate, up, inputs)
            }
            Self::OfUp(gate) => {
                let gate = gate.take(OP)?;
                let free = [&grad, &gate].map(is_reusable);
                let new = if free == [false; 2] { Some(inputs.allocate(1, &grad)?) } else { None };
                let target = new.as_ref().unwrap_or(if free[0] { &grad } else { &gate });
                // The gate replaces `up`, whose values are not read.
                let known = [gate.view(), gate.view()];
                backend::swiglu_backward(grad.view(), known, [None, Some(target.view())])?;
                let out = new.unwrap_or(if free[0] { grad } else { gate });
                inputs.give(1, out)
            }
        }
    }
}

fn is_reusable(tensor: &Tensor) -> bool {
    tensor.is_free_to_write() && tensor.fills_storage()
}

/// Accumulates the gradient of the gate, and that of `up` if required. Uses memory that is no longer needed, if there
/// is any.
fn of_gate(grad: Tensor, gate: Tensor, up: Tensor, inputs: &mut InputGradients<'_>) -> Result<()> {
    let wants_up = inputs.needs(1);
    // Each gradient goes to its own input's memory if possible: elements are read before they are overwritten.
    let mut free = [&gate, &up, &grad].map(is_reusable);
    let mut place = |order: [usize; 3]| {
        let found = order.into_iter().find(|&place| free[place])?;
        free[found] = false;
        Some(found)
    };
    let places = [place([0, 2, 1]), if wants_up { place([1, 2, 0]) } else { None }];
    let mut new = [None, None];
    for (input, wanted) in [true, wants_up].into_iter().enumerate() {
        if wanted && places[input].is_none() {
            new[input] = Some(inputs.allocate(input, &grad)?);
        }
    }
    let buffers = [&gate, &up, &grad];
    let target = |input: usize| new[input].as_ref().or(places[input].map(|place| buffers[place])).map(Tensor::view);
    backend::swiglu_backward(grad.view(), [gate.view(), up.view()], [target(0), target(1)])?;
    let mut buffers = [Some(gate), Some(up), Some(grad)];
    let outs = [0, 1].map(|input| new[input].take().or_else(|| places[input].and_then(|place| buffers[place].take())));
    // Memory that is no longer needed is freed before gradients are accumulated.
    drop(buffers);
    for (input, out) in outs.into_iter().enumerate() {
        if let Some(out) = out {
            out.storage().changed();
            inputs.give(input, out)?;
        }
    }
    Ok(())
}
