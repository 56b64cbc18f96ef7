//! Positional encoding: coordinates with their sines and cosines at doubling frequencies.

use highwater_kernels::{Arguments, Kernel};

use super::launch::{Queue, check_float, reading, types, writing};
use super::lines::{grid, most_blocks};
use crate::backend::View;
use crate::error::Result;
use crate::layout::Layout;

const FILE: &str = "frequencies";
const OP: &str = "frequencies";

/// The length of the last axis, at least 1.
fn width(layout: &Layout) -> usize {
    layout.shape().last().copied().unwrap_or(1).max(1)
}

pub(crate) fn frequencies(out: View<'_>, input: View<'_>) -> Result<()> {
    check_float(OP, out.dtype)?;
    let queue = Queue::of(out.storage.device(), OP)?;
    let (width, wide) = (width(input.layout), width(out.layout));
    let rows = (input.layout.elements() / width) as u64;
    let (from, to) = (reading(input, OP)?, writing(out, OP)?);
    let arguments =
        Arguments::new().with(to.address()).with(from.address()).with(rows).with(width as u32).with(wide as u32);
    let grid = grid(wide as u64, rows, most_blocks(&queue));
    queue.launch(Kernel::new(FILE, "frequencies", types(out.dtype)), grid, &arguments)
}

pub(crate) fn frequencies_backward(out: View<'_>, grad: View<'_>, input: View<'_>) -> Result<()> {
    check_float(OP, out.dtype)?;
    let queue = Queue::of(out.storage.device(), OP)?;
    let elements = input.layout.elements();
    let (g, from) = (reading(grad, OP)?, reading(input, OP)?);
    let to = writing(out, OP)?;
    let arguments = Arguments::new()
        .with(to.address())
        .with(g.address())
        .with(from.address())
        .with(elements as u64)
        .with(width(input.layout) as u32)
        .with(width(grad.layout) as u32);
    let kernel = Kernel::new(FILE, "frequencies_backward", types(out.dtype));
    queue.launch(kernel, queue.over(elements, 1), &arguments)
}
