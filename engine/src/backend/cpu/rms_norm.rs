//! RMS norm: divides rows by their root mean square.

use rayon::prelude::*;

use super::number::{Float, Real, with_float};
use super::softmax::{part, part_mut, row_sizes};
use crate::backend::View;
use crate::error::Result;
use crate::storage::Reading;

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
    if let Some(grad) = grad {
        super::elementwise::copy(out, grad)?;
    }
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
    let values = input.storage.read::<T>(OP)?;
    let mut memory = inverse.storage.write::<T::Real>(OP)?;
    let rows = part(&values, input).par_chunks(width);
    part_mut(&mut memory, inverse).par_iter_mut().zip(rows).for_each(|(inverse, row)| {
        let mut squares = T::Real::ZERO;
        row.iter().map(|x| x.load()).for_each(|x| squares += x * x);
        *inverse = T::Real::ONE / (squares / T::Real::of(width as f64) + T::Real::of(epsilon)).sqrt();
    });
    Ok(())
}

/// Optional weights, as read by [`weights`].
type Weights<'a, T> = Option<(Reading<'a, T>, View<'a>)>;

fn weights<T: Float>(view: Option<View<'_>>) -> Result<Weights<'_, T>> {
    view.map(|view| Ok((view.storage.read::<T>(OP)?, view))).transpose()
}

/// Returns the weight of a column, or 1 without weights.
fn factor<T: Float>(weights: Option<&[T]>, column: usize) -> T::Real {
    weights.map_or(T::Real::ONE, |weights| weights[column].load())
}

fn normalise<T: Float>(out: View<'_>, inverse: View<'_>, input: View<'_>, weight: Option<View<'_>>) -> Result<()> {
    let (width, rows) = row_sizes(input);
    let (values, inverses) = (input.storage.read::<T>(OP)?, inverse.storage.read::<T::Real>(OP)?);
    let read = weights::<T>(weight)?;
    let weights = read.as_ref().map(|(memory, view)| part(memory, *view));
    let inputs = part(&values, input).par_chunks(rows * width).zip(part(&inverses, inverse).par_chunks(rows));
    let mut memory = out.storage.write::<T>(OP)?;
    part_mut(&mut memory, out).par_chunks_mut(rows * width).zip(inputs).for_each(|(out, (input, inverses))| {
        for ((out, input), &inverse) in out.chunks_mut(width).zip(input.chunks(width)).zip(inverses) {
            for (column, (y, x)) in out.iter_mut().zip(input).enumerate() {
                *y = T::store(x.load() * inverse * factor(weights, column));
            }
        }
    });
    Ok(())
}

fn backward<T: Float>(out: View<'_>, inverse: View<'_>, input: View<'_>, weight: Option<View<'_>>) -> Result<()> {
    let (width, rows) = row_sizes(input);
    let (values, inverses) = (input.storage.read::<T>(OP)?, inverse.storage.read::<T::Real>(OP)?);
    let read = weights::<T>(weight)?;
    let weights = read.as_ref().map(|(memory, view)| part(memory, *view));
    let inputs = part(&values, input).par_chunks(rows * width).zip(part(&inverses, inverse).par_chunks(rows));
    let mut memory = out.storage.write::<T>(OP)?;
    part_mut(&mut memory, out).par_chunks_mut(rows * width).zip(inputs).for_each(|(grads, (input, inverses))| {
        for ((grads, input), &inverse) in grads.chunks_mut(width).zip(input.chunks(width)).zip(inverses) {
            let mut sum = T::Real::ZERO;
            for (column, (g, x)) in grads.iter().zip(input).enumerate() {
                sum += g.load() * factor(weights, column) * x.load() * inverse;
            }
            let mean = sum / T::Real::of(width as f64);
            for (column, (g, x)) in grads.iter_mut().zip(input).enumerate() {
                *g = T::store(inverse * (g.load() * factor(weights, column) - x.load() * inverse * mean));
            }
        }
    });
    Ok(())
}

fn backward_weight<T: Float>(
    weight: View<'_>,
    grad: View<'_>,
    inverse: View<'_>,
    input: View<'_>,
    keep: f64,
) -> Result<()> {
    /// Columns whose sums are accumulated at a time.
    const COLUMNS: usize = 256;
    let (width, _) = row_sizes(input);
    let (values, grads) = (input.storage.read::<T>(OP)?, grad.storage.read::<T>(OP)?);
    let inverses = inverse.storage.read::<T::Real>(OP)?;
    let (values, grads, inverses) = (part(&values, input), part(&grads, grad), part(&inverses, inverse));
    let mut memory = weight.storage.write::<T>(OP)?;
    part_mut(&mut memory, weight).par_chunks_mut(COLUMNS).enumerate().for_each(|(chunk, places)| {
        let columns = chunk * COLUMNS..chunk * COLUMNS + places.len();
        let mut sums = [T::Real::ZERO; COLUMNS];
        for (row, &inverse) in inverses.iter().enumerate() {
            let (grads, values) = (&grads[row * width..][columns.clone()], &values[row * width..][columns.clone()]);
            for (sum, (g, x)) in sums.iter_mut().zip(grads.iter().zip(values)) {
                *sum += g.load() * x.load() * inverse;
            }
        }
        for (place, &sum) in places.iter_mut().zip(&sums) {
            *place = super::rows::kept(*place, sum, T::Real::of(keep));
        }
    });
    Ok(())
}
