//! Layer norm, which normalizes rows to mean 0 and variance 1, and RMS norm, which does not subtract the mean.

use rayon::prelude::*;

use super::columns::column_sums;
use super::elements::{read, read_if, write};
use super::elementwise::copy_if;
use super::number::{Float, Real, with_float};
use super::rows::{self, row_or, row_sizes};
use crate::Result;
use crate::backend::View;

const OP: &str = "layer_norm";

pub(crate) fn layer_norm(
    out: View<'_>,
    mean: Option<View<'_>>,
    rstd: View<'_>,
    input: View<'_>,
    affine: [Option<View<'_>>; 2],
    epsilon: f64,
) -> Result<()> {
    with_float!(OP, input.dtype, T => measure::<T>(mean, rstd, input, epsilon))?;
    layer_norm_again(out, mean, rstd, input, affine)
}

fn measure<T: Float>(mean: Option<View<'_>>, rstd: View<'_>, input: View<'_>, epsilon: f64) -> Result<()> {
    let (width, rows) = row_sizes(input);
    let values = read::<T>(input, OP)?;
    let mut rstds = write::<T::Real>(rstd, OP)?;
    let (is_centred, mut zeros) = (mean.is_some(), vec![T::Real::ZERO; rstds.len()]);
    let mut means = mean.map(|mean| write::<T::Real>(mean, OP)).transpose()?;
    let means = means.as_deref_mut().unwrap_or(&mut zeros);
    let count = T::Real::of(width as f64);
    let statistics = means.par_chunks_mut(rows).zip(rstds.par_chunks_mut(rows));
    values.par_chunks(rows * width).zip(statistics).for_each(|(rows, (means, rstds))| {
        for (row, (mean, rstd)) in rows.chunks(width).zip(means.iter_mut().zip(rstds)) {
            if is_centred {
                *mean = rows::sum(row) / count;
            }
            *rstd = T::Real::ONE / (rows::squares(row, *mean) / count + T::Real::of(epsilon)).sqrt();
        }
    });
    Ok(())
}

/// Calls `row(out, input, [mean, rstd])` for each row. The mean is 0 in an RMS norm.
fn by_rows<T: Float>(
    out: View<'_>,
    mean: Option<View<'_>>,
    rstd: View<'_>,
    input: View<'_>,
    row: impl Fn(&mut [T], &[T], [T::Real; 2]) + Sync,
) -> Result<()> {
    match mean {
        Some(mean) => rows::by_rows::<T, 2>(OP, out, input, [mean, rstd], row),
        None => rows::by_rows::<T, 1>(OP, out, input, [rstd], |out, input, [rstd]| {
            row(out, input, [T::Real::ZERO, rstd]);
        }),
    }
}

pub(crate) fn layer_norm_again(
    out: View<'_>,
    mean: Option<View<'_>>,
    rstd: View<'_>,
    input: View<'_>,
    affine: [Option<View<'_>>; 2],
) -> Result<()> {
    with_float!(OP, input.dtype, T => {
        let (width, _) = row_sizes(input);
        let (weights, biases) = (row_or::<T>(OP, affine[0], 1.0, width)?, row_or::<T>(OP, affine[1], 0.0, width)?);
        by_rows::<T>(out, mean, rstd, input, |out, input, [mean, rstd]| {
            for (((y, x), &weight), &bias) in out.iter_mut().zip(input).zip(&weights).zip(&biases) {
                *y = T::store((x.load() - mean) * rstd * weight + bias);
            }
        })
    })
}

pub(crate) fn layer_norm_backward(
    out: View<'_>,
    grad: Option<View<'_>>,
    mean: Option<View<'_>>,
    rstd: View<'_>,
    input: View<'_>,
    weight: Option<View<'_>>,
) -> Result<()> {
    copy_if(out, grad)?;
    with_float!(OP, input.dtype, T => {
        type R = <T as Float>::Real;
        let (width, _) = row_sizes(input);
        let (weights, count) = (row_or::<T>(OP, weight, 1.0, width)?, R::of(width as f64));
        let is_centred = mean.is_some();
        by_rows::<T>(out, mean, rstd, input, |grads, input, [mean, rstd]| {
            let normals: Vec<R> = input.iter().map(|x| (x.load() - mean) * rstd).collect();
            let slopes: Vec<R> = grads.iter().zip(&weights).map(|(g, &weight)| g.load() * weight).collect();
            let of_slope = if is_centred { rows::sum(&slopes) / count } else { R::ZERO };
            let of_both = rows::dot(&slopes, &normals) / count;
            for ((g, normal), slope) in grads.iter_mut().zip(normals).zip(slopes) {
                *g = T::store(rstd * (slope - of_slope - normal * of_both));
            }
        })
    })
}

pub(crate) fn layer_norm_backward_affine(
    grad: View<'_>,
    mean: Option<View<'_>>,
    rstd: View<'_>,
    input: View<'_>,
    affine: [Option<View<'_>>; 2],
    keep: [f64; 2],
) -> Result<()> {
    with_float!(OP, input.dtype, T => {
        type R = <T as Float>::Real;
        let (width, _) = row_sizes(input);
        let (values, grads) = (read::<T>(input, OP)?, read::<T>(grad, OP)?);
        let (means, rstds) = (read_if::<R>(mean, OP)?, read::<R>(rstd, OP)?);
        let sums = column_sums::<R, 2>([rstds.len(), width], |row, columns, [of_weight, of_bias]| {
            let mean = means.as_ref().map_or(R::ZERO, |means| means[row]);
            let (input, grads) = (&values[row * width..][columns.clone()], &grads[row * width..][columns]);
            for (((of_weight, of_bias), x), g) in of_weight.iter_mut().zip(of_bias).zip(input).zip(grads) {
                *of_weight += g.load() * (x.load() - mean) * rstds[row];
                *of_bias += g.load();
            }
        });
        for ((out, keep), sums) in affine.into_iter().zip(keep).zip(&sums) {
            if let Some(out) = out {
                rows::put_sums(&mut write::<T>(out, OP)?, sums, R::ONE, R::of(keep));
            }
        }
        Ok(())
    })
}
