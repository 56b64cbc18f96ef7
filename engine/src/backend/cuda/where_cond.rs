//! Selects elements of two tensors by a condition.

use super::elementwise::{fill, moved};
use super::launch::Launch;
use crate::Result;
use crate::backend::View;

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
    let launch = Launch::new(OP, out)?.typed(moved(out.dtype));
    let launch = launch.write(out)?.read(condition)?.read(left)?.read(right)?;
    launch.lines::<4>().run(FILE, "where_cond")
}

pub(crate) fn clear(out: View<'_>, condition: View<'_>, wanted: bool) -> Result<()> {
    keep(out, condition, None, wanted)
}

/// Computes `out = input` where the condition is `wanted`, and 0 elsewhere. Without an input, `out` is the input.
fn keep(out: View<'_>, condition: View<'_>, input: Option<View<'_>>, wanted: bool) -> Result<()> {
    let launch = Launch::new(OP, out)?.typed(moved(out.dtype));
    let launch = launch.write(out)?.read(condition)?.read_or(input, out)?;
    launch.lines::<3>().with(u32::from(wanted)).run(FILE, "keep")
}
