//! Squared error of two tensors.

use super::launch::{Launch, is_in_order, nest_words};
use super::parts::Parts;
use crate::Result;
use crate::backend::{Nest, View};

const FILE: &str = "squared_error";
const OP: &str = "mse_loss";

pub(crate) fn squared_error(loss: View<'_>, left: View<'_>, right: View<'_>, scale: f64) -> Result<()> {
    let launch = Launch::of_floats(OP, left)?.write(loss)?;
    let nest = Nest::new([left.layout, right.layout]);
    let parts = Parts::new(&launch.queue, launch.queue.over(nest.elements(), 16 / left.dtype.size() as u64), 1);
    let launch = launch.with(parts.address()).read(left)?.read(right)?.with(nest.elements() as u64);
    let launch = launch.with(u32::from(is_in_order(&nest))).words(&nest_words(&nest)).with(scale);
    launch.grid(parts.grid()).run(FILE, "squared_error")?;
    if parts.are_several() {
        Launch::new(OP, left)?.write(loss)?.parts(parts).with(scale).run(FILE, "end_squared_error")?;
    }
    Ok(())
}

pub(crate) fn squared_error_backward(
    out: View<'_>,
    grad: View<'_>,
    left: Option<View<'_>>,
    right: View<'_>,
    scale: f64,
) -> Result<()> {
    let launch = Launch::of_floats(OP, out)?.write(out)?.read_or(left, out)?.read(right)?.read(grad)?;
    launch.with(scale).lines::<3>().run(FILE, "squared_error_backward")
}
