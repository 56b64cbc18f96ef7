//! Random numbers that depend only on seed and position, and ranges of numbers.

use rayon::prelude::*;

use super::ELEMENTS_PER_TASK;
use super::elements::write;
use super::elementwise::copy_if;
use super::number::{Float, Real, with_float};
use crate::backend::{Distribution, View};
use crate::rng::Draw;
use crate::{DType, Result};

pub(crate) fn random(out: View<'_>, distribution: Distribution, draw: Draw) -> Result<()> {
    with_float!("random", out.dtype, T => random_as::<T>(out, distribution, draw))
}

fn random_as<T: Float>(out: View<'_>, distribution: Distribution, draw: Draw) -> Result<()> {
    let mut elements = write::<T>(out, "random")?;
    elements.par_chunks_mut(ELEMENTS_PER_TASK).enumerate().for_each(|(chunk, part)| {
        let first_group = (chunk * ELEMENTS_PER_TASK / 4) as u64;
        for (group, four) in (first_group..).zip(part.chunks_mut(4)) {
            let numbers = match distribution {
                Distribution::Uniform { low, high } => {
                    draw.uniforms(group).map(|number| low + (high - low) * f64::from(number))
                }
                Distribution::Normal { mean, deviation } => {
                    draw.normals(group).map(|number| mean + deviation * f64::from(number))
                }
            };
            for (element, number) in four.iter_mut().zip(numbers) {
                *element = T::store(Real::of(number));
            }
        }
    });
    Ok(())
}

pub(crate) fn dropout(out: View<'_>, input: Option<View<'_>>, share: f64, draw: Draw) -> Result<()> {
    copy_if(out, input)?;
    with_float!("dropout", out.dtype, T => {
        let mut elements = write::<T>(out, "dropout")?;
        let factor = <<T as Float>::Real as Real>::of(1.0 / (1.0 - share));
        elements.par_chunks_mut(ELEMENTS_PER_TASK).enumerate().for_each(|(chunk, part)| {
            let first_group = (chunk * ELEMENTS_PER_TASK / 4) as u64;
            for (group, four) in (first_group..).zip(part.chunks_mut(4)) {
                for (element, number) in four.iter_mut().zip(draw.uniforms(group)) {
                    let kept = if f64::from(number) < share { Real::ZERO } else { factor };
                    *element = T::store(element.load() * kept);
                }
            }
        });
        Ok(())
    })
}

pub(crate) fn arange(out: View<'_>, start: f64, step: f64) -> Result<()> {
    if out.dtype == DType::I64 {
        for (i, element) in write::<i64>(out, "arange")?.iter_mut().enumerate() {
            *element = start as i64 + i as i64 * step as i64;
        }
        return Ok(());
    }
    with_float!("arange", out.dtype, T => {
        for (i, element) in write::<T>(out, "arange")?.iter_mut().enumerate() {
            *element = <T as Float>::store(Real::of(start + i as f64 * step));
        }
        Ok(())
    })
}
