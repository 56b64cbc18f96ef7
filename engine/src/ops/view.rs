//! Views of the same memory with another shape or order of axes. Elements are not copied and nothing is saved.

use crate::autograd::{Operation, gradient};
use crate::shape::MAX_RANK;
use crate::{Error, Layout, Result, Shape, Tensor};

impl Tensor {
    /// Returns the same elements in another shape, as a view if the strides allow it, otherwise as a copy.
    ///
    /// # Errors
    /// Fails if the number of elements differs, or if memory runs out.
    pub fn reshape(&self, shape: impl Into<Shape>) -> Result<Self> {
        let (op, shape) = ("reshape", shape.into());
        let operation = Operation::begin(op, &[]);
        if shape.elements() != self.elements() {
            return Err(Error::shapes(op, self.shape(), &shape, "expected the same number of elements"));
        }
        let out = self.reshaped(&shape)?;
        let from = *self.shape();
        Ok(operation.record(out, &[self], |_| {
            gradient(move |grad, inputs| {
                let reshaped = grad.reshaped(&from)?;
                drop(grad);
                inputs.give(0, reshaped)
            })
        }))
    }

    /// Returns the elements in another shape, without history. Copies only if necessary.
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

    /// Joins axis `axis` and all later axes into one.
    ///
    /// # Errors
    /// Fails if the axis is out of range, or if memory runs out.
    pub fn flatten_from(&self, axis: isize) -> Result<Self> {
        let axis = self.shape().axis("flatten_from", axis)?;
        let (kept, joined) = self.shape().split_at(axis);
        let mut lengths = kept.to_vec();
        lengths.push(joined.iter().product());
        self.reshape(Shape::filled(&lengths))
    }

    /// Inserts an axis of length 1 before axis `axis`, where −1 puts it last.
    ///
    /// # Errors
    /// Fails if the axis is out of range, or if the tensor already has the maximum number of axes.
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

    /// Removes axis `axis`, whose length is 1.
    ///
    /// # Errors
    /// Fails if the axis is out of range or has another length.
    pub fn squeeze(&self, axis: isize) -> Result<Self> {
        let at = self.shape().axis("squeeze", axis)?;
        if self.shape()[at] != 1 {
            return Err(Error::shape("squeeze", self.shape(), "only an axis of length 1 can be squeezed"));
        }
        self.reshape(self.shape().without_axis(at))
    }

    /// Exchanges two axes.
    ///
    /// # Errors
    /// Fails if an axis is out of range.
    pub fn transpose(&self, first: isize, second: isize) -> Result<Self> {
        let operation = Operation::begin("transpose", &[]);
        let axes = [self.shape().axis("transpose", first)?, self.shape().axis("transpose", second)?];
        let out = self.with_layout(self.layout().transpose(axes[0], axes[1]));
        Ok(operation.record(out, &[self], |_| {
            gradient(move |grad, inputs| {
                let back = grad.with_layout(grad.layout().transpose(axes[0], axes[1]));
                drop(grad);
                inputs.give(0, back)
            })
        }))
    }

    /// Reorders the axes, so that axis `i` of the result is axis `order[i]` of this tensor.
    ///
    /// # Errors
    /// Fails unless `order` contains each axis once.
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
        Ok(operation.record(out, &[self], |_| {
            gradient(move |grad, inputs| {
                let back = grad.with_layout(grad.layout().permute(&back));
                drop(grad);
                inputs.give(0, back)
            })
        }))
    }

    /// Returns `length` elements of one axis, from `start`.
    ///
    /// # Errors
    /// Fails if the axis or the range is out of bounds.
    pub fn narrow(&self, axis: isize, start: usize, length: usize) -> Result<Self> {
        let op = "narrow";
        let operation = Operation::begin(op, &[]);
        let axis = self.shape().axis(op, axis)?;
        let out = self.with_layout(self.layout().narrow(op, axis, start, length)?);
        // The gradient of a part; autograd writes the gradients of several parts into one buffer.
        Ok(operation.record(out, &[self], |_| gradient(move |grad, inputs| inputs.give_part(0, axis, start, &grad))))
    }

    /// Returns element `index` of one axis, without that axis.
    ///
    /// # Errors
    /// Fails if the axis or the index is out of range.
    pub fn select(&self, axis: isize, index: usize) -> Result<Self> {
        let at = self.shape().axis("select", axis)? as isize;
        self.narrow(at, index, 1)?.squeeze(at)
    }

    /// Repeats axes of length 1 and adds leading axes to fill `shape`, without a copy.
    ///
    /// # Errors
    /// Fails if the shapes do not broadcast.
    pub fn expand(&self, shape: impl Into<Shape>) -> Result<Self> {
        let operation = Operation::begin("expand", &[]);
        let out = self.broadcast_to("expand", &shape.into())?;
        let from = *self.shape();
        Ok(operation.record(out, &[self], |_| gradient(move |grad, inputs| inputs.give(0, grad.into_sum_to(&from)?))))
    }

    /// Returns this tensor if its elements are contiguous, otherwise a contiguous copy.
    ///
    /// # Errors
    /// Fails if memory runs out.
    pub fn contiguous(&self) -> Result<Self> {
        if self.is_contiguous() {
            return Ok(self.clone());
        }
        self.copy("contiguous")
    }

    /// Returns this tensor if its memory contains nothing else, otherwise a copy, so that a small view does not keep a
    /// large block live.
    ///
    /// # Errors
    /// Fails if memory runs out.
    pub fn compact(&self) -> Result<Self> {
        if self.fills_storage() {
            return Ok(self.clone());
        }
        self.copy("compact")
    }

    fn copy(&self, op: &'static str) -> Result<Self> {
        let operation = Operation::begin(op, &[self]);
        let out = self.copied()?;
        Ok(operation.record(out, &[self], |_| gradient(|grad, inputs| inputs.give(0, grad))))
    }
}
