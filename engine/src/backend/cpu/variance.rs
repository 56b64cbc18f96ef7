//! Sums of squared differences from a mean.

use super::elementwise::copy_if;
use super::number::{Float, Real, with_float};
use crate::backend::{Nest, View};
use crate::{Layout, Result};

/// Selects index 0 of the axes for which `leave` is true.
fn without(layout: &Layout, leave: impl Fn(usize) -> bool) -> Layout {
    (0..layout.shape().rank()).rev().filter(|&axis| leave(axis)).fold(*layout, |layout, axis| layout.select(axis, 0))
}

pub(crate) fn exact_mean(out: View<'_>, input: View<'_>) -> Result<()> {
    with_float!("var", input.dtype, T => {
        type R = <T as Float>::Real;
        let values = input.storage.read::<T>("var")?;
        let mut memory = out.storage.write::<R>("var")?;
        let shape = input.layout.shape();
        let summed = |axis: usize| out.layout.strides()[axis] == 0 || shape[axis] == 1;
        if input.layout.elements() == 0 {
            return Ok(());
        }
        let inner = without(input.layout, |axis| !summed(axis));
        let count = inner.elements() as f64;
        Nest::new([&without(out.layout, summed), &without(input.layout, summed)]).each(|[at, first]| {
            let mut total = 0.0;
            Nest::new([&inner.at(first)]).each(|[from]| total += values[from].load().wide());
            memory[at] = R::of(total / count);
        });
        Ok(())
    })
}

pub(crate) fn variance(out: View<'_>, input: View<'_>, mean: View<'_>, scale: f64) -> Result<()> {
    with_float!("var", out.dtype, T => {
        type R = <T as Float>::Real;
        let (values, means) = (input.storage.read::<T>("var")?, mean.storage.read::<R>("var")?);
        let mut memory = out.storage.write::<T>("var")?;
        let shape = input.layout.shape();
        let summed = |axis: usize| out.layout.strides()[axis] == 0 || shape[axis] == 1;
        let outer = |layout: &Layout| without(layout, summed);
        let inner = without(input.layout, |axis| !summed(axis));
        if input.layout.elements() == 0 {
            return Ok(());
        }
        Nest::new([&outer(out.layout), &outer(input.layout), &outer(mean.layout)]).each(|[at, first, at_mean]| {
            let mean = means[at_mean];
            let mut total = R::ZERO;
            Nest::new([&inner.at(first)]).each(|[from]| {
                let distance = values[from].load() - mean;
                total += distance * distance;
            });
            memory[at] = T::store(R::of(scale) * total);
        });
        Ok(())
    })
}

pub(crate) fn variance_backward(
    out: View<'_>,
    grad: View<'_>,
    input: Option<View<'_>>,
    mean: View<'_>,
    scale: f64,
) -> Result<()> {
    copy_if(out, input)?;
    with_float!("var", out.dtype, T => {
        type R = <T as Float>::Real;
        let scale = R::of(scale);
        let (grads, means) = (grad.storage.read::<T>("var")?, mean.storage.read::<R>("var")?);
        let mut memory = out.storage.write::<T>("var")?;
        Nest::new([out.layout, grad.layout, mean.layout]).each(|[at, at_grad, at_mean]| {
            memory[at] = T::store(scale * grads[at_grad].load() * (memory[at].load() - means[at_mean]));
        });
        Ok(())
    })
}
