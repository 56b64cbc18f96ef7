//! Piecewise linear functions, with two bits per element for the slopes.

use highwater_kernels::{Arguments, Kernel};

use super::launch::{Queue, address_of, check_float, is_in_order, nest_words, reading, types, writing};
use super::random::in_order_or_copied;
use crate::backend::nest::Nest;
use crate::backend::{Piecewise, Side, View};
use crate::error::Result;

const FILE: &str = "piecewise";
const OP: &str = "piecewise";

/// Slopes in one byte, which a thread writes.
const A_BYTE: usize = 4;

pub(crate) fn piecewise(
    out: View<'_>,
    slopes: Option<View<'_>>,
    function: Piecewise,
    left: View<'_>,
    right: Option<View<'_>>,
) -> Result<()> {
    check_float(OP, out.dtype)?;
    let (name, [low, high]) = match function {
        Piecewise::Abs => ("piecewise_abs", [0.0; 2]),
        Piecewise::Clamp { low, high } => ("piecewise_clamp", [low, high]),
        Piecewise::Maximum => ("piecewise_maximum", [0.0; 2]),
        Piecewise::Minimum => ("piecewise_minimum", [0.0; 2]),
    };
    // A function of one number is given it twice.
    let right = right.unwrap_or(left);
    let queue = Queue::of(out.storage.device(), OP)?;
    let nest = Nest::new([out.layout, left.layout, right.layout]);
    let elements = nest.elements();
    let (l, r) = (reading(left, OP)?, reading(right, OP)?);
    let (to, bytes) = (writing(out, OP)?, slopes.map(|slopes| writing(slopes, OP)).transpose()?);
    let four = (A_BYTE * out.dtype.size()) as u64;
    let is_packed = is_in_order(&nest) && [&to, &l, &r].iter().all(|place| place.address().is_multiple_of(four));
    let arguments = Arguments::new()
        .with(to.address())
        .with(address_of(&bytes))
        .with(l.address())
        .with(r.address())
        .with(elements as u64)
        .with_words(&nest_words(&nest))
        .with(u32::from(is_packed))
        .with(low)
        .with(high);
    queue.launch(Kernel::new(FILE, name, types(out.dtype)), queue.over(elements, A_BYTE as u64), &arguments)
}

pub(crate) fn piecewise_backward(out: View<'_>, grad: Option<View<'_>>, slopes: View<'_>, side: Side) -> Result<()> {
    const FLAT: u32 = 1;
    const RISES: u32 = 3;
    check_float(OP, out.dtype)?;
    let grad = in_order_or_copied(out, grad)?;
    // Which bits say that the slope is 1, and what those say that name neither of 0, ½ and 1.
    let (rises, odd) = match side {
        Side::Only => (RISES, -1.0),
        Side::Left => (RISES, 1.0),
        Side::Right => (FLAT, 1.0),
    };
    let queue = Queue::of(out.storage.device(), OP)?;
    let elements = out.layout.elements();
    let (from, bytes) = (grad.map(|grad| reading(grad, OP)).transpose()?, reading(slopes, OP)?);
    let to = writing(out, OP)?;
    let from = from.as_ref().unwrap_or(&to);
    let four = (A_BYTE * out.dtype.size()) as u64;
    let is_packed = [&to, from].iter().all(|place| place.address().is_multiple_of(four));
    let arguments = Arguments::new()
        .with(to.address())
        .with(from.address())
        .with(bytes.address())
        .with(elements as u64)
        .with(u32::from(is_packed))
        .with(rises)
        .with(odd);
    let grid = queue.over(elements, A_BYTE as u64);
    queue.launch(Kernel::new(FILE, "piecewise_backward", types(out.dtype)), grid, &arguments)
}
