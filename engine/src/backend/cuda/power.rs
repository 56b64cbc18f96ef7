//! Powers with a constant exponent.

use highwater_kernels::{Arguments, Kernel};

use super::launch::{Queue, check_float, reading, types, writing};
use super::lines::Lines;
use crate::backend::View;
use crate::backend::nest::Nest;
use crate::error::Result;

const FILE: &str = "power";
const OP: &str = "powf";

pub(crate) fn power(out: View<'_>, input: View<'_>, exponent: f64) -> Result<()> {
    check_float(OP, out.dtype)?;
    let queue = Queue::of(out.storage.device(), OP)?;
    let nest = Nest::new([out.layout, input.layout]);
    let (from, to) = (reading(input, OP)?, writing(out, OP)?);
    let lines = Lines::new(&queue, &nest, [&to, &from].map(|place| (place, out.dtype.size())));
    let arguments = lines.after(Arguments::new().with(to.address()).with(from.address())).with(exponent);
    queue.launch(Kernel::new(FILE, "power", types(out.dtype)), lines.grid, &arguments)
}

pub(crate) fn power_backward(out: View<'_>, grad: Option<View<'_>>, input: View<'_>, exponent: f64) -> Result<()> {
    check_float(OP, out.dtype)?;
    let queue = Queue::of(out.storage.device(), OP)?;
    let nest = Nest::new([out.layout, grad.unwrap_or(out).layout, input.layout]);
    let (g, from) = (grad.map(|grad| reading(grad, OP)).transpose()?, reading(input, OP)?);
    let to = writing(out, OP)?;
    let g = g.as_ref().unwrap_or(&to);
    let lines = Lines::new(&queue, &nest, [&to, g, &from].map(|place| (place, out.dtype.size())));
    let arguments = Arguments::new().with(to.address()).with(g.address()).with(from.address());
    let arguments = lines.after(arguments).with(exponent).with(exponent - 1.0);
    queue.launch(Kernel::new(FILE, "power_backward", types(out.dtype)), lines.grid, &arguments)
}
