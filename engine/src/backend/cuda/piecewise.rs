//! Piecewise linear functions, with two bits per element for the slopes.

use super::launch::{Launch, is_in_order, nest_words};
use super::rows::in_order;
use crate::Result;
use crate::backend::{Piecewise, Side, View};

const FILE: &str = "piecewise";
const OP: &str = "piecewise";

/// Number of slopes in one byte, which a thread writes.
const A_BYTE: usize = 4;

pub(crate) fn piecewise(
    out: View<'_>,
    slopes: Option<View<'_>>,
    function: Piecewise,
    left: View<'_>,
    right: Option<View<'_>>,
) -> Result<()> {
    let (name, [low, high]) = match function {
        Piecewise::Abs => ("piecewise_abs", [0.0; 2]),
        Piecewise::Clamp { low, high } => ("piecewise_clamp", [low, high]),
        Piecewise::Maximum => ("piecewise_maximum", [0.0; 2]),
        Piecewise::Minimum => ("piecewise_minimum", [0.0; 2]),
    };
    let mut launch = Launch::of_floats(OP, out)?.write(out)?;
    let bytes = slopes.map_or(Ok(0), |slopes| launch.lend_to_write(slopes))?;
    // A function of one operand gets it twice.
    let launch = launch.with(bytes).read(left)?.read(right.unwrap_or(left))?;
    let nest = launch.nest_of_operands::<3>();
    let elements = nest.elements();
    let is_packed = is_in_order(&nest) && launch.is_aligned(A_BYTE * out.dtype.size());
    let launch = launch.with(elements as u64).words(&nest_words(&nest)).with(u32::from(is_packed));
    launch.with(low).with(high).over(elements, A_BYTE).run(FILE, name)
}

pub(crate) fn piecewise_backward(out: View<'_>, grad: Option<View<'_>>, slopes: View<'_>, side: Side) -> Result<()> {
    const FLAT: u32 = 1;
    const RISES: u32 = 3;
    let grad = in_order(out, grad)?;
    // The bits for slope 1, and the slope for which bits 0 stand.
    let (rises, odd) = match side {
        Side::Only => (RISES, -1.0),
        Side::Left => (RISES, 1.0),
        Side::Right => (FLAT, 1.0),
    };
    let elements = out.layout.elements();
    let launch = Launch::of_floats(OP, out)?.write(out)?.read_or(grad, out)?;
    let is_packed = launch.is_aligned(A_BYTE * out.dtype.size());
    let launch = launch.read(slopes)?.with(elements as u64).with(u32::from(is_packed)).with(rises).with(odd);
    launch.over(elements, A_BYTE).run(FILE, "piecewise_backward")
}
