//! Views: the same memory in another shape or order. No elements are copied and nothing is saved.

use crate::autograd::{Gradient, InputGradients, Operation};
use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::shape::{MAX_RANK, Shape};
use crate::tensor::Tensor;

impl Tensor {
    /// The same elements in another shape: a view if strides allow it, else a copy.
    pub fn reshape(&self, shape: impl Into<Shape>) -> Result<Self> {
        let (op, shape) = ("reshape", shape.into());
        let operation = Operation::begin(op, &[]);
        if shape.elements() != self.elements() {
            return Err(Error::shapes(op, self.shape(), &shape, "expected the same number of elements"));
        }
        let out = self.reshaped(&shape)?;
        let from = *self.shape();
        Ok(operation.record(out, &[self], |_| Reshape { from }))
    }

    /// Without history: the elements in another shape, copied only if they must be.
    pub(crate) fn reshaped(&self, shape: &Shape) -> Result<Self> {
        match self.layout().reshape(shape) {
            Some(layout) => Ok(self.with_layout(layout)),
            None => {
                let copy = self.copied()?;
                let layout = Layout::contiguous(*shape);
                Ok(copy.with_layout(layout))
            }
        }
    }

    /// Axis `axis` and all that follow, joined into one.
    pub fn flatten_from(&self, axis: isize) -> Result<Self> {
        let axis = self.shape().axis("flatten_from", axis)?;
        let (kept, joined) = self.shape().split_at(axis);
        let mut lengths = kept.to_vec();
        lengths.push(joined.iter().product());
        self.reshape(Shape::filled(&lengths))
    }

    /// With an axis of length 1 before axis `axis`; −1 puts it last.
    pub fn unsqueeze(&self, axis: isize) -> Result<Self> {
        let op = "unsqueeze";
        let rank = self.rank();
        let place = if axis < 0 { axis + rank as isize + 1 } else { axis };
        if rank == MAX_RANK {
            return Err(Error::Rank { op, rank: rank + 1 });
        }
        if !(0..=rank as isize).contains(&place) {
            return Err(Error::Axis { op, axis, rank: rank + 1 });
        }
        let mut lengths = self.shape().to_vec();
        lengths.insert(place as usize, 1);
        self.reshape(Shape::filled(&lengths))
    }

    /// Without axis `axis`, whose length is 1.
    pub fn squeeze(&self, axis: isize) -> Result<Self> {
        let at = self.shape().axis("squeeze", axis)?;
        if self.shape()[at] != 1 {
            return Err(Error::shape("squeeze", self.shape(), "only an axis of length 1 can be left out"));
        }
        self.reshape(self.shape().without_axis(at))
    }

    /// With two axes exchanged.
    pub fn transpose(&self, first: isize, second: isize) -> Result<Self> {
        let operation = Operation::begin("transpose", &[]);
        let axes = [self.shape().axis("transpose", first)?, self.shape().axis("transpose", second)?];
        let out = self.with_layout(self.layout().transpose(axes[0], axes[1]));
        Ok(operation.record(out, &[self], |_| Transpose { axes }))
    }

    /// With axes in another order: axis `i` of the result is axis `order[i]` of this.
    pub fn permute(&self, order: &[isize]) -> Result<Self> {
        let op = "permute";
        let operation = Operation::begin(op, &[]);
        let order = order.iter().map(|&axis| self.shape().axis(op, axis)).collect::<Result<Vec<usize>>>()?;
        let mut back = vec![usize::MAX; self.rank()];
        for (to, &from) in order.iter().enumerate() {
            back[from] = to;
        }
        if order.len() != self.rank() || back.contains(&usize::MAX) {
            return Err(Error::shape(op, self.shape(), "name each axis exactly once"));
        }
        let out = self.with_layout(self.layout().permute(&order));
        Ok(operation.record(out, &[self], |_| Permute { back }))
    }

    /// `length` elements of one axis, from `start` on.
    pub fn narrow(&self, axis: isize, start: usize, length: usize) -> Result<Self> {
        let op = "narrow";
        let operation = Operation::begin(op, &[]);
        let axis = self.shape().axis(op, axis)?;
        let out = self.with_layout(self.layout().narrow(op, axis, start, length)?);
        Ok(operation.record(out, &[self], |_| Narrow { axis, start }))
    }

    /// Element `index` of one axis, without that axis.
    pub fn select(&self, axis: isize, index: usize) -> Result<Self> {
        let at = self.shape().axis("select", axis)? as isize;
        self.narrow(at, index, 1)?.squeeze(at)
    }

    /// Axes of length 1 repeated to fill `shape`, without a copy.
    pub fn expand(&self, shape: impl Into<Shape>) -> Result<Self> {
        let operation = Operation::begin("expand", &[]);
        let out = self.broadcast_to("expand", &shape.into())?;
        let from = *self.shape();
        Ok(operation.record(out, &[self], |_| Expand { from }))
    }

    /// This tensor if its numbers are contiguous, else a copy in which they do.
    pub fn contiguous(&self) -> Result<Self> {
        if self.is_contiguous() {
            return Ok(self.clone());
        }
        self.copy("contiguous")
    }

    /// This tensor if its memory holds nothing else, else a copy: a small view no longer keeps a large block live.
    pub fn compact(&self) -> Result<Self> {
        if self.fills_storage() {
            return Ok(self.clone());
        }
        self.copy("compact")
    }

    fn copy(&self, op: &'static str) -> Result<Self> {
        let operation = Operation::begin(op, &[self]);
        let out = self.copied()?;
        Ok(operation.record(out, &[self], |_| Copy))
    }
}

/// The gradient in the former shape.
struct Reshape {
    from: Shape,
}

impl Gradient for Reshape {
    fn backward(self: Box<Self>, grad: Tensor, inputs: &mut InputGradients<'_>) -> Result<()> {
        let grad = {
            let reshaped = grad.reshaped(&self.from)?;
            drop(grad);
            reshaped
        };
        inputs.give(0, grad)
    }
}

struct Transpose {
    axes: [usize; 2],
}

impl Gradient for Transpose {
    fn backward(self: Box<Self>, grad: Tensor, inputs: &mut InputGradients<'_>) -> Result<()> {
        let back = grad.with_layout(grad.layout().transpose(self.axes[0], self.axes[1]));
        drop(grad);
        inputs.give(0, back)
    }
}

struct Permute {
    back: Vec<usize>,
}

impl Gradient for Permute {
    fn backward(self: Box<Self>, grad: Tensor, inputs: &mut InputGradients<'_>) -> Result<()> {
        let back = grad.with_layout(grad.layout().permute(&self.back));
        drop(grad);
        inputs.give(0, back)
    }
}

/// The gradient of a part; the engine puts parts together in one buffer.
struct Narrow {
    axis: usize,
    start: usize,
}

impl Gradient for Narrow {
    fn backward(self: Box<Self>, grad: Tensor, inputs: &mut InputGradients<'_>) -> Result<()> {
        inputs.give_part(0, self.axis, self.start, &grad)
    }
}

/// The sum over what was repeated.
struct Expand {
    from: Shape,
}

impl Gradient for Expand {
    fn backward(self: Box<Self>, grad: Tensor, inputs: &mut InputGradients<'_>) -> Result<()> {
        inputs.give(0, grad.into_sum_to(&self.from)?)
    }
}

struct Copy;

impl Gradient for Copy {
    fn backward(self: Box<Self>, grad: Tensor, inputs: &mut InputGradients<'_>) -> Result<()> {
        inputs.give(0, grad)
    }
}
