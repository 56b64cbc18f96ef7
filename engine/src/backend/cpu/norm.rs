//! Layer norm: normalizes rows to mean 0 and variance 1.

use rayon::prelude::*;

use super::columns::column_sums;
use super::elements::{read, write};
use super::elementwise::copy_if;
use super::number::{Float, Real, with_float};
use super::rows::{self, by_rows, row_or, row_sizes};
use crate::backend::View;
use crate::error::Result;

const OP: &str = "layer_norm";

pub(crate) fn layer_norm(
    out: View<'_>,
    mean: View<'_>,
    rstd: View<'_>,
    input: View<'_>,
    affine: [Option<View<'_>>; 2],
    epsilon: f64,
) -> Result<()> {
    with_float!(OP, input.dtype, T => {
        measure::<T>(mean, rstd, input, epsilon)?;
        normalise::<T>(out, [mean, rstd], input, affine)
    })
}

fn measure<T: Float>(mean: View<'_>, rstd: View<'_>, input: View<'_>, epsilon: f64) -> Result<()> {
    let (width, rows) = row_sizes(input);
    let values = read::<T>(input, OP)?;
    let (mut means, mut rstds) = (write::<T::Real>(mean, OP)?, write::<T::Real>(rstd, OP)?);
    let count = T::Real::of(width as f64);
    let statistics = means.par_chunks_mut(rows).zip(rstds.par_chunks_mut(rows));
    values.par_chunks(rows * width).zip(statistics).for_each(|(rows, (means, rstds))| {
        for (row, (mean, rstd)) in rows.chunks(width).zip(means.iter_mut().zip(rstds)) {
            *mean = rows::sum(row) / count;
            *rstd = T::Real::ONE / (rows::squares(row, *mean) / count + T::Real::of(epsilon)).sqrt();
        }
    });
    Ok(())
}

pub(crate) fn layer_norm_again(
    out: View<'_>,
    statistics: [View<'_>; 2],
    input: View<'_>,
    affine: [Option<View<'_>>; 2],
) -> Result<()> {
    with_float!(OP, input.dtype, T => normalise::<T>(out, statistics, input, affine))
}

fn normalise<T: Float>(
    out: View<'_>,
    statistics: [View<'_>; 2],
    input: View<'_>,
    affine: [Option<View<'_>>; 2],
) -> Result<()> {
    let (width, _) = row_sizes(input);
    let (weights, biases) = (row_or::<T>(OP, affine[0], 1.0, width)?, row_or::<T>(OP, affine[1], 0.0, width)?);
    by_rows::<T, 2>(OP, out, input, statistics, |out, input, [mean, rstd]| {
        for (((y, x), &weight), &bias) in out.iter_mut().zip(input).zip(&weights).zip(&biases) {
            *y = T::store((x.load() - mean) * rstd * weight + bias);
        }
    })
}

pub(crate) fn layer_norm_backward(
    out: View<'_>,
    grad: Option<View<'_>>,
    statistics: [View<'_>; 2],
    input: View<'_>,
    weight: Option<View<'_>>,
) -> Result<()> {
    copy_if(out, grad)?;
    with_float!(OP, input.dtype, T => backward::<T>(out, statistics, input, weight))
}

fn backward<T: Float>(
    out: View<'_>,
    statistics: [View<'_>; 2],
    input: View<'_>,
    weight: Option<View<'_>>,
) -> Result<()> {
    let (width, _) = row_sizes(input);
    let (weights, count) = (row_or::<T>(OP, weight, 1.0, width)?, T::Real::of(width as f64));
    by_rows::<T, 2>(OP, out, input, statistics, |grads, input, [mean, rstd]| {
        let normals: Vec<T::Real> = input.iter().map(|x| (x.load() - mean) * rstd).collect();
        let slopes: Vec<T::Real> = grads.iter().zip(&weights).map(|(g, &weight)| g.load() * weight).collect();
        let means = [rows::sum(&slopes) / count, rows::dot(&slopes, &normals) / count];
        for ((g, normal), slope) in grads.iter_mut().zip(normals).zip(slopes) {
            *g = T::store(rstd * (slope - means[0] - normal * means[1]));
        }
    })
}

pub(crate) fn layer_norm_backward_affine(
    grad: View<'_>,
    statistics: [View<'_>; 2],
    input: View<'_>,
    affine: [Option<View<'_>>; 2],
    keep: [f64; 2],
) -> Result<()> {
    with_float!(OP, input.dtype, T => backward_affine::<T>(grad, statistics, input, affine, keep))
}

fn backward_affine<T: Float>(
    grad: View<'_>,
    [mean, rstd]: [View<'_>; 2],
    input: View<'_>,
    affine: [Option<View<'_>>; 2],
    keep: [f64; 2],
) -> Result<()> {
    let (width, _) = row_sizes(input);
    let (values, grads) = (read::<T>(input, OP)?, read::<T>(grad, OP)?);
    let (means, rstds) = (read::<T::Real>(mean, OP)?, read::<T::Real>(rstd, OP)?);
    let sums = column_sums::<T::Real, 2>([means.len(), width], |row, columns, [of_weight, of_bias]| {
        let (input, grads) = (&values[row * width..][columns.clone()], &grads[row * width..][columns]);
        for (((of_weight, of_bias), x), g) in of_weight.iter_mut().zip(of_bias).zip(input).zip(grads) {
            *of_weight += g.load() * (x.load() - means[row]) * rstds[row];
            *of_bias += g.load();
        }
    });
    for ((out, keep), sums) in affine.into_iter().zip(keep).zip(&sums) {
        if let Some(out) = out {
            rows::put_sums(&mut write::<T>(out, OP)?, sums, T::Real::ONE, T::Real::of(keep));
        }
    }
    Ok(())
}
