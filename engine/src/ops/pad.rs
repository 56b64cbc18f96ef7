//! Pads a tensor with a constant.

use crate::autograd::{Operation, gradient};
use crate::backend::{self, View};
use crate::{Error, Layout, Result, Shape, Tensor};

impl Tensor {
    /// Returns this tensor surrounded by elements `value`. `padding` has the numbers of elements before and after each
    /// of the last axes, in the order of the axes. For example, `[[1, 1], [2, 0]]` adds a row above and a row below
    /// images, and two columns on the left. Saves nothing.
    ///
    /// # Errors
    /// Fails if there are more pairs than axes, if the elements are not floating-point numbers, or if memory runs out.
    pub fn pad(&self, padding: &[[usize; 2]], value: f64) -> Result<Self> {
        let op = "pad";
        let operation = Operation::begin(op, &[self]);
        self.check_float(op)?;
        let Some(first) = self.rank().checked_sub(padding.len()) else {
            let what = format!(
                "{} pairs for a tensor of shape {}; expected at most one per axis",
                padding.len(),
                self.shape()
            );
            return Err(Error::Setting { op, what });
        };
        let mut shape = *self.shape();
        for (axis, [before, after]) in (first..).zip(padding) {
            shape = shape.with_axis(axis, shape[axis].saturating_add(*before).saturating_add(*after));
        }
        let inner = Inner { first, starts: padding.iter().map(|[before, _]| *before).collect(), shape: *self.shape() };
        let out = Self::empty(shape, self.dtype(), self.device())?;
        backend::fill(out.view(), value)?;
        backend::copy(View { layout: &inner.of(out.layout())?, ..out.view() }, self.view())?;
        Ok(operation.record(out, &[self], |_| {
            gradient(move |grad, inputs| {
                let inner = grad.with_layout(inner.of(grad.layout())?);
                drop(grad);
                inputs.give(0, inner)
            })
        }))
    }
}

/// The position of the input in the result, as its start along the axes from `first` on, and its shape.
struct Inner {
    first: usize,
    starts: Vec<usize>,
    shape: Shape,
}

impl Inner {
    fn of(&self, whole: &Layout) -> Result<Layout> {
        let axes = (self.first..).zip(&self.starts);
        axes.into_iter().try_fold(*whole, |layout, (axis, &start)| layout.narrow("pad", axis, start, self.shape[axis]))
    }
}
