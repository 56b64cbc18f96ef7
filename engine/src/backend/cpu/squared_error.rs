//! Squared error of two tensors.

use super::elements::read_one;
use super::elementwise::zip;
use super::number::{Float, Real, with_float};
use crate::Result;
use crate::backend::{Nest, View};

pub(crate) fn squared_error(loss: View<'_>, left: View<'_>, right: View<'_>, scale: f64) -> Result<()> {
    with_float!("mse_loss", left.dtype, T => {
        let (l, r) = (left.storage.read::<T>("mse_loss")?, right.storage.read::<T>("mse_loss")?);
        // Differences are computed in the type's arithmetic, their sum in double precision, as it may be long.
        let mut total = 0.0;
        Nest::new([left.layout, right.layout]).each(|[at_left, at_right]| {
            let difference = l[at_left].load() - r[at_right].load();
            total += (difference * difference).wide();
        });
        let mut memory = loss.storage.write::<T>("mse_loss")?;
        memory[loss.layout.offset()] = T::store(<T as Float>::Real::of(scale * total));
        Ok(())
    })
}

pub(crate) fn squared_error_backward(
    out: View<'_>,
    grad: View<'_>,
    left: Option<View<'_>>,
    right: View<'_>,
    scale: f64,
) -> Result<()> {
    with_float!("mse_loss", out.dtype, T => {
        let factor = read_one::<T>(grad, "mse_loss")?.load() * <T as Float>::Real::of(scale);
        zip::<T>(out, left, right, |(l, r)| factor * (l - r))
    })
}
