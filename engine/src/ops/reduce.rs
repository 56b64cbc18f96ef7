//! Sums and means.

use crate::autograd::{Operation, gradient};
use crate::backend::{self, Unary};
use crate::{Result, Shape, Tensor};

impl Tensor {
    /// Returns the sum of all elements.
    ///
    /// # Errors
    /// Fails if the elements are not floating-point numbers, or if memory runs out.
    pub fn sum(&self) -> Result<Self> {
        self.reduce("sum", &self.all_axes(), Shape::SCALAR, 1.0)
    }

    /// Returns the mean of all elements, or NaN if there are none.
    ///
    /// # Errors
    /// See [`Self::sum`].
    pub fn mean(&self) -> Result<Self> {
        self.reduce("mean", &self.all_axes(), Shape::SCALAR, 1.0 / self.elements() as f64)
    }

    /// Returns the sum over some axes, which are removed. An axis that is given twice counts once.
    ///
    /// # Errors
    /// Fails if an axis is out of range, and for the reasons in [`Self::sum`].
    pub fn sum_axes(&self, axes: &[isize]) -> Result<Self> {
        let axes = self.distinct_axes("sum", axes)?;
        self.reduce("sum", &axes, self.shape_without(&axes), 1.0)
    }

    /// Returns the sum over some axes, which keep length 1.
    ///
    /// # Errors
    /// See [`Self::sum_axes`].
    pub fn sum_axes_keep(&self, axes: &[isize]) -> Result<Self> {
        let axes = self.distinct_axes("sum", axes)?;
        self.reduce("sum", &axes, self.shape_with_ones(&axes), 1.0)
    }

    /// Returns the mean over some axes, which are removed. The mean is NaN if one of them has length 0.
    ///
    /// # Errors
    /// See [`Self::sum_axes`].
    pub fn mean_axes(&self, axes: &[isize]) -> Result<Self> {
        let axes = self.distinct_axes("mean", axes)?;
        self.reduce("mean", &axes, self.shape_without(&axes), self.share(&axes))
    }

    /// Returns the mean over some axes, which keep length 1. The mean is NaN if one of them has length 0 in this
    /// tensor.
    ///
    /// # Errors
    /// See [`Self::sum_axes`].
    pub fn mean_axes_keep(&self, axes: &[isize]) -> Result<Self> {
        let axes = self.distinct_axes("mean", axes)?;
        self.reduce("mean", &axes, self.shape_with_ones(&axes), self.share(&axes))
    }

    fn all_axes(&self) -> Vec<usize> {
        (0..self.rank()).collect()
    }

    fn distinct_axes(&self, op: &'static str, axes: &[isize]) -> Result<Vec<usize>> {
        let mut axes = axes.iter().map(|&axis| self.shape().axis(op, axis)).collect::<Result<Vec<usize>>>()?;
        axes.sort_unstable();
        axes.dedup();
        Ok(axes)
    }

    fn shape_with_ones(&self, axes: &[usize]) -> Shape {
        axes.iter().fold(*self.shape(), |shape, &axis| shape.with_axis(axis, 1))
    }

    fn shape_without(&self, axes: &[usize]) -> Shape {
        axes.iter().rev().fold(*self.shape(), |shape, &axis| shape.without_axis(axis))
    }

    fn share(&self, axes: &[usize]) -> f64 {
        1.0 / axes.iter().map(|&axis| self.shape()[axis]).product::<usize>() as f64
    }

    fn reduce(&self, op: &'static str, axes: &[usize], shape: Shape, scale: f64) -> Result<Self> {
        let operation = Operation::begin(op, &[self]);
        self.check_float(op)?;
        let with_ones = self.shape_with_ones(axes);
        let sum = self.sum_over(axes, scale)?;
        if !scale.is_finite() {
            // The mean of no elements: 0 / 0.
            backend::fill(sum.view(), f64::NAN)?;
        }
        let out = sum.reshaped(&shape)?;
        drop(sum);
        let from = *self.shape();
        // d(s·Σx) = s·Σdx: the gradient broadcast, without a copy.
        Ok(operation.record(out, &[self], |_| {
            gradient(move |grad, inputs| {
                let grad = if scale == 1.0 { grad } else { grad.into_map(Unary::Affine { scale, shift: 0.0 })? };
                let repeated = grad.reshaped(&with_ones)?.broadcast_to("sum", &from)?;
                drop(grad);
                inputs.give(0, repeated)
            })
        }))
    }
}
