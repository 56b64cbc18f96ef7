//! Variance.

use crate::autograd::{Operation, Saved, gradient};
use crate::{Error, Result, Tensor, backend};

impl Tensor {
    /// Returns the variance of all elements, which is the sum of squared differences from their mean, divided by their
    /// count minus `correction` (1 for the unbiased estimate). The variance is NaN if that divisor is not positive.
    /// Saves its input.
    ///
    /// # Errors
    /// Fails if the elements are not floating-point numbers, or if memory runs out.
    pub fn var(&self, correction: usize) -> Result<Self> {
        self.variance(&(0..self.rank()).collect::<Vec<_>>(), correction, false)
    }

    /// Returns the variance over some axes, which are removed. See [`Self::var`].
    ///
    /// # Errors
    /// Fails if an axis is out of range or given twice, and for the reasons in [`Self::var`].
    pub fn var_axes(&self, axes: &[isize], correction: usize) -> Result<Self> {
        self.variance(&self.named(axes)?, correction, false)
    }

    /// Returns the variance over some axes, which keep length 1. See [`Self::var`].
    ///
    /// # Errors
    /// See [`Self::var_axes`].
    pub fn var_axes_keep(&self, axes: &[isize], correction: usize) -> Result<Self> {
        self.variance(&self.named(axes)?, correction, true)
    }

    fn named(&self, axes: &[isize]) -> Result<Vec<usize>> {
        let mut axes = axes.iter().map(|&axis| self.shape().axis("var", axis)).collect::<Result<Vec<usize>>>()?;
        axes.sort_unstable();
        match axes.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(_) => Err(Error::shape("var", self.shape(), "name each axis at most once")),
            None => Ok(axes),
        }
    }

    /// Returns the mean over `axes`, which keep length 1, in the statistics type. Rounded to a small type, the mean
    /// would be too inexact for elements that are close to one another.
    fn exact_mean(&self, axes: &[usize]) -> Result<Self> {
        let shape = axes.iter().fold(*self.shape(), |shape, &axis| shape.with_axis(axis, 1));
        let mean = Self::empty(shape, self.dtype().statistics(), self.device())?;
        backend::exact_mean(mean.broadcast_to("var", self.shape())?.view(), self.view())?;
        Ok(mean)
    }

    fn variance(&self, axes: &[usize], correction: usize, keep: bool) -> Result<Self> {
        let op = "var";
        let operation = Operation::begin(op, &[self]);
        self.check_float(op)?;
        let count: usize = axes.iter().map(|&axis| self.shape()[axis]).product();
        let left = count as f64 - correction as f64;
        let scale = if left > 0.0 { 1.0 / left } else { f64::NAN };
        let mean = self.exact_mean(axes)?;
        let out = Self::empty(mean.shape(), self.dtype(), self.device())?;
        // Over an empty axis, nothing is written.
        backend::fill(out.view(), if scale.is_nan() { f64::NAN } else { 0.0 })?;
        let (to, from) = (out.broadcast_to(op, self.shape())?, mean.broadcast_to(op, self.shape())?);
        backend::variance(to.view(), self.view(), from.view(), scale)?;
        drop((mean, from, to));
        let with_ones = *out.shape();
        let shape =
            if keep { with_ones } else { axes.iter().rev().fold(with_ones, |shape, &axis| shape.without_axis(axis)) };
        let named = out.reshaped(&shape)?;
        drop(out);
        let axes = axes.to_vec();
        // d(var) = 2 / (n − c) · (x − mean) · dx; the mean is recomputed.
        Ok(operation.record(named, &[self], |_| {
            let input = Saved::new(self);
            gradient(move |grad, inputs| {
                let input = input.take(op)?;
                let shape = *input.shape();
                let mean = input.exact_mean(&axes)?.broadcast_to(op, &shape)?;
                let grad = grad.reshaped(&with_ones)?.broadcast_to(op, &shape)?;
                let out = input.rewritten(Self::is_free_to_write, |out, input| {
                    backend::variance_backward(out, grad.view(), input, mean.view(), 2.0 * scale)
                })?;
                inputs.give(0, out)
            })
        }))
    }
}
