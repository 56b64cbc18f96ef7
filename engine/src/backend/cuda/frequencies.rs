//! Positional encoding of coordinates by their sines and cosines at doubling frequencies.

use super::launch::Launch;
use super::lines::{grid, most_blocks};
use crate::backend::View;
use crate::{Layout, Result};

const FILE: &str = "frequencies";
const OP: &str = "frequencies";

/// Returns the length of the last axis, at least 1.
fn width(layout: &Layout) -> usize {
    layout.shape().last().copied().unwrap_or(1).max(1)
}

pub(crate) fn frequencies(out: View<'_>, input: View<'_>) -> Result<()> {
    let launch = Launch::of_floats(OP, out)?.write(out)?.read(input)?;
    let (width, wide) = (width(input.layout), width(out.layout));
    let rows = (input.layout.elements() / width) as u64;
    let grid = grid(wide as u64, rows, most_blocks(&launch.queue));
    launch.with(rows).with(width as u32).with(wide as u32).grid(grid).run(FILE, "frequencies")
}

pub(crate) fn frequencies_backward(out: View<'_>, grad: View<'_>, input: View<'_>) -> Result<()> {
    let elements = input.layout.elements();
    let launch = Launch::of_floats(OP, out)?.write(out)?.read(grad)?.read(input)?.with(elements as u64);
    let launch = launch.with(width(input.layout) as u32).with(width(grad.layout) as u32);
    launch.over(elements, 1).run(FILE, "frequencies_backward")
}
