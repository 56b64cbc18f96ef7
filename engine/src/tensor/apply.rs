//! Elementwise arithmetic without history, in place if the memory is not shared.
//!
//! Used by operations in forward, and by their gradients in backward. Arguments passed by value are consumed, and the
//! result overwrites their memory if it is not shared.

use super::Tensor;
use crate::backend::{self, Binary, Unary, View};
use crate::{DType, Layout, Result, Shape};

impl Tensor {
    /// Applies `function` to each element, in new memory.
    pub(crate) fn map(&self, function: Unary) -> Result<Self> {
        let out = self.same_shape()?;
        backend::unary(out.view(), function, Some(self.view()))?;
        Ok(out)
    }

    /// Applies `function` to each element, in this tensor's memory if it is not shared.
    pub(crate) fn into_map(self, function: Unary) -> Result<Self> {
        self.rewritten(Self::is_free_to_write, |out, input| backend::unary(out, function, input))
    }

    /// Applies `function` to this tensor and `right`, broadcast to the same shape, in new memory.
    pub(crate) fn zip(&self, function: Binary, right: &Self, op: &'static str) -> Result<Self> {
        let shape = Shape::broadcast(op, self.shape(), right.shape())?;
        let out = Self::empty(shape, self.dtype(), self.device())?;
        let (left, right) = (self.broadcast_to(op, &shape)?, right.broadcast_to(op, &shape)?);
        backend::binary(out.view(), function, Some(left.view()), right.view())?;
        Ok(out)
    }

    /// Applies `function` to this tensor and `right`, which broadcasts to this shape, in this tensor's memory if it is
    /// not shared.
    pub(crate) fn into_zip(self, function: Binary, right: &Self, op: &'static str) -> Result<Self> {
        let fits = Shape::broadcast(op, self.shape(), right.shape())? == *self.shape();
        if !fits || !self.is_free_to_write() {
            return self.zip(function, right, op);
        }
        backend::binary(self.view(), function, None, right.broadcast_to(op, self.shape())?.view())?;
        Ok(self)
    }

    /// Adds two gradients, in the memory of one of them if it is not shared.
    pub(crate) fn accumulate(self, other: Self) -> Result<Self> {
        if self.is_free_to_write() || !other.is_free_to_write() {
            self.into_zip(Binary::Add, &other, "accumulate")
        } else {
            other.into_zip(Binary::Add, &self, "accumulate")
        }
    }

    /// Allocates memory of this shape and type, contiguous and uninitialized.
    pub(crate) fn same_shape(&self) -> Result<Self> {
        Self::empty(*self.shape(), self.dtype(), self.device())
    }

    /// Computes a tensor of this shape and type with `compute`, which writes its first argument from its second, or in
    /// place if there is no second. The first argument is the memory of this tensor if `is_free`, otherwise new memory.
    pub(crate) fn rewritten(
        self,
        is_free: fn(&Self) -> bool,
        compute: impl FnOnce(View<'_>, Option<View<'_>>) -> Result<()>,
    ) -> Result<Self> {
        if is_free(&self) {
            self.storage().changed();
            compute(self.view(), None)?;
            return Ok(self);
        }
        let out = self.same_shape()?;
        compute(out.view(), Some(self.view()))?;
        Ok(out)
    }

    /// Copies the elements to new, contiguous memory.
    pub(crate) fn copied(&self) -> Result<Self> {
        let out = self.same_shape()?;
        backend::copy(out.view(), self.view())?;
        Ok(out)
    }

    /// Returns this tensor without history, or a copy if it is not contiguous.
    pub(crate) fn in_order(&self) -> Result<Self> {
        if self.is_contiguous() { Ok(self.detach()) } else { self.copied() }
    }

    /// Like [`Self::in_order`], for a tensor that is not used afterwards.
    pub(crate) fn into_order(self) -> Result<Self> {
        if self.is_contiguous() { Ok(self) } else { self.copied() }
    }

    /// Converts the elements to another type, in new memory if the type differs.
    pub(crate) fn converted(&self, dtype: DType) -> Result<Self> {
        if self.dtype() == dtype {
            return Ok(self.detach());
        }
        let out = Self::empty(*self.shape(), dtype, self.device())?;
        backend::cast(out.view(), self.view())?;
        Ok(out)
    }

    /// Broadcasts to `shape`, without a copy and without history.
    pub(crate) fn broadcast_to(&self, op: &'static str, shape: &Shape) -> Result<Self> {
        Ok(self.with_layout(self.layout().expand(op, shape)?))
    }

    /// Returns the gradient of a tensor that was broadcast from `shape`, which is the sum over the repeated axes. A
    /// gradient that is itself broadcast is multiplied instead.
    pub(crate) fn into_sum_to(self, shape: &Shape) -> Result<Self> {
        if self.shape() == shape {
            return Ok(self);
        }
        let shift = self.rank() - shape.rank();
        let was_repeated = |axis: usize| axis < shift || (shape[axis - shift] == 1 && self.shape()[axis] != 1);
        let summed: Vec<usize> = (0..self.rank()).filter(|&axis| was_repeated(axis)).collect();
        let sum = self.sum_over(&summed, 1.0)?;
        let layout = sum.layout().reshape(shape).expect("the reshape needs a copy");
        Ok(sum.with_layout(layout))
    }

    /// Returns `scale` times the sum over `axes`, which keep length 1.
    pub(crate) fn sum_over(&self, axes: &[usize], scale: f64) -> Result<Self> {
        let mut input = *self.layout();
        let mut factor = scale;
        let mut shape = *self.shape();
        for &axis in axes {
            if input.strides()[axis] == 0 && input.shape()[axis] > 1 {
                factor *= input.shape()[axis] as f64;
                input = input.narrow("sum", axis, 0, 1)?;
            }
            shape = shape.with_axis(axis, 1);
        }
        if input.elements() == 0 {
            return Self::zeros(shape, self.dtype(), self.device());
        }
        let out = Self::empty(shape, self.dtype(), self.device())?;
        let repeated: Layout = out.layout().expand("sum", input.shape())?;
        let target = View { layout: &repeated, ..out.view() };
        backend::sum(target, View { layout: &input, ..self.view() }, factor, 0.0)?;
        Ok(out)
    }
}
