//! Cumulative sums and products along an axis.

use std::sync::Arc;

use crate::autograd::{Gradient, InputGradients, Operation, Recipe, Saved};
use crate::backend::{self, Fold, Scan};
use crate::error::Result;
use crate::tensor::Tensor;

impl Tensor {
    /// Returns the cumulative sums along `axis`. Saves nothing.
    ///
    /// # Errors
    ///
    /// Fails if the axis is out of range, if the elements are not floating-point numbers, or if memory runs out.
    pub fn cumsum(&self, axis: isize) -> Result<Self> {
        self.running_sum(axis, false)
    }

    /// Returns the exclusive cumulative sums along `axis`: the first is 0. Saves nothing.
    ///
    /// # Errors
    ///
    /// See [`Self::cumsum`].
    pub fn cumsum_exclusive(&self, axis: isize) -> Result<Self> {
        self.running_sum(axis, true)
    }

    /// Returns the cumulative products along `axis`. Saves its input; the result is recomputed instead of saved. The
    /// gradient is also correct for elements that are 0.
    ///
    /// # Errors
    ///
    /// See [`Self::cumsum`].
    pub fn cumprod(&self, axis: isize) -> Result<Self> {
        self.running_product(axis, false)
    }

    /// Returns the exclusive cumulative products along `axis`: the first is 1. Saves its input, as [`Self::cumprod`]
    /// does.
    ///
    /// # Errors
    ///
    /// See [`Self::cumsum`].
    pub fn cumprod_exclusive(&self, axis: isize) -> Result<Self> {
        self.running_product(axis, true)
    }

    fn running_sum(&self, axis: isize, exclusive: bool) -> Result<Self> {
        let op = "cumsum";
        let operation = Operation::begin(op, &[self]);
        self.check_float(op)?;
        let axis = self.shape().axis(op, axis)?;
        let out = self.scanned(axis, Scan { fold: Fold::Sum, exclusive, backwards: false })?;
        Ok(operation.record(out, &[self], |_| RunningSum { axis, exclusive }))
    }

    fn running_product(&self, axis: isize, exclusive: bool) -> Result<Self> {
        let op = "cumprod";
        let operation = Operation::begin(op, &[self]);
        self.check_float(op)?;
        let axis = self.shape().axis(op, axis)?;
        let out = self.scanned(axis, Scan { fold: Fold::Product, exclusive, backwards: false })?;
        let factors = || Factors { input: Saved::new(self), axis, exclusive };
        Ok(operation.record_known(out, &[self], factors, |factors| RunningProduct { factors }))
    }

    fn scanned(&self, axis: usize, scan: Scan) -> Result<Self> {
        let out = self.same_shape()?;
        backend::scan(out.view(), Some(self.view()), axis, scan)?;
        Ok(out)
    }
}

/// An element's gradient is the sum of the gradients of all results that it is part of.
struct RunningSum {
    axis: usize,
    exclusive: bool,
}

impl Gradient for RunningSum {
    fn backward(self: Box<Self>, grad: Tensor, inputs: &mut InputGradients<'_>) -> Result<()> {
        let scan = Scan { fold: Fold::Sum, exclusive: self.exclusive, backwards: true };
        let out = grad.rewritten(Tensor::is_free_to_write, |out, grad| backend::scan(out, grad, self.axis, scan))?;
        inputs.give(0, out)
    }
}

struct Factors {
    input: Saved,
    axis: usize,
    exclusive: bool,
}

impl Recipe for Factors {
    fn compute(&self) -> Result<Tensor> {
        let Self { input, axis, exclusive } = self;
        input.get("cumprod")?.scanned(*axis, Scan { fold: Fold::Product, exclusive: *exclusive, backwards: false })
    }
}

struct RunningProduct {
    factors: Arc<Factors>,
}

impl Gradient for RunningProduct {
    fn backward(self: Box<Self>, grad: Tensor, inputs: &mut InputGradients<'_>) -> Result<()> {
        let (axis, exclusive) = (self.factors.axis, self.factors.exclusive);
        let input = self.factors.input.get("cumprod")?;
        drop(self);
        let out = grad.same_shape()?;
        backend::product_backward(out.view(), grad.view(), input.view(), axis, exclusive)?;
        drop((grad, input));
        inputs.give(0, out)
    }
}
