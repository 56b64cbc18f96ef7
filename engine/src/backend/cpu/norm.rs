//! Layer norm: normalizes rows to mean 0 and variance 1.

use rayon::prelude::*;

use super::columns::column_sums;
use super::number::{Float, Real, with_float};
use super::rows;
use super::softmax::{part, part_mut, row_sizes};
use super::wide::wide;
use crate::backend::View;
use crate::error::Result;

pub(crate) fn layer_norm(
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
    let (width, rows_a_task) = row_sizes(input);
    let values = input.storage.read::<T>("layer_norm")?;
    let mut means = mean.storage.write::<T::Real>("layer_norm")?;
    let mut rstds = rstd.storage.write::<T::Real>("layer_norm")?;
    let (means, rstds) = (part_mut(&mut means, mean), part_mut(&mut rstds, rstd));
    let count = T::Real::of(width as f64);
    let statistics = means.par_chunks_mut(rows_a_task).zip(rstds.par_chunks_mut(rows_a_task));
    part(&values, input).par_chunks(rows_a_task * width).zip(statistics).for_each(|(rows, (means, rstds))| {
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
    let (weights, biases) = (row_or::<T>(affine[0], 1.0, width)?, row_or::<T>(affine[1], 0.0, width)?);
    let statistics = part(&means, mean).par_chunks(rows).zip(part(&rstds, rstd).par_chunks(rows));
    let inputs = part(&values, input).par_chunks(rows * width).zip(statistics);
    let mut memory = out.storage.write::<T>("layer_norm")?;
    part_mut(&mut memory, out).par_chunks_mut(rows * width).zip(inputs).for_each(|(out, (input, (means, rstds)))| {
        let rows = out.chunks_mut(width).zip(input.chunks(width)).zip(means.iter().zip(rstds));
        for ((out, input), (&mean, &rstd)) in rows {
            normalise_row(out, input, [mean, rstd], [&weights, &biases]);
        }
    });
    Ok(())
}

/// Loads a row of parameters, or fills the row with `number` if there are none.
fn row_or<T: Float>(view: Option<View<'_>>, number: f64, width: usize) -> Result<Vec<T::Real>> {
    let mut values = vec![T::Real::of(number); width];
    if let Some(view) = view {
        rows::load(&mut values, part(&view.storage.read::<T>("layer_norm")?, view));
    }
    Ok(values)
}

wide! {
    fn normalise_row[T: Float](out: &mut [T], input: &[T], statistics: [T::Real; 2], affine: [&[T::Real]; 2]) {
        let [mean, rstd] = statistics;
        for (((y, x), &weight), &bias) in out.iter_mut().zip(input).zip(affine[0]).zip(affine[1]) {
            *y = T::store((x.load() - mean) * rstd * weight + bias);
        }
    }

    /// Computes the normalized elements, and the gradients times the weights.
    fn load_slopes[T: Float](
        normals: &mut [T::Real],
        slopes: &mut [T::Real],
        input: &[T],
        grads: &[T],
        weights: &[T::Real],
        statistics: [T::Real; 2],
    ) {
        let [mean, rstd] = statistics;
        let read = input.iter().zip(grads).zip(weights);
        for ((normal, slope), ((x, g), &weight)) in normals.iter_mut().zip(slopes).zip(read) {
            *normal = (x.load() - mean) * rstd;
            *slope = g.load() * weight;
        }
    }

    fn store_slopes[T: Float](
        grads: &mut [T],
        normals: &[T::Real],
        slopes: &[T::Real],
        means: [T::Real; 2],
        rstd: T::Real,
    ) {
        for ((g, &normal), &slope) in grads.iter_mut().zip(normals).zip(slopes) {
            *g = T::store(rstd * (slope - means[0] - normal * means[1]));
        }
    }

    /// Accumulates, per column, the gradient times the normalized element, and the gradient.
    fn add_to_sums[T: Float](sums: [&mut [T::Real]; 2], input: &[T], grads: &[T], statistics: [T::Real; 2]) {
        let ([of_weight, of_bias], [mean, rstd]) = (sums, statistics);
        for (((of_weight, of_bias), x), g) in of_weight.iter_mut().zip(of_bias).zip(input).zip(grads) {
            *of_weight += g.load() * (x.load() - mean) * rstd;
            *of_bias += g.load();
        }
    }
}

pub(crate) fn layer_norm_backward(
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
    let weights = row_or::<T>(weight, 1.0, width)?;
    let statistics = part(&means, mean).par_chunks(rows).zip(part(&rstds, rstd).par_chunks(rows));
    let inputs = part(&values, input).par_chunks(rows * width).zip(statistics);
    let mut memory = out.storage.write::<T>("layer_norm")?;
    let tasks = part_mut(&mut memory, out).par_chunks_mut(rows * width).zip(inputs);
    tasks.for_each_init(
        || [vec![T::Real::ZERO; width], vec![T::Real::ZERO; width]],
        |[normals, slopes], (grads, (input, (means, rstds)))| {
            let count = T::Real::of(width as f64);
            let rows = grads.chunks_mut(width).zip(input.chunks(width)).zip(means.iter().zip(rstds));
            for ((grads, input), (&mean, &rstd)) in rows {
                load_slopes(normals, slopes, input, grads, &weights, [mean, rstd]);
                let means = [rows::sum_of(slopes) / count, rows::dot_of(slopes, normals) / count];
                store_slopes(grads, normals, slopes, means, rstd);
            }
        },
    );
    Ok(())
}

pub(crate) fn layer_norm_backward_affine(
    grad: View<'_>,
    statistics: [View<'_>; 2],
    input: View<'_>,
    affine: [Option<View<'_>>; 2],
    keep: [f64; 2],
) -> Result<()> {
    with_float!("layer_norm", input.dtype, T => backward_affine::<T>(grad, statistics, input, affine, keep))
}

fn backward_affine<T: Float>(
    grad: View<'_>,
    statistics: [View<'_>; 2],
    input: View<'_>,
    affine: [Option<View<'_>>; 2],
    keep: [f64; 2],
) -> Result<()> {
    let (width, _) = row_sizes(input);
    let [mean, rstd] = statistics;
    let values = input.storage.read::<T>("layer_norm")?;
    let grads = grad.storage.read::<T>("layer_norm")?;
    let (means, rstds) = (mean.storage.read::<T::Real>("layer_norm")?, rstd.storage.read::<T::Real>("layer_norm")?);
    let (values, grads) = (part(&values, input), part(&grads, grad));
    let (means, rstds) = (part(&means, mean), part(&rstds, rstd));
    let sums = column_sums::<T::Real, 2>([means.len(), width], |row, columns, sums| {
        let (input, grads) = (&values[row * width..][columns.clone()], &grads[row * width..][columns]);
        add_to_sums(sums, input, grads, [means[row], rstds[row]]);
    });
    for ((out, keep), sums) in affine.into_iter().zip(keep).zip(&sums) {
        if let Some(out) = out {
            let mut memory = out.storage.write::<T>("layer_norm")?;
            rows::put_sums(part_mut(&mut memory, out), sums, T::Real::ONE, T::Real::of(keep));
        }
    }
    Ok(())
}
