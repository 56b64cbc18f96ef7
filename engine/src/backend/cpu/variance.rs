//! Variance: sums of squared distances from a mean.

use super::nest::Nest;
use super::number::{Float, Real, with_float};
use crate::backend::View;
use crate::error::Result;
use crate::layout::Layout;

/// See [`crate::backend::variance`].
pub fn variance(out: View<'_>, input: View<'_>, mean: View<'_>, scale: f64) -> Result<()> {
    with_float!("var", out.dtype, T => {
        type R = <T as Float>::Real;
        let (values, means) = (input.storage.read::<T>("var")?, mean.storage.read::<T>("var")?);
        let mut memory = out.storage.write::<T>("var")?;
        let shape = input.layout.shape();
        let summed = |axis: usize| out.layout.strides()[axis] == 0 || shape[axis] == 1;
        // The first element along the summed axes, and these axes themselves.
        let outer = |layout: &Layout| {
            (0..shape.rank()).rev().filter(|&axis| summed(axis)).fold(*layout, |layout, axis| layout.select(axis, 0))
        };
        let inner =
            (0..shape.rank()).rev().filter(|&axis| !summed(axis)).fold(*input.layout, |layout, axis| layout.select(axis, 0));
        if input.layout.elements() == 0 {
            return Ok(());
        }
        Nest::new([&outer(out.layout), &outer(input.layout), &outer(mean.layout)]).each(|[at, first, at_mean]| {
            let mean = means[at_mean].load();
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

/// See [`crate::backend::variance_backward`].
pub fn variance_backward(
    out: View<'_>,
    grad: View<'_>,
    input: Option<View<'_>>,
    mean: View<'_>,
    scale: f64,
) -> Result<()> {
    if let Some(input) = input {
        super::elementwise::copy(out, input)?;
    }
    with_float!("var", out.dtype, T => {
        let scale = <T as Float>::Real::of(scale);
        let (grads, means) = (grad.storage.read::<T>("var")?, mean.storage.read::<T>("var")?);
        let mut memory = out.storage.write::<T>("var")?;
        Nest::new([out.layout, grad.layout, mean.layout]).each(|[at, at_grad, at_mean]| {
            memory[at] = T::store(scale * grads[at_grad].load() * (memory[at].load() - means[at_mean].load()));
        });
        Ok(())
    })
}
