//! Softmax and log-softmax of rows.

use highwater_kernels::{Arguments, Kernel};

use super::launch::{Queue, check_float, reading, types, writing};
use super::rows::{Rows, in_order};
use crate::backend::View;
use crate::error::Result;

const FILE: &str = "softmax";

pub(crate) fn softmax(out: View<'_>, input: Option<View<'_>>) -> Result<()> {
    by_rows("softmax", out, input)
}

pub(crate) fn log_softmax(out: View<'_>, input: Option<View<'_>>) -> Result<()> {
    by_rows("log_softmax", out, input)
}

fn by_rows(op: &'static str, out: View<'_>, input: Option<View<'_>>) -> Result<()> {
    check_float(op, out.dtype)?;
    let queue = Queue::of(out.storage.device(), op)?;
    let from = in_order(out, input)?.map(|input| reading(input, op)).transpose()?;
    let to = writing(out, op)?;
    let rows = Rows::of(&queue, out);
    let arguments = Arguments::new().with(to.address()).with(from.as_ref().unwrap_or(&to).address());
    queue.launch(Kernel::new(FILE, op, types(out.dtype)), rows.grid(), &rows.with(arguments))
}

pub(crate) fn softmax_backward(out: View<'_>, grad: Option<View<'_>>, result: View<'_>) -> Result<()> {
    backward_by_rows("softmax_backward", out, grad, result)
}

pub(crate) fn log_softmax_backward(out: View<'_>, grad: Option<View<'_>>, result: View<'_>) -> Result<()> {
    backward_by_rows("log_softmax_backward", out, grad, result)
}

fn backward_by_rows(op: &'static str, out: View<'_>, grad: Option<View<'_>>, result: View<'_>) -> Result<()> {
    check_float(op, out.dtype)?;
    let queue = Queue::of(out.storage.device(), op)?;
    let grads = in_order(out, grad)?.map(|grad| reading(grad, op)).transpose()?;
    let results = reading(result, op)?;
    let to = writing(out, op)?;
    let rows = Rows::of(&queue, out);
    let arguments =
        Arguments::new().with(to.address()).with(grads.as_ref().unwrap_or(&to).address()).with(results.address());
    queue.launch(Kernel::new(FILE, op, types(out.dtype)), rows.grid(), &rows.with(arguments))
}
