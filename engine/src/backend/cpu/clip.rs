//! Gradient norms and gradient clipping.

use rayon::prelude::*;

use super::ELEMENTS_PER_TASK;
use super::elements::read_one;
use super::elementwise::map;
use super::number::{Float, Real, with_float};
use crate::Result;
use crate::backend::{Nest, View};

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

/// Returns the larger number, or NaN if either is NaN.
fn largest(one: f64, other: f64) -> f64 {
    Real::largest(one, other)
}

/// Reduces `value` over all elements. Divides the elements into parts that depend only on their number.
fn fold<T: Float>(
    input: View<'_>,
    value: impl Fn(T) -> f64 + Sync,
    join: impl Fn(f64, f64) -> f64 + Sync,
) -> Result<f64> {
    let memory = input.storage.read::<T>("norm")?;
    let nest = Nest::new([input.layout]);
    let (stride, elements) = (nest.inner_strides()[0], nest.elements());
    let part = |part: usize| {
        let (start, mut sum) = (part * ELEMENTS_PER_TASK, 0.0);
        nest.rows(start, elements.min(start + ELEMENTS_PER_TASK), |[at], length| {
            sum = (0..length).fold(sum, |sum, i| join(sum, value(memory[at + i * stride])));
        });
        sum
    };
    let parts: Vec<f64> = (0..elements.div_ceil(ELEMENTS_PER_TASK)).into_par_iter().map(part).collect();
    Ok(parts.into_iter().fold(0.0, join))
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
    let share = most / (read_one::<f64>(norm, "clip_grad_norm")? + 1e-6);
    // Not f64::min, which would return 1 for NaN.
    let share = if share > 1.0 { 1.0 } else { share };
    with_float!("clip_grad_norm", out.dtype, T => {
        let share = <<T as Float>::Real as Real>::of(share);
        map::<T>(out, None, |x| x * share)
    })
}

pub(crate) fn clamp(out: View<'_>, least: f64, most: f64) -> Result<()> {
    with_float!("clamp", out.dtype, T => {
        let [least, most] = [least, most].map(<<T as Float>::Real as Real>::of);
        map::<T>(out, None, |x| if x < least { least } else if x > most { most } else { x })
    })
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
