//! Helpers for kernels over contiguous elements.
//!
//! Rows are reduced in a fixed number of lanes, each of which has every 16th element. The number of lanes does not
//! depend on the processor, so neither do the results.

use rayon::prelude::*;

use super::ELEMENTS_PER_TASK;
use super::elements::{read, write};
use super::number::{Float, Real};
use super::wide::wide;
use crate::Result;
use crate::backend::View;

const LANES: usize = 16;

/// Calls `row(out, input, statistics)` for each row of `out` and `input`, on several threads. Each statistic has one
/// element per row.
pub(super) fn by_rows<T: Float, const N: usize>(
    op: &'static str,
    out: View<'_>,
    input: View<'_>,
    statistics: [View<'_>; N],
    row: impl Fn(&mut [T], &[T], [T::Real; N]) + Sync,
) -> Result<()> {
    let (width, rows) = row_sizes(input);
    let values = read::<T>(input, op)?;
    let known: Vec<_> = statistics.into_iter().map(|view| read::<T::Real>(view, op)).collect::<Result<_>>()?;
    let mut memory = write::<T>(out, op)?;
    let tasks = memory.par_chunks_mut(rows * width).zip(values.par_chunks(rows * width)).enumerate();
    tasks.for_each(|(task, (out, input))| {
        for (n, (out, input)) in (task * rows..).zip(out.chunks_mut(width).zip(input.chunks(width))) {
            row(out, input, std::array::from_fn(|which| known[which][n]));
        }
    });
    Ok(())
}

/// Loads a row of parameters, or fills the row with `number` if there are none.
pub(super) fn row_or<T: Float>(
    op: &'static str,
    view: Option<View<'_>>,
    number: f64,
    width: usize,
) -> Result<Vec<T::Real>> {
    let mut values = vec![T::Real::of(number); width];
    if let Some(view) = view {
        load(&mut values, &read::<T>(view, op)?);
    }
    Ok(values)
}

/// Returns the length of the last axis, and the number of rows per task.
pub(super) fn row_sizes(view: View<'_>) -> (usize, usize) {
    let width = view.layout.shape().last().copied().unwrap_or(1).max(1);
    (width, (ELEMENTS_PER_TASK / width).max(1))
}

/// Returns `sum` plus `keep` times `there`. Ignores `there` if `keep` is 0.
#[inline(always)]
pub(super) fn kept<T: Float>(there: T, sum: T::Real, keep: T::Real) -> T {
    T::store(if keep == T::Real::ZERO { sum } else { keep * there.load() + sum })
}

#[inline(always)]
fn total<R: Real>(lanes: [R; LANES]) -> R {
    let mut total = R::ZERO;
    lanes.into_iter().for_each(|lane| total += lane);
    total
}

#[inline(always)]
fn by_lanes<T: Float>(row: &[T], start: T::Real, add: impl Fn(T::Real, T) -> T::Real) -> [T::Real; LANES] {
    let mut lanes = [start; LANES];
    let (chunks, rest) = row.as_chunks::<LANES>();
    for chunk in chunks {
        lanes.iter_mut().zip(chunk).for_each(|(lane, &x)| *lane = add(*lane, x));
    }
    lanes.iter_mut().zip(rest).for_each(|(lane, &x)| *lane = add(*lane, x));
    lanes
}

wide! {
    pub(super) fn load[T: Float](out: &mut [T::Real], row: &[T]) {
        for (value, number) in out.iter_mut().zip(row) {
            *value = number.load();
        }
    }

    pub(super) fn store[T: Float](out: &mut [T], values: &[T::Real], factor: T::Real) {
        for (number, &value) in out.iter_mut().zip(values) {
            *number = T::store(factor * value);
        }
    }

    pub(super) fn add[T: Float](sums: &mut [T::Real], row: &[T]) {
        for (sum, number) in sums.iter_mut().zip(row) {
            *sum += number.load();
        }
    }

    /// Stores `factor` times the sums plus `keep` times the row.
    pub(super) fn put_sums[T: Float](row: &mut [T], sums: &[T::Real], factor: T::Real, keep: T::Real) {
        for (number, &sum) in row.iter_mut().zip(sums) {
            *number = kept(*number, factor * sum, keep);
        }
    }

    pub(super) fn add_row[T: Float](row: &mut [T], other: &[T]) {
        for (number, other) in row.iter_mut().zip(other) {
            *number = T::store(number.load() + other.load());
        }
    }

    pub(super) fn scale[R: Real](row: &mut [R], factor: R) {
        for value in row {
            *value = *value * factor;
        }
    }

    pub(super) fn sum[T: Float](row: &[T]) -> T::Real {
        total(by_lanes(row, T::Real::ZERO, |sum, x| sum + x.load()))
    }

    /// Returns the sum of squared differences from `mean`.
    pub(super) fn squares[T: Float](row: &[T], mean: T::Real) -> T::Real {
        total(by_lanes(row, T::Real::ZERO, |sum, x| sum + (x.load() - mean) * (x.load() - mean)))
    }

    pub(super) fn dot[T: Float](left: &[T], right: &[T]) -> T::Real {
        let mut lanes = [T::Real::ZERO; LANES];
        let ((left, left_rest), (right, right_rest)) = (left.as_chunks::<LANES>(), right.as_chunks::<LANES>());
        for (left, right) in left.iter().zip(right) {
            for ((lane, l), r) in lanes.iter_mut().zip(left).zip(right) {
                *lane += l.load() * r.load();
            }
        }
        for ((lane, l), r) in lanes.iter_mut().zip(left_rest).zip(right_rest) {
            *lane += l.load() * r.load();
        }
        total(lanes)
    }

    /// Returns the maximum, which is NaN if any element is NaN, and −∞ for an empty row.
    pub(super) fn largest[T: Float](row: &[T]) -> T::Real {
        let lanes = by_lanes(row, T::Real::LEAST, |most, x| most.largest(x.load()));
        lanes.into_iter().fold(T::Real::LEAST, Real::largest)
    }

    /// Subtracts both values from each element, one after the other, so that large values lose no digits.
    pub(super) fn less[T: Float](row: &mut [T], values: [T::Real; 2]) {
        let [first, second] = values;
        for x in row {
            *x = T::store((x.load() - first) - second);
        }
    }

    /// Replaces each gradient by `result · (gradient − sum)`.
    pub(super) fn softmax_slopes[T: Float](grads: &mut [T], results: &[T], sum: T::Real) {
        for (g, y) in grads.iter_mut().zip(results) {
            *g = T::store(y.load() * (g.load() - sum));
        }
    }

    /// Replaces each gradient by `gradient − exp(result) · sum`.
    pub(super) fn log_softmax_slopes[T: Float](grads: &mut [T], results: &[T], sum: T::Real) {
        for (g, y) in grads.iter_mut().zip(results) {
            *g = T::store(g.load() - y.load().exp() * sum);
        }
    }

    /// Replaces each slope by `weight · (slope − delta)`.
    pub(super) fn slopes[R: Real](slopes: &mut [R], weights: &[R], delta: R) {
        for (slope, &weight) in slopes.iter_mut().zip(weights) {
            *slope = weight * (*slope - delta);
        }
    }

    /// Replaces each element x by exp(x − `origin`).
    pub(super) fn exponents[R: Real](row: &mut [R], origin: R) {
        for x in row {
            *x = (*x - origin).exp();
        }
    }

    /// Replaces each element x by exp(x − `origin`) · `factor`.
    pub(super) fn shares[T: Float](row: &mut [T], origin: T::Real, factor: T::Real) {
        for x in row {
            *x = T::store((x.load() - origin).exp() * factor);
        }
    }
}

/// Returns the sum of exp(x − `origin`) over the row.
pub(super) fn exponent_sum<T: Float>(row: &[T], origin: T::Real) -> T::Real {
    const PART: usize = 512;
    let mut exponents_of = [T::Real::ZERO; PART];
    let mut total = T::Real::ZERO;
    for part in row.chunks(PART) {
        let values = &mut exponents_of[..part.len()];
        load(values, part);
        exponents(values, origin);
        total += sum(values);
    }
    total
}
