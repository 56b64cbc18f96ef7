//! Squared error of two tensors.

use highwater_kernels::{Arguments, Kernel};

use super::launch::{Queue, check_float, is_in_order, nest_words, reading, types, writing};
use super::lines::Lines;
use super::parts::Parts;
use crate::backend::View;
use crate::backend::nest::Nest;
use crate::error::Result;

const FILE: &str = "squared_error";
const OP: &str = "mse_loss";

pub(crate) fn squared_error(loss: View<'_>, left: View<'_>, right: View<'_>, scale: f64) -> Result<()> {
    check_float(OP, left.dtype)?;
    let queue = Queue::of(loss.storage.device(), OP)?;
    let kernel = |name| Kernel::new(FILE, name, types(left.dtype));
    let nest = Nest::new([left.layout, right.layout]);
    let (l, r, to) = (reading(left, OP)?, reading(right, OP)?, writing(loss, OP)?);
    let parts = Parts::new(&queue, queue.over(nest.elements(), 16 / left.dtype.size() as u64), 1);
    let arguments = parts
        .with(Arguments::new().with(to.address()))
        .with(l.address())
        .with(r.address())
        .with(nest.elements() as u64)
        .with(u32::from(is_in_order(&nest)))
        .with_words(&nest_words(&nest))
        .with(scale);
    queue.launch(kernel("squared_error"), parts.grid(), &arguments)?;
    let first = Arguments::new().with(to.address());
    parts.end(&queue, kernel("end_squared_error"), first, |arguments| arguments.with(scale))
}

pub(crate) fn squared_error_backward(
    out: View<'_>,
    grad: View<'_>,
    left: Option<View<'_>>,
    right: View<'_>,
    scale: f64,
) -> Result<()> {
    check_float(OP, out.dtype)?;
    let queue = Queue::of(out.storage.device(), OP)?;
    let nest = Nest::new([out.layout, left.map_or(out.layout, |left| left.layout), right.layout]);
    let (l, r) = (left.map(|left| reading(left, OP)).transpose()?, reading(right, OP)?);
    let (factor, to) = (reading(grad, OP)?, writing(out, OP)?);
    let l = l.as_ref().unwrap_or(&to);
    let lines = Lines::new(&queue, &nest, [&to, l, &r].map(|place| (place, out.dtype.size())));
    let arguments =
        Arguments::new().with(to.address()).with(l.address()).with(r.address()).with(factor.address()).with(scale);
    let kernel = Kernel::new(FILE, "squared_error_backward", types(out.dtype));
    queue.launch(kernel, lines.grid, &lines.after(arguments))
}
