//! Cumulative sums and products along an axis.

use super::elementwise::copy_if;
use super::number::{Float, Real, with_float};
use crate::Result;
use crate::backend::{Fold, Nest, Scan, View};

pub(crate) fn scan(out: View<'_>, input: Option<View<'_>>, axis: usize, scan: Scan) -> Result<()> {
    copy_if(out, input)?;
    with_float!("scan", out.dtype, T => {
        type R = <T as Float>::Real;
        let (length, stride) = (out.layout.shape()[axis], out.layout.strides()[axis]);
        let mut memory = out.storage.write::<T>("scan")?;
        if length == 0 {
            return Ok(());
        }
        Nest::new([&out.layout.select(axis, 0)]).each(|[first]| {
            let mut total = match scan.fold {
                Fold::Sum => R::ZERO,
                Fold::Product => R::ONE,
            };
            for i in 0..length {
                let place = &mut memory[first + if scan.backwards { length - 1 - i } else { i } * stride];
                let value = place.load();
                let before = total;
                total = match scan.fold {
                    Fold::Sum => total + value,
                    Fold::Product => total * value,
                };
                *place = T::store(if scan.exclusive { before } else { total });
            }
        });
        Ok(())
    })
}

/// The product is linear in each factor. The gradient of factor j is therefore the product of all factors before it,
/// times the sum over the results that contain it of their gradients times the factors in between. This sum follows
/// from that of the next factor, so two passes over a line suffice. Nothing is divided, so zeros need no special case.
pub(crate) fn product_backward(
    out: View<'_>,
    grad: View<'_>,
    input: View<'_>,
    axis: usize,
    exclusive: bool,
) -> Result<()> {
    scan(out, Some(input), axis, Scan { fold: Fold::Product, exclusive: true, backwards: false })?;
    with_float!("cumprod", out.dtype, T => {
        type R = <T as Float>::Real;
        let strides = [out, grad, input].map(|view| view.layout.strides()[axis]);
        let length = out.layout.shape()[axis];
        let (grads, factors) = (grad.storage.read::<T>("cumprod")?, input.storage.read::<T>("cumprod")?);
        let mut memory = out.storage.write::<T>("cumprod")?;
        if length == 0 {
            return Ok(());
        }
        let first = [out, grad, input].map(|view| view.layout.select(axis, 0));
        Nest::new([&first[0], &first[1], &first[2]]).each(|[at_out, at_grad, at_input]| {
            let grad = |i: usize| grads[at_grad + i * strides[1]].load();
            let factor = |i: usize| factors[at_input + i * strides[2]].load();
            // Exclusive: the sum begins at the next result.
            let mut later = R::ZERO;
            for i in (0..length).rev() {
                if !exclusive {
                    later = grad(i) + if i + 1 < length { factor(i + 1) * later } else { R::ZERO };
                } else if i + 1 < length {
                    later = grad(i + 1) + factor(i + 1) * later;
                }
                let place = &mut memory[at_out + i * strides[0]];
                *place = T::store(place.load() * later);
            }
        });
        Ok(())
    })
}
