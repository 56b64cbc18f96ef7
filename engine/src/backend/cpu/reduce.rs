//! Sums along axes.

use rayon::prelude::*;

use super::ELEMENTS_PER_TASK;
use super::columns::column_sums;
use super::number::{Float, Real, with_float};
use super::rows;
use crate::backend::{Nest, View};
use crate::{Layout, Result};

pub(crate) fn sum(out: View<'_>, input: View<'_>, scale: f64, keep: f64) -> Result<()> {
    with_float!("sum", input.dtype, T => sum_as::<T>(out, input, [scale, keep].map(<T as Float>::Real::of)))
}

fn sum_as<T: Float>(out: View<'_>, input: View<'_>, [scale, keep]: [T::Real; 2]) -> Result<()> {
    if input.layout.elements() == 0 {
        return Ok(());
    }
    let values = input.storage.read::<T>("sum")?;
    let mut memory = out.storage.write::<T>("sum")?;
    // Kept axes are the outer loops; each of their positions sums over the other axes.
    let shape = input.layout.shape();
    let (kept, summed): (Vec<usize>, Vec<usize>) =
        (0..shape.rank()).partition(|&axis| out.layout.strides()[axis] != 0 && shape[axis] != 1);
    let order: Vec<usize> = kept.iter().chain(&summed).copied().collect();
    let (out_layout, in_layout) = (out.layout.permute(&order), input.layout.permute(&order));
    let rows_innermost = kept.last().is_some_and(|&axis| input.layout.strides()[axis] == 1) && !summed.is_empty();
    if rows_innermost {
        // The contiguous axis is kept: add whole rows, with full-precision accumulators.
        sum_columns::<T>(&mut memory, &values, [&out_layout, &in_layout], kept.len(), [scale, keep]);
        return Ok(());
    }
    let outer_out = leading(&out_layout, kept.len());
    let outer_in = leading(&in_layout, kept.len());
    let inner = Nest::new([&trailing(&in_layout, kept.len()).at(0)]);
    Nest::new([&outer_out, &outer_in]).each(|[at_out, at_in]| {
        let total = sum_all::<T>(&values[at_in..], &inner);
        memory[at_out] = rows::kept(memory[at_out], scale * total, keep);
    });
    Ok(())
}

fn leading(layout: &Layout, axes: usize) -> Layout {
    let mut out = *layout;
    while out.shape().rank() > axes {
        let last = out.shape().rank() - 1;
        out = out.select(last, 0);
    }
    out
}

fn trailing(layout: &Layout, axes: usize) -> Layout {
    (0..axes).fold(*layout, |layout, _| layout.select(0, 0))
}

/// Sums all elements of the loops in parts, which limits the rounding error and allows several threads.
fn sum_all<T: Float>(values: &[T], nest: &Nest<1>) -> T::Real {
    let stride = nest.inner_strides()[0];
    let sum_part = |start: usize| {
        let mut sum = T::Real::ZERO;
        nest.rows(start, nest.elements().min(start + ELEMENTS_PER_TASK), |[at], length| match stride {
            1 => values[at..at + length].chunks(1024).for_each(|part| sum += rows::sum(part)),
            _ => (0..length).for_each(|i| sum += values[at + i * stride].load()),
        });
        sum
    };
    if nest.elements() <= ELEMENTS_PER_TASK {
        return sum_part(0);
    }
    let parts: Vec<T::Real> = (0..nest.elements().div_ceil(ELEMENTS_PER_TASK))
        .into_par_iter()
        .map(|part| sum_part(part * ELEMENTS_PER_TASK))
        .collect();
    parts.into_iter().fold(T::Real::ZERO, |total, part| total + part)
}

/// Sums by adding whole rows, for inputs whose innermost kept axis is contiguous.
fn sum_columns<T: Float>(
    memory: &mut [T],
    values: &[T],
    [out, input]: [&Layout; 2],
    kept: usize,
    [scale, keep]: [T::Real; 2],
) {
    let (outer_out, outer_in) = (leading(out, kept), leading(input, kept));
    let last = kept - 1;
    let (columns, column_out) = (outer_in.shape()[last], outer_out.strides()[last]);
    let summed = Nest::new([&trailing(input, kept).at(0)]);
    Nest::new([&outer_out.select(last, 0), &outer_in.select(last, 0)]).each(|[at_out, at_in]| {
        let [sums] = column_sums::<T::Real, 1>([summed.elements(), columns], |row, columns, [sums]| {
            let first = at_in + summed.first_offset(row) + columns.start;
            rows::add(sums, &values[first..first + columns.len()]);
        });
        match column_out {
            1 => rows::put_sums(&mut memory[at_out..at_out + columns], &sums, scale, keep),
            _ => sums.iter().enumerate().for_each(|(column, &sum)| {
                let place = &mut memory[at_out + column * column_out];
                *place = rows::kept(*place, scale * sum, keep);
            }),
        }
    });
}
