//! Selects elements of two tensors by a condition.

use highwater_kernels::{Arguments, Kernel};

use super::elementwise::{fill, moved};
use super::launch::{Queue, reading, writing};
use super::lines::Lines;
use crate::backend::View;
use crate::backend::nest::Nest;
use crate::error::Result;

const FILE: &str = "where_cond";
const OP: &str = "where";

pub(crate) fn where_cond(
    out: View<'_>,
    condition: View<'_>,
    left: Option<View<'_>>,
    right: Option<View<'_>>,
) -> Result<()> {
    match (left, right) {
        (Some(left), Some(right)) => where_of_two(out, condition, left, right),
        (Some(left), None) => keep(out, condition, Some(left), true),
        (None, Some(right)) => keep(out, condition, Some(right), false),
        (None, None) => fill(out, 0.0),
    }
}

fn where_of_two(out: View<'_>, condition: View<'_>, left: View<'_>, right: View<'_>) -> Result<()> {
    let queue = Queue::of(out.storage.device(), OP)?;
    let nest = Nest::new([out.layout, condition.layout, left.layout, right.layout]);
    let (truths, l, r) = (reading(condition, OP)?, reading(left, OP)?, reading(right, OP)?);
    let to = writing(out, OP)?;
    let bytes = out.dtype.size();
    let lines = Lines::new(&queue, &nest, [(&to, bytes), (&truths, 1), (&l, bytes), (&r, bytes)]);
    let places = [&to, &truths, &l, &r];
    let arguments = places.into_iter().fold(Arguments::new(), |arguments, place| arguments.with(place.address()));
    queue.launch(Kernel::new(FILE, "where_cond", moved(out.dtype)), lines.grid, &lines.after(arguments))
}

pub(crate) fn clear(out: View<'_>, condition: View<'_>, wanted: bool) -> Result<()> {
    keep(out, condition, None, wanted)
}

/// `out = input` where the condition is `wanted`, else 0. Without an input, of `out` itself.
fn keep(out: View<'_>, condition: View<'_>, input: Option<View<'_>>, wanted: bool) -> Result<()> {
    let queue = Queue::of(out.storage.device(), OP)?;
    let nest = Nest::new([out.layout, condition.layout, input.unwrap_or(out).layout]);
    let (truths, from) = (reading(condition, OP)?, input.map(|input| reading(input, OP)).transpose()?);
    let to = writing(out, OP)?;
    let from = from.as_ref().unwrap_or(&to);
    let bytes = out.dtype.size();
    let lines = Lines::new(&queue, &nest, [(&to, bytes), (&truths, 1), (from, bytes)]);
    let arguments = Arguments::new().with(to.address()).with(truths.address()).with(from.address());
    let arguments = lines.after(arguments).with(u32::from(wanted));
    queue.launch(Kernel::new(FILE, "keep", moved(out.dtype)), lines.grid, &arguments)
}
