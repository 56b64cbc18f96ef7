//! Cumulative sums and products along an axis.

use crate::autograd::{Operation, Recipe, Saved, gradient};
use crate::backend::{self, Fold, Scan};
use crate::{Result, Tensor};

impl Tensor {
    /// Returns the cumulative sums along `axis`. Saves nothing.
    ///
    /// # Errors
    /// Fails if the axis is out of range, if the elements are not floating-point numbers, or if memory runs out.
    pub fn cumsum(&self, axis: isize) -> Result<Self> {
        self.running_sum(axis, false)
    }

    /// Returns the exclusive cumulative sums along `axis`, of which the first is 0. Saves nothing.
    ///
    /// # Errors
    /// See [`Self::cumsum`].
    pub fn cumsum_exclusive(&self, axis: isize) -> Result<Self> {
        self.running_sum(axis, true)
    }

    /// Returns the cumulative products along `axis`. Saves its input. The result is recomputed instead of saved. The
    /// gradient is also correct for elements that are 0.
    ///
    /// # Errors
    /// See [`Self::cumsum`].
    pub fn cumprod(&self, axis: isize) -> Result<Self> {
        self.running_product(axis, false)
    }

    /// Returns the exclusive cumulative products along `axis`, of which the first is 1. Saves its input, as
    /// [`Self::cumprod`] does.
    ///
    /// # Errors
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
        // An element's gradient is the sum of the gradients of all results that it is part of.
        Ok(operation.record(out, &[self], |_| {
            gradient(move |grad, inputs| {
                let scan = Scan { fold: Fold::Sum, exclusive, backwards: true };
                let out = grad.rewritten(Self::is_free_to_write, |out, grad| backend::scan(out, grad, axis, scan))?;
                inputs.give(0, out)
            })
        }))
    }

    fn running_product(&self, axis: isize, exclusive: bool) -> Result<Self> {
        let op = "cumprod";
        let operation = Operation::begin(op, &[self]);
        self.check_float(op)?;
        let axis = self.shape().axis(op, axis)?;
        let out = self.scanned(axis, Scan { fold: Fold::Product, exclusive, backwards: false })?;
        let factors = || Factors { input: Saved::new(self), axis, exclusive };
        Ok(operation.record_known(out, &[self], factors, |factors| {
            gradient(move |grad, inputs| {
                let input = factors.input.get(op)?;
                drop(factors);
                let out = grad.same_shape()?;
                backend::product_backward(out.view(), grad.view(), input.view(), axis, exclusive)?;
                drop((grad, input));
                inputs.give(0, out)
            })
        }))
    }

    fn scanned(&self, axis: usize, scan: Scan) -> Result<Self> {
        let out = self.same_shape()?;
        backend::scan(out.view(), Some(self.view()), axis, scan)?;
        Ok(out)
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
