//! The largest and smallest elements along an axis, and their indices.

use super::gather::Gather;
use crate::autograd::{Operation, Saved};
use crate::backend::{self, Extremum};
use crate::{DType, Error, Result, Tensor};

impl Tensor {
    /// Returns the maxima along `axis`, which is removed. A maximum is NaN if any element is. Saves the indices of the
    /// maxima, where the first of equal elements counts.
    ///
    /// # Errors
    /// Fails if the axis is out of range or empty, if the elements are not floating-point numbers, or if memory runs
    /// out.
    pub fn max_axis(&self, axis: isize) -> Result<Self> {
        self.extreme("max_axis", axis, Extremum::Largest)
    }

    /// Returns the minima along `axis`, like [`Self::max_axis`].
    ///
    /// # Errors
    /// See [`Self::max_axis`].
    pub fn min_axis(&self, axis: isize) -> Result<Self> {
        self.extreme("min_axis", axis, Extremum::Smallest)
    }

    /// Returns the index (I64) of the maximum along `axis`, which is removed. The first of equal elements counts, and
    /// NaN is the largest. Has no gradient.
    ///
    /// # Errors
    /// See [`Self::max_axis`].
    pub fn argmax(&self, axis: isize) -> Result<Self> {
        self.index_of("argmax", axis, Extremum::Largest)
    }

    /// Returns the index (I64) of the minimum along `axis`, which is removed. The first of equal elements counts, and
    /// NaN is the smallest. Has no gradient.
    ///
    /// # Errors
    /// See [`Self::max_axis`].
    pub fn argmin(&self, axis: isize) -> Result<Self> {
        self.index_of("argmin", axis, Extremum::Smallest)
    }

    /// Returns the `count` largest elements along `axis` in descending order, and their indices (I64). Of equal
    /// elements, the first comes first. NaN comes before all others. Saves the indices. To get the smallest elements,
    /// negate the tensor.
    ///
    /// # Errors
    /// Fails if the axis is out of range or has fewer elements than `count`, if the elements are not floating-point
    /// numbers, or if memory runs out.
    pub fn topk(&self, count: usize, axis: isize) -> Result<(Self, Self)> {
        let op = "topk";
        let operation = Operation::begin(op, &[self]);
        self.check_float(op)?;
        let axis = self.shape().axis(op, axis)?;
        let length = self.shape()[axis];
        if count > length {
            let what = format!("cannot take {count} elements along axis {axis}, which has {length}");
            return Err(Error::Setting { op, what });
        }
        let shape = self.shape().with_axis(axis, count);
        let largest = Self::empty(shape, self.dtype(), self.device())?;
        let places = Self::empty(shape, DType::I64, self.device())?;
        backend::extremes(places.view(), Some(largest.view()), self.view(), axis, Extremum::Largest)?;
        let largest = operation.record(largest, &[self], |_| Gather { op, places: Saved::memory(&places), axis });
        Ok((largest, places))
    }

    fn extreme(&self, op: &'static str, axis: isize, extremum: Extremum) -> Result<Self> {
        let operation = Operation::begin(op, &[self]);
        let axis = self.checked_axis(op, axis)?;
        let shape = self.shape().with_axis(axis, 1);
        let found = Self::empty(shape, self.dtype(), self.device())?;
        let places = Self::empty(shape, DType::I64, self.device())?;
        backend::extremes(places.view(), Some(found.view()), self.view(), axis, extremum)?;
        let out = found.reshaped(&shape.without_axis(axis))?;
        drop(found);
        Ok(operation.record(out, &[self], |_| Gather { op, places: Saved::memory(&places), axis }))
    }

    fn index_of(&self, op: &'static str, axis: isize, extremum: Extremum) -> Result<Self> {
        let _operation = Operation::begin(op, &[]);
        let axis = self.checked_axis(op, axis)?;
        let shape = self.shape().with_axis(axis, 1);
        let places = Self::empty(shape, DType::I64, self.device())?;
        backend::extremes(places.view(), None, self.view(), axis, extremum)?;
        places.reshaped(&shape.without_axis(axis))
    }

    fn checked_axis(&self, op: &'static str, axis: isize) -> Result<usize> {
        self.check_float(op)?;
        let axis = self.shape().axis(op, axis)?;
        if self.shape()[axis] == 0 {
            return Err(Error::shape(op, self.shape(), "the axis must not be empty"));
        }
        Ok(axis)
    }
}
