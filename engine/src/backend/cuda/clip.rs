//! Gradient norms and gradient clipping.

use highwater_kernels::Grid;

use super::launch::{Launch, is_in_order, nest_words};
use super::parts::Parts;
use crate::Result;
use crate::backend::{Nest, View};

const FILE: &str = "clip";

pub(crate) fn add_norm(total: View<'_>, input: View<'_>, order: f64) -> Result<()> {
    let op = "norm";
    let (name, end) = match order {
        f64::INFINITY => ("add_norm_largest", "end_norm_largest"),
        2.0 => ("add_norm_squares", "end_norm_sum"),
        1.0 => ("add_norm_magnitudes", "end_norm_sum"),
        _ => ("add_norm_powers", "end_norm_sum"),
    };
    let launch = Launch::of_floats(op, input)?;
    let elements = input.layout.elements();
    let parts = Parts::new(&launch.queue, launch.queue.over(elements, elements_per_thread(input) as u64), 1);
    let launch = with_elements(launch.write(total)?.with(parts.address()), input)?;
    launch.with(order).grid(parts.grid()).run(FILE, name)?;
    if parts.are_several() {
        Launch::new(op, input)?.write(total)?.parts(parts).run(FILE, end)?;
    }
    Ok(())
}

/// Returns the number of elements that a thread processes at a time if they are contiguous.
fn elements_per_thread(view: View<'_>) -> usize {
    16 / view.dtype.size()
}

/// Adds the elements of an input of any layout to a launch, with a grid for them.
fn with_elements<'a>(launch: Launch<'a>, input: View<'a>) -> Result<Launch<'a>> {
    let nest = Nest::new([input.layout]);
    let (elements, is_in_order) = (nest.elements(), is_in_order(&nest));
    let launch = launch.read(input)?.with(elements as u64).with(u32::from(is_in_order)).words(&nest_words(&nest));
    Ok(launch.over(elements, elements_per_thread(input)))
}

pub(crate) fn finish_norm(total: View<'_>, order: f64) -> Result<()> {
    if order == f64::INFINITY {
        return Ok(());
    }
    let grid = Grid { threads: [1, 1, 1], ..Grid::row(1) };
    Launch::new("norm", total)?.write(total)?.with(order).grid(grid).run(FILE, "finish_norm")
}

pub(crate) fn clip_to_norm(out: View<'_>, norm: View<'_>, most: f64) -> Result<()> {
    let launch = Launch::of_floats("clip_grad_norm", out)?.write(out)?.read(norm)?;
    launch.with(most).lines::<1>().run(FILE, "clip_to_norm")
}

pub(crate) fn clamp(out: View<'_>, least: f64, most: f64) -> Result<()> {
    Launch::of_floats("clamp", out)?.write(out)?.with(least).with(most).lines::<1>().run(FILE, "clamp")
}

pub(crate) fn find_nonfinite(found: View<'_>, input: View<'_>) -> Result<()> {
    let launch = Launch::of_floats("find_nonfinite", input)?.write(found)?;
    with_elements(launch, input)?.run(FILE, "find_nonfinite")
}
