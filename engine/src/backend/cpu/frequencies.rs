//! Positional encoding of coordinates by their sines and cosines at doubling frequencies.

use rayon::prelude::*;

use super::ELEMENTS_PER_TASK;
use super::elements::{read, write};
use super::number::{Float, Real, with_float};
use crate::backend::View;
use crate::{Layout, Result};

const OP: &str = "frequencies";

/// Returns the length of the last axis, at least 1.
fn width(layout: &Layout) -> usize {
    layout.shape().last().copied().unwrap_or(1).max(1)
}

pub(crate) fn frequencies(out: View<'_>, input: View<'_>) -> Result<()> {
    with_float!(OP, out.dtype, T => {
        type R = <T as Float>::Real;
        let (width, wide) = (width(input.layout), width(out.layout));
        let rows = (ELEMENTS_PER_TASK / wide).max(1);
        let values = read::<T>(input, OP)?;
        let mut memory = write::<T>(out, OP)?;
        let tasks = memory.par_chunks_mut(rows * wide).zip(values.par_chunks(rows * width));
        tasks.for_each(|(out, input)| {
            for (out, input) in out.chunks_mut(wide).zip(input.chunks(width)) {
                let (own, waves) = out.split_at_mut(width);
                own.copy_from_slice(input);
                for (octave, waves) in waves.chunks_mut(2 * width).enumerate() {
                    let speed = R::of(2_f64.powi(octave as i32));
                    let (sines, cosines) = waves.split_at_mut(width);
                    for (x, (sine, cosine)) in input.iter().zip(sines.iter_mut().zip(cosines)) {
                        let angle = speed * x.load();
                        (*sine, *cosine) = (T::store(angle.sin()), T::store(angle.cos()));
                    }
                }
            }
        });
        Ok(())
    })
}

pub(crate) fn frequencies_backward(out: View<'_>, grad: View<'_>, input: View<'_>) -> Result<()> {
    with_float!(OP, out.dtype, T => {
        type R = <T as Float>::Real;
        let (width, wide) = (width(input.layout), width(grad.layout));
        let rows = (ELEMENTS_PER_TASK / wide).max(1);
        let (values, grads) = (read::<T>(input, OP)?, read::<T>(grad, OP)?);
        let mut memory = write::<T>(out, OP)?;
        let tasks = memory.par_chunks_mut(rows * width);
        let known = values.par_chunks(rows * width).zip(grads.par_chunks(rows * wide));
        tasks.zip(known).for_each(|(out, (input, grad))| {
            for ((out, input), grad) in out.chunks_mut(width).zip(input.chunks(width)).zip(grad.chunks(wide)) {
                for (place, out) in out.iter_mut().enumerate() {
                    let x = input[place].load();
                    let mut total = grad[place].load();
                    for (octave, waves) in grad[width..].chunks(2 * width).enumerate() {
                        let speed = R::of(2_f64.powi(octave as i32));
                        let angle = speed * x;
                        let (sine, cosine) = (waves[place].load(), waves[width + place].load());
                        total += speed * (sine * angle.cos() - cosine * angle.sin());
                    }
                    *out = T::store(total);
                }
            }
        });
        Ok(())
    })
}
