//! Gradient norms and gradient clipping.

use highwater_kernels::{Arguments, Grid, Kernel};

use super::launch::{Queue, check_float, is_in_order, nest_words, reading, types, writing};
use super::lines::Lines;
use super::parts::Parts;
use crate::backend::View;
use crate::backend::nest::Nest;
use crate::dtype::DType;
use crate::error::Result;

const FILE: &str = "clip";

pub(crate) fn add_norm(total: View<'_>, input: View<'_>, order: f64) -> Result<()> {
    let op = "norm";
    check_float(op, input.dtype)?;
    let queue = Queue::of(total.storage.device(), op)?;
    let kernel = |name| Kernel::new(FILE, name, types(input.dtype));
    let (name, end) = match order {
        f64::INFINITY => ("add_norm_largest", "end_norm_largest"),
        2.0 => ("add_norm_squares", "end_norm_sum"),
        1.0 => ("add_norm_magnitudes", "end_norm_sum"),
        _ => ("add_norm_powers", "end_norm_sum"),
    };
    let nest = Nest::new([input.layout]);
    let (from, to) = (reading(input, op)?, writing(total, op)?);
    let parts = Parts::new(&queue, queue.over(nest.elements(), elements_a_thread(input)), 1);
    let arguments = parts
        .with(Arguments::new().with(to.address()))
        .with(from.address())
        .with(nest.elements() as u64)
        .with(u32::from(is_in_order(&nest)))
        .with_words(&nest_words(&nest))
        .with(order);
    queue.launch(kernel(name), parts.grid(), &arguments)?;
    parts.end(&queue, kernel(end), Arguments::new().with(to.address()), |arguments| arguments)
}

/// Those that a thread takes at a time where they are contiguous.
fn elements_a_thread(view: View<'_>) -> u64 {
    16 / view.dtype.size() as u64
}

pub(crate) fn finish_norm(total: View<'_>, order: f64) -> Result<()> {
    let op = "norm";
    if order == f64::INFINITY {
        return Ok(());
    }
    let queue = Queue::of(total.storage.device(), op)?;
    let to = writing(total, op)?;
    let grid = Grid { threads: [1, 1, 1], ..Grid::row(1) };
    let arguments = Arguments::new().with(to.address()).with(order);
    queue.launch(Kernel::new(FILE, "finish_norm", types(DType::F64)), grid, &arguments)
}

pub(crate) fn clip_to_norm(out: View<'_>, norm: View<'_>, most: f64) -> Result<()> {
    let op = "clip_grad_norm";
    check_float(op, out.dtype)?;
    let norm = reading(norm, op)?;
    change(op, "clip_to_norm", out, |arguments| arguments.with(norm.address()).with(most))
}

pub(crate) fn clamp(out: View<'_>, least: f64, most: f64) -> Result<()> {
    let op = "clamp";
    check_float(op, out.dtype)?;
    change(op, "clamp", out, |arguments| arguments.with(least).with(most))
}

/// Changes every element by a kernel that takes these arguments after the first.
fn change(
    op: &'static str,
    name: &'static str,
    out: View<'_>,
    rest: impl FnOnce(Arguments) -> Arguments,
) -> Result<()> {
    let queue = Queue::of(out.storage.device(), op)?;
    let to = writing(out, op)?;
    let lines = Lines::new(&queue, &Nest::new([out.layout]), [(&to, out.dtype.size())]);
    let arguments = lines.after(rest(Arguments::new().with(to.address())));
    queue.launch(Kernel::new(FILE, name, types(out.dtype)), lines.grid, &arguments)
}

pub(crate) fn find_nonfinite(found: View<'_>, input: View<'_>) -> Result<()> {
    let op = "find_nonfinite";
    check_float(op, input.dtype)?;
    let queue = Queue::of(found.storage.device(), op)?;
    let nest = Nest::new([input.layout]);
    let (from, to) = (reading(input, op)?, writing(found, op)?);
    let arguments = Arguments::new()
        .with(to.address())
        .with(from.address())
        .with(nest.elements() as u64)
        .with(u32::from(is_in_order(&nest)))
        .with_words(&nest_words(&nest));
    let grid = queue.over(nest.elements(), elements_a_thread(input));
    queue.launch(Kernel::new(FILE, "find_nonfinite", types(input.dtype)), grid, &arguments)
}
