//! Powers with a constant exponent.

use super::number::{Float, Real, with_float};
use crate::backend::View;
use crate::backend::nest::Nest;
use crate::error::Result;

fn raised<R: Real>(base: R, exponent: f64) -> R {
    // Roots are computed as such, as in PyTorch: the root of −∞ is NaN, its power with ½ would be ∞.
    let base = base.wide();
    R::of(if exponent == 0.5 {
        base.sqrt()
    } else if exponent == -0.5 {
        1.0 / base.sqrt()
    } else {
        base.powf(exponent)
    })
}

/// See [`crate::backend::power`].
pub fn power(out: View<'_>, input: View<'_>, exponent: f64) -> Result<()> {
    with_float!("powf", out.dtype, T => {
        let values = input.storage.read::<T>("powf")?;
        let mut memory = out.storage.write::<T>("powf")?;
        Nest::new([out.layout, input.layout])
            .each(|[at, from]| memory[at] = T::store(raised(values[from].load(), exponent)));
        Ok(())
    })
}

/// See [`crate::backend::power_backward`].
pub fn power_backward(out: View<'_>, grad: Option<View<'_>>, input: View<'_>, exponent: f64) -> Result<()> {
    if let Some(grad) = grad {
        super::elementwise::copy(out, grad)?;
    }
    with_float!("powf", out.dtype, T => {
        let factor = <T as Float>::Real::of(exponent);
        let values = input.storage.read::<T>("powf")?;
        let mut memory = out.storage.write::<T>("powf")?;
        Nest::new([out.layout, input.layout]).each(|[at, from]| {
            // A constant has no slope, not even where its formula would divide by 0.
            let slope = if exponent == 0.0 { factor } else { factor * raised(values[from].load(), exponent - 1.0) };
            memory[at] = T::store(memory[at].load() * slope);
        });
        Ok(())
    })
}
