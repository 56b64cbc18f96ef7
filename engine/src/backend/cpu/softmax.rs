//! Softmax and log-softmax of rows.

use rayon::prelude::*;

use super::elements::write;
use super::elementwise::copy_if;
use super::number::{Float, Real, with_float};
use super::rows::{self, row_sizes};
use crate::Result;
use crate::backend::View;

pub(crate) fn softmax(out: View<'_>, input: Option<View<'_>>) -> Result<()> {
    with_float!("softmax", out.dtype, T => by_rows::<T>(out, input, softmax_row))
}

fn softmax_row<T: Float>(row: &mut [T]) {
    let (largest, sum) = exponent_sum(row);
    rows::shares(row, largest, T::Real::ONE / sum);
}

pub(crate) fn log_softmax(out: View<'_>, input: Option<View<'_>>) -> Result<()> {
    with_float!("log_softmax", out.dtype, T => by_rows::<T>(out, input, log_softmax_row))
}

fn log_softmax_row<T: Float>(row: &mut [T]) {
    let (largest, sum) = exponent_sum(row);
    rows::less(row, [largest, sum.ln()]);
}

/// Returns a row's maximum m, and the sum of exp(x − m).
pub(super) fn exponent_sum<T: Float>(row: &[T]) -> (T::Real, T::Real) {
    let largest = rows::largest(row);
    (largest, rows::exponent_sum(row, largest))
}

fn by_rows<T: Float>(out: View<'_>, input: Option<View<'_>>, change: impl Fn(&mut [T]) + Sync) -> Result<()> {
    copy_if(out, input)?;
    let (width, rows) = row_sizes(out);
    let mut memory = write::<T>(out, "softmax")?;
    memory.par_chunks_mut(rows * width).for_each(|rows| rows.chunks_mut(width).for_each(&change));
    Ok(())
}

pub(crate) fn softmax_backward(out: View<'_>, grad: Option<View<'_>>, result: View<'_>) -> Result<()> {
    with_float!("softmax", out.dtype, T => backward_by_rows::<T>(out, grad, result, softmax_row_backward))
}

fn softmax_row_backward<T: Float>(grads: &mut [T], results: &[T]) {
    rows::softmax_slopes(grads, results, rows::dot(grads, results));
}

pub(crate) fn log_softmax_backward(out: View<'_>, grad: Option<View<'_>>, result: View<'_>) -> Result<()> {
    with_float!("log_softmax", out.dtype, T => backward_by_rows::<T>(out, grad, result, log_softmax_row_backward))
}

fn log_softmax_row_backward<T: Float>(grads: &mut [T], results: &[T]) {
    rows::log_softmax_slopes(grads, results, rows::sum(grads));
}

fn backward_by_rows<T: Float>(
    out: View<'_>,
    grad: Option<View<'_>>,
    result: View<'_>,
    change: impl Fn(&mut [T], &[T]) + Sync,
) -> Result<()> {
    copy_if(out, grad)?;
    rows::by_rows::<T, 0>("softmax", out, result, [], |grads, results, []| change(grads, results))
}
