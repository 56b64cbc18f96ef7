//! RMS norm: divides rows by their root mean square.

use rayon::prelude::*;

use super::columns::column_sums;
use super::elements::{read, write};
use super::elementwise::copy_if;
use super::number::{Float, Real, with_float};
use super::rows::{self, by_rows, row_or, row_sizes};
use crate::backend::View;
use crate::error::Result;

const OP: &str = "rms_norm";

pub(crate) fn rms_norm(
    out: View<'_>,
    inverse: View<'_>,
    input: View<'_>,
    weight: Option<View<'_>>,
    epsilon: f64,
) -> Result<()> {
    with_float!(OP, input.dtype, T => {
        measure::<T>(inverse, input, epsilon)?;
        normalise::<T>(out, inverse, input, weight)
    })
}

pub(crate) fn rms_norm_again(
    out: View<'_>,
    inverse: View<'_>,
    input: View<'_>,
    weight: Option<View<'_>>,
) -> Result<()> {
    with_float!(OP, input.dtype, T => normalise::<T>(out, inverse, input, weight))
}

pub(crate) fn rms_norm_backward(
    out: View<'_>,
    grad: Option<View<'_>>,
    inverse: View<'_>,
    input: View<'_>,
    weight: Option<View<'_>>,
) -> Result<()> {
    copy_if(out, grad)?;
    with_float!(OP, input.dtype, T => backward::<T>(out, inverse, input, weight))
}

pub(crate) fn rms_norm_backward_weight(
    weight: View<'_>,
    grad: View<'_>,
    inverse: View<'_>,
    input: View<'_>,
    keep: f64,
) -> Result<()> {
    with_float!(OP, input.dtype, T => backward_weight::<T>(weight, grad, inverse, input, keep))
}

fn measure<T: Float>(inverse: View<'_>, input: View<'_>, epsilon: f64) -> Result<()> {
    let (width, _) = row_sizes(input);
    let (values, mut inverses) = (read::<T>(input, OP)?, write::<T::Real>(inverse, OP)?);
    inverses.par_iter_mut().zip(values.par_chunks(width)).for_each(|(inverse, row)| {
        let mut squares = T::Real::ZERO;
        row.iter().map(|x| x.load()).for_each(|x| squares += x * x);
        *inverse = T::Real::ONE / (squares / T::Real::of(width as f64) + T::Real::of(epsilon)).sqrt();
    });
    Ok(())
}

fn normalise<T: Float>(out: View<'_>, inverse: View<'_>, input: View<'_>, weight: Option<View<'_>>) -> Result<()> {
    let weights = row_or::<T>(OP, weight, 1.0, row_sizes(input).0)?;
    by_rows::<T, 1>(OP, out, input, [inverse], |out, input, [inverse]| {
        for ((y, x), &weight) in out.iter_mut().zip(input).zip(&weights) {
            *y = T::store(x.load() * inverse * weight);
        }
    })
}

fn backward<T: Float>(out: View<'_>, inverse: View<'_>, input: View<'_>, weight: Option<View<'_>>) -> Result<()> {
    let weights = row_or::<T>(OP, weight, 1.0, row_sizes(input).0)?;
    by_rows::<T, 1>(OP, out, input, [inverse], |grads, input, [inverse]| {
        let mut sum = T::Real::ZERO;
        for ((g, x), &weight) in grads.iter().zip(input).zip(&weights) {
            sum += g.load() * weight * x.load() * inverse;
        }
        let mean = sum / T::Real::of(input.len() as f64);
        for ((g, x), &weight) in grads.iter_mut().zip(input).zip(&weights) {
            *g = T::store(inverse * (g.load() * weight - x.load() * inverse * mean));
        }
    })
}

fn backward_weight<T: Float>(
    weight: View<'_>,
    grad: View<'_>,
    inverse: View<'_>,
    input: View<'_>,
    keep: f64,
) -> Result<()> {
    let (width, _) = row_sizes(input);
    let (values, grads) = (read::<T>(input, OP)?, read::<T>(grad, OP)?);
    let inverses = read::<T::Real>(inverse, OP)?;
    let [sums] = column_sums::<T::Real, 1>([inverses.len(), width], |row, columns, [sums]| {
        let (grads, values) = (&grads[row * width..][columns.clone()], &values[row * width..][columns]);
        for (sum, (g, x)) in sums.iter_mut().zip(grads.iter().zip(values)) {
            *sum += g.load() * x.load() * inverses[row];
        }
    });
    rows::put_sums(&mut write::<T>(weight, OP)?, &sums, T::Real::ONE, T::Real::of(keep));
    Ok(())
}
