//! Norm: rows made mean 0 and variance 1.

use rayon::prelude::*;

use super::number::{Float, Real, with_float};
use super::softmax::{part, part_mut, row_sizes};
use crate::backend::View;
use crate::error::Result;
use crate::storage::Reading;

/// See [`crate::backend::layer_norm`].
pub fn layer_norm(
    out: View<'_>,
    mean: View<'_>,
    rstd: View<'_>,
    input: View<'_>,
    affine: [Option<View<'_>>; 2],
    epsilon: f64,
) -> Result<()> {
    with_float!("layer_norm", input.dtype, T => {
        measure::<T>(mean, rstd, input, epsilon)?;
        normalise::<T>(out, [mean, rstd], input, affine)
    })
}

fn measure<T: Float>(mean: View<'_>, rstd: View<'_>, input: View<'_>, epsilon: f64) -> Result<()> {
    let (width, _) = row_sizes(input);
    let values = input.storage.read::<T>("layer_norm")?;
    let mut means = mean.storage.write::<T::Real>("layer_norm")?;
    let mut rstds = rstd.storage.write::<T::Real>("layer_norm")?;
    let statistics = part_mut(&mut means, mean).par_iter_mut().zip(part_mut(&mut rstds, rstd));
    part(&values, input).par_chunks(width).zip(statistics).for_each(|(row, (mean, rstd))| {
        let count = T::Real::of(width as f64);
        let mut sum = T::Real::ZERO;
        row.iter().for_each(|x| sum += x.load());
        *mean = sum / count;
        let mut squares = T::Real::ZERO;
        row.iter().map(|x| x.load() - *mean).for_each(|difference| squares += difference * difference);
        *rstd = T::Real::ONE / (squares / count + T::Real::of(epsilon)).sqrt();
    });
    Ok(())
}

/// See [`crate::backend::layer_norm_again`].
pub fn layer_norm_again(
    out: View<'_>,
    statistics: [View<'_>; 2],
    input: View<'_>,
    affine: [Option<View<'_>>; 2],
) -> Result<()> {
    with_float!("layer_norm", input.dtype, T => normalise::<T>(out, statistics, input, affine))
}

fn normalise<T: Float>(
    out: View<'_>,
    statistics: [View<'_>; 2],
    input: View<'_>,
    affine: [Option<View<'_>>; 2],
) -> Result<()> {
    let (width, rows) = row_sizes(input);
    let [mean, rstd] = statistics;
    let values = input.storage.read::<T>("layer_norm")?;
    let (means, rstds) = (mean.storage.read::<T::Real>("layer_norm")?, rstd.storage.read::<T::Real>("layer_norm")?);
    let (weights, biases) = (optional::<T>(affine[0])?, optional::<T>(affine[1])?);
    let (weights, biases) = (optional_part(&weights, affine[0]), optional_part(&biases, affine[1]));
    let statistics = part(&means, mean).par_chunks(rows).zip(part(&rstds, rstd).par_chunks(rows));
    let inputs = part(&values, input).par_chunks(rows * width).zip(statistics);
    let mut memory = out.storage.write::<T>("layer_norm")?;
    part_mut(&mut memory, out).par_chunks_mut(rows * width).zip(inputs).for_each(|(out, (input, (means, rstds)))| {
        let rows = out.chunks_mut(width).zip(input.chunks(width)).zip(means.iter().zip(rstds));
        for ((out, input), (&mean, &rstd)) in rows {
            for (i, (y, x)) in out.iter_mut().zip(input).enumerate() {
                let scaled = (x.load() - mean) * rstd * weights.map_or(T::Real::ONE, |weights| weights[i].load());
                *y = T::store(scaled + biases.map_or(T::Real::ZERO, |biases| biases[i].load()));
            }
        }
    });
    Ok(())
}

fn optional<T: Float>(view: Option<View<'_>>) -> Result<Option<Reading<'_, T>>> {
    view.map(|view| view.storage.read::<T>("layer_norm")).transpose()
}

fn optional_part<'a, T: Float>(reading: &'a Option<Reading<'_, T>>, view: Option<View<'_>>) -> Option<&'a [T]> {
    reading.as_ref().zip(view).map(|(reading, view)| part(reading, view))
}

/// See [`crate::backend::layer_norm_backward`].
pub fn layer_norm_backward(
    out: View<'_>,
    grad: Option<View<'_>>,
    statistics: [View<'_>; 2],
    input: View<'_>,
    weight: Option<View<'_>>,
) -> Result<()> {
    if let Some(grad) = grad {
        super::elementwise::copy(out, grad)?;
    }
    with_float!("layer_norm", input.dtype, T => backward::<T>(out, statistics, input, weight))
}

fn backward<T: Float>(
    out: View<'_>,
    statistics: [View<'_>; 2],
    input: View<'_>,
    weight: Option<View<'_>>,
) -> Result<()> {
    let (width, rows) = row_sizes(input);
    let [mean, rstd] = statistics;
    let values = input.storage.read::<T>("layer_norm")?;
    let (means, rstds) = (mean.storage.read::<T::Real>("layer_norm")?, rstd.storage.read::<T::Real>("layer_norm")?);
    let weights = optional::<T>(weight)?;
    let weights = optional_part(&weights, weight);
    let statistics = part(&means, mean).par_chunks(rows).zip(part(&rstds, rstd).par_chunks(rows));
    let inputs = part(&values, input).par_chunks(rows * width).zip(statistics);
    let mut memory = out.storage.write::<T>("layer_norm")?;
    part_mut(&mut memory, out).par_chunks_mut(rows * width).zip(inputs).for_each(|(grads, (input, (means, rstds)))| {
        let rows = grads.chunks_mut(width).zip(input.chunks(width)).zip(means.iter().zip(rstds));
        for ((grads, input), (&mean, &rstd)) in rows {
            row_backward(grads, input, [mean, rstd], weights);
        }
    });
    Ok(())
}

fn row_backward<T: Float>(grads: &mut [T], input: &[T], [mean, rstd]: [T::Real; 2], weights: Option<&[T]>) {
    let scaled = |i: usize, g: &T| g.load() * weights.map_or(T::Real::ONE, |weights| weights[i].load());
    let (mut sum, mut sum_with_input) = (T::Real::ZERO, T::Real::ZERO);
    for (i, (g, x)) in grads.iter().zip(input).enumerate() {
        sum += scaled(i, g);
        sum_with_input += scaled(i, g) * (x.load() - mean) * rstd;
    }
    let count = T::Real::of(input.len() as f64);
    for (i, (g, x)) in grads.iter_mut().zip(input).enumerate() {
        let normal = (x.load() - mean) * rstd;
        *g = T::store(rstd * (scaled(i, g) - sum / count - normal * sum_with_input / count));
    }
}

/// See [`crate::backend::layer_norm_backward_affine`].
pub fn layer_norm_backward_affine(
    grad: View<'_>,
    statistics: [View<'_>; 2],
    input: View<'_>,
    affine: [Option<View<'_>>; 2],
) -> Result<()> {
    with_float!("layer_norm", input.dtype, T => backward_affine::<T>(grad, statistics, input, affine))
}

fn backward_affine<T: Float>(
    grad: View<'_>,
    statistics: [View<'_>; 2],
    input: View<'_>,
    affine: [Option<View<'_>>; 2],
) -> Result<()> {
    /// Columns whose sums are kept at a time.
    const COLUMNS: usize = 256;
    let (width, _) = row_sizes(input);
    let [mean, rstd] = statistics;
    let values = input.storage.read::<T>("layer_norm")?;
    let grads = grad.storage.read::<T>("layer_norm")?;
    let (means, rstds) = (mean.storage.read::<T::Real>("layer_norm")?, rstd.storage.read::<T::Real>("layer_norm")?);
    let (values, grads) = (part(&values, input), part(&grads, grad));
    let (means, rstds) = (part(&means, mean), part(&rstds, rstd));
    for first in (0..width).step_by(COLUMNS) {
        let columns = first..width.min(first + COLUMNS);
        let mut sums = [[T::Real::ZERO; COLUMNS]; 2];
        for (row, (&mean, &rstd)) in means.iter().zip(rstds).enumerate() {
            let (grads, values) = (&grads[row * width..][columns.clone()], &values[row * width..][columns.clone()]);
            for (i, (g, x)) in grads.iter().zip(values).enumerate() {
                sums[0][i] += g.load() * (x.load() - mean) * rstd;
                sums[1][i] += g.load();
            }
        }
        for (out, sums) in affine.iter().zip(&sums) {
            let Some(out) = *out else { continue };
            let mut memory = out.storage.write::<T>("layer_norm")?;
            for (place, &sum) in part_mut(&mut memory, out)[columns.clone()].iter_mut().zip(sums) {
                *place = T::store(place.load() + sum);
            }
        }
    }
    Ok(())
}
