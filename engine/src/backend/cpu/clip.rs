//! Gradient norms and gradient clipping.

use rayon::prelude::*;

use super::ELEMENTS_A_TASK;
use super::number::{Float, Real, with_float};
use crate::backend::View;
use crate::backend::nest::Nest;
use crate::error::Result;

pub(crate) fn add_norm(total: View<'_>, input: View<'_>, order: f64) -> Result<()> {
    let sum = with_float!("norm", input.dtype, T => {
        let square = |x: T| x.load().wide().powi(2);
        let power = |x: T| x.load().wide().abs().powf(order);
        let size = |x: T| x.load().wide().abs();
        match order {
            f64::INFINITY => fold::<T>(input, size, largest),
            2.0 => fold::<T>(input, square, |a, b| a + b),
            1.0 => fold::<T>(input, size, |a, b| a + b),
            _ => fold::<T>(input, power, |a, b| a + b),
        }
    })?;
    let total = &mut total.storage.write::<f64>("norm")?[total.layout.offset()];
    *total = if order == f64::INFINITY { largest(*total, sum) } else { *total + sum };
    Ok(())
}

/// Returns the larger number; NaN if either is NaN.
fn largest(one: f64, other: f64) -> f64 {
    Real::largest(one, other)
}

/// Reduces `value` of all elements pairwise, always in the same order.
fn fold<T: Float>(
    input: View<'_>,
    value: impl Fn(T) -> f64 + Sync,
    join: impl Fn(f64, f64) -> f64 + Sync,
) -> Result<f64> {
    let memory = input.storage.read::<T>("norm")?;
    let nest = Nest::new([input.layout]);
    let stride = nest.inner_strides()[0];
    let piece = |start: usize, end: usize| {
        let mut sum = 0.0;
        nest.rows(start, end, |[at], length| {
            sum = (0..length).fold(sum, |sum, i| join(sum, value(memory[at + i * stride])));
        });
        sum
    };
    Ok(fold_pieces(0, nest.elements(), &piece, &join))
}

fn fold_pieces(
    start: usize,
    end: usize,
    piece: &(impl Fn(usize, usize) -> f64 + Sync),
    join: &(impl Fn(f64, f64) -> f64 + Sync),
) -> f64 {
    if end - start <= ELEMENTS_A_TASK {
        return piece(start, end);
    }
    let middle = start + (end - start) / 2;
    let (first, rest) =
        rayon::join(|| fold_pieces(start, middle, piece, join), || fold_pieces(middle, end, piece, join));
    join(first, rest)
}

pub(crate) fn finish_norm(total: View<'_>, order: f64) -> Result<()> {
    let total = &mut total.storage.write::<f64>("norm")?[total.layout.offset()];
    *total = match order {
        f64::INFINITY => *total,
        2.0 => total.sqrt(),
        _ => total.powf(1.0 / order),
    };
    Ok(())
}

pub(crate) fn clip_to_norm(out: View<'_>, norm: View<'_>, most: f64) -> Result<()> {
    let share = most / (norm.storage.read::<f64>("clip_grad_norm")?[norm.layout.offset()] + 1e-6);
    // Not f64::min, which would return 1 for NaN.
    let share = if share > 1.0 { 1.0 } else { share };
    with_float!("clip_grad_norm", out.dtype, T => {
        let share = <<T as Float>::Real as Real>::of(share);
        change::<T>(out, |x| x * share)
    })
}

pub(crate) fn clamp(out: View<'_>, least: f64, most: f64) -> Result<()> {
    with_float!("clamp", out.dtype, T => {
        let [least, most] = [least, most].map(<<T as Float>::Real as Real>::of);
        change::<T>(out, |x| if x < least { least } else if x > most { most } else { x })
    })
}

fn change<T: Float>(out: View<'_>, f: impl Fn(T::Real) -> T::Real + Sync) -> Result<()> {
    let nest = Nest::new([out.layout]);
    let mut memory = out.storage.write::<T>("clip")?;
    if nest.writes_contiguously() {
        let first = nest.offsets()[0];
        let numbers = &mut memory[first..first + nest.elements()];
        numbers.par_chunks_mut(ELEMENTS_A_TASK).for_each(|part| {
            part.iter_mut().for_each(|number| *number = T::store(f(number.load())));
        });
    } else {
        nest.each(|[at]| memory[at] = T::store(f(memory[at].load())));
    }
    Ok(())
}

pub(crate) fn find_nonfinite(found: View<'_>, input: View<'_>) -> Result<()> {
    let is_found = with_float!("find_nonfinite", input.dtype, T => {
        let is_finite = |x: T| x.load().wide().is_finite();
        fold::<T>(input, |x| if is_finite(x) { 0.0 } else { 1.0 }, f64::max)
    })?;
    if is_found > 0.0 {
        found.storage.write::<f32>("find_nonfinite")?[found.layout.offset()] = 1.0;
    }
    Ok(())
}
