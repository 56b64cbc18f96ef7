//! RMS norm: divides rows by their root mean square.

use highwater_kernels::{Arguments, Kernel};

use super::columns::{ColumnKernels, Columns, Sums, rows_and_columns};
use super::launch::{Queue, address_of, check_float, reading, types, writing};
use super::rows::{Rows, in_order};
use crate::backend::View;
use crate::error::Result;

const FILE: &str = "rms_norm";
const OP: &str = "rms_norm";

pub(crate) fn rms_norm(
    out: View<'_>,
    inverse: View<'_>,
    input: View<'_>,
    weight: Option<View<'_>>,
    epsilon: f64,
) -> Result<()> {
    check_float(OP, input.dtype)?;
    let queue = Queue::of(out.storage.device(), OP)?;
    let from = reading(input, OP)?;
    let weight = weight.map(|weight| reading(weight, OP)).transpose()?;
    let (to, inverses) = (writing(out, OP)?, writing(inverse, OP)?);
    let rows = Rows::of(&queue, input);
    let arguments = Arguments::new()
        .with(to.address())
        .with(inverses.address())
        .with(from.address())
        .with(address_of(&weight))
        .with(epsilon);
    queue.launch(Kernel::new(FILE, "rms_norm", types(input.dtype)), rows.grid(), &rows.with(arguments))
}

pub(crate) fn rms_norm_again(
    out: View<'_>,
    inverse: View<'_>,
    input: View<'_>,
    weight: Option<View<'_>>,
) -> Result<()> {
    check_float(OP, input.dtype)?;
    let queue = Queue::of(out.storage.device(), OP)?;
    let (from, inverses) = (reading(input, OP)?, reading(inverse, OP)?);
    let weight = weight.map(|weight| reading(weight, OP)).transpose()?;
    let to = writing(out, OP)?;
    let rows = Rows::of(&queue, input);
    let arguments =
        Arguments::new().with(to.address()).with(inverses.address()).with(from.address()).with(address_of(&weight));
    queue.launch(Kernel::new(FILE, "rms_norm_again", types(input.dtype)), rows.grid(), &rows.with(arguments))
}

pub(crate) fn rms_norm_backward(
    out: View<'_>,
    grad: Option<View<'_>>,
    inverse: View<'_>,
    input: View<'_>,
    weight: Option<View<'_>>,
) -> Result<()> {
    check_float(OP, input.dtype)?;
    let queue = Queue::of(out.storage.device(), OP)?;
    let grads = in_order(out, grad)?.map(|grad| reading(grad, OP)).transpose()?;
    let (from, inverses) = (reading(input, OP)?, reading(inverse, OP)?);
    let weight = weight.map(|weight| reading(weight, OP)).transpose()?;
    let to = writing(out, OP)?;
    let rows = Rows::of(&queue, input);
    let arguments = Arguments::new()
        .with(to.address())
        .with(grads.as_ref().unwrap_or(&to).address())
        .with(inverses.address())
        .with(from.address())
        .with(address_of(&weight));
    queue.launch(Kernel::new(FILE, "rms_norm_backward", types(input.dtype)), rows.grid(), &rows.with(arguments))
}

pub(crate) fn rms_norm_backward_weight(
    weight: View<'_>,
    grad: View<'_>,
    inverse: View<'_>,
    input: View<'_>,
    keep: f64,
) -> Result<()> {
    check_float(OP, input.dtype)?;
    let queue = Queue::of(weight.storage.device(), OP)?;
    let (grads, inverses, from) = (reading(grad, OP)?, reading(inverse, OP)?, reading(input, OP)?);
    let out = writing(weight, OP)?;
    let columns = Columns::new(&queue, rows_and_columns(input), input.dtype, &[&grads, &from], 1);
    let kernels = ColumnKernels { file: FILE, sum: "rms_norm_backward_weight", add: "rms_norm_add_parts" };
    kernels.launch(&queue, columns, input.dtype, &[Sums::new(Some(&out), keep)], |arguments| {
        arguments.with(grads.address()).with(inverses.address()).with(from.address())
    })
}
