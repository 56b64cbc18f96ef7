//! Concat: tensors joined along an axis.

use crate::autograd::{Gradient, InputGradients, Operation};
use crate::backend::{self, View};
use crate::error::{Error, Result};
use crate::tensor::Tensor;

impl Tensor {
    /// The tensors one after another along `axis`; they agree in all other axes.
    pub fn concat(tensors: &[&Self], axis: isize) -> Result<Self> {
        let op = "concat";
        let operation = Operation::begin(op);
        let Some(first) = tensors.first() else {
            return Err(Error::Setting { op, what: "no tensors were given; give at least one".to_owned() });
        };
        let axis = first.shape().axis(op, axis)?;
        let mut length = 0;
        for tensor in tensors {
            first.check_operand(op, tensor)?;
            if tensor.rank() != first.rank() || tensor.shape().with_axis(axis, 0) != first.shape().with_axis(axis, 0) {
                return Err(Error::shapes(
                    op,
                    first.shape(),
                    tensor.shape(),
                    "all axes but the joined one must be equal",
                ));
            }
            length += tensor.shape()[axis];
        }
        let out = Self::empty(first.shape().with_axis(axis, length), first.dtype(), first.device())?;
        let mut start = 0;
        for tensor in tensors {
            let layout = out.layout().narrow(op, axis, start, tensor.shape()[axis])?;
            backend::copy(View { layout: &layout, ..out.view() }, tensor.view())?;
            start += tensor.shape()[axis];
        }
        let lengths = tensors.iter().map(|tensor| tensor.shape()[axis]).collect();
        Ok(operation.record(out, tensors, |_| Concat { axis, lengths }))
    }
}

/// Each input's gradient is a part of the result's, seen in place.
struct Concat {
    axis: usize,
    lengths: Vec<usize>,
}

impl Gradient for Concat {
    fn backward(self: Box<Self>, grad: Tensor, inputs: &mut InputGradients<'_>) -> Result<()> {
        let mut start = 0;
        for (input, &length) in self.lengths.iter().enumerate() {
            if inputs.needs(input) {
                let layout = grad.layout().narrow("concat", self.axis, start, length)?;
                inputs.give(input, grad.with_layout(layout))?;
            }
            start += length;
        }
        Ok(())
    }
}
