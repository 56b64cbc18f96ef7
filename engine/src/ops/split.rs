//! Splits a tensor into views.

use crate::{Error, Result, Tensor};

impl Tensor {
    /// Returns consecutive views of `length` elements along `axis`. The last view is shorter if the axis is not a
    /// multiple of `length`. An empty axis gives one empty part.
    ///
    /// # Errors
    /// Fails if the axis is out of range, or if `length` is 0.
    pub fn split(&self, length: usize, axis: isize) -> Result<Vec<Self>> {
        let op = "split";
        let whole = self.shape()[self.shape().axis(op, axis)?];
        if length == 0 {
            return Err(Error::Setting { op, what: "invalid part length 0: expected at least 1".to_owned() });
        }
        let parts = whole.div_ceil(length).max(1);
        (0..parts).map(|part| self.narrow(axis, part * length, length.min(whole - part * length))).collect()
    }

    /// Returns views of `lengths[0]`, `lengths[1]`, … elements along `axis`, which add up to its length.
    ///
    /// # Errors
    /// Fails if the axis is out of range, or if the lengths do not add up to its length.
    pub fn split_by(&self, lengths: &[usize], axis: isize) -> Result<Vec<Self>> {
        let op = "split";
        let whole = self.shape()[self.shape().axis(op, axis)?];
        let sum = lengths.iter().fold(0_usize, |sum, &length| sum.saturating_add(length));
        if sum != whole {
            let what = format!("the lengths {lengths:?} add up to {sum}; they must add up to the axis' {whole}");
            return Err(Error::Setting { op, what });
        }
        let mut start = 0;
        let part = |&length: &usize| {
            start += length;
            self.narrow(axis, start - length, length)
        };
        lengths.iter().map(part).collect()
    }

    /// Returns at most `count` views along `axis`, all but the last of equal length.
    ///
    /// # Errors
    /// Fails if the axis is out of range, or if `count` is 0.
    pub fn chunk(&self, count: usize, axis: isize) -> Result<Vec<Self>> {
        let op = "chunk";
        let whole = self.shape()[self.shape().axis(op, axis)?];
        if count == 0 {
            return Err(Error::Setting { op, what: "invalid number of parts 0: expected at least 1".to_owned() });
        }
        self.split(whole.div_ceil(count).max(1), axis)
    }
}
