//! Powers with a constant exponent.

use super::elementwise::{map, zip};
use super::number::{Float, Real, with_float};
use crate::Result;
use crate::backend::View;

fn raised<R: Real>(base: R, exponent: f64) -> R {
    // An exponent of ½ computes the square root, as in PyTorch: √−∞ is NaN, while (−∞)^½ would be ∞.
    let base = base.wide();
    R::of(if exponent == 0.5 {
        base.sqrt()
    } else if exponent == -0.5 {
        1.0 / base.sqrt()
    } else {
        base.powf(exponent)
    })
}

pub(crate) fn power(out: View<'_>, input: View<'_>, exponent: f64) -> Result<()> {
    with_float!("powf", out.dtype, T => map::<T>(out, Some(input), |x| raised(x, exponent)))
}

pub(crate) fn power_backward(out: View<'_>, grad: Option<View<'_>>, input: View<'_>, exponent: f64) -> Result<()> {
    with_float!("powf", out.dtype, T => {
        let factor = <T as Float>::Real::of(exponent);
        // A constant has gradient 0, even where the formula would divide by 0.
        let slope = |x| if exponent == 0.0 { factor } else { factor * raised(x, exponent - 1.0) };
        zip::<T>(out, grad, input, |(g, x)| g * slope(x))
    })
}
