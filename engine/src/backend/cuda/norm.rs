//! Layer norm: normalizes rows to mean 0 and variance 1.

use highwater_kernels::{Arguments, Kernel};

use super::columns::{ColumnKernels, Columns, Sums, rows_and_columns};
use super::launch::{Queue, address_of, check_float, reading, types, writing};
use super::rows::{Rows, in_order};
use crate::backend::View;
use crate::error::Result;

const FILE: &str = "norm";

pub(crate) fn layer_norm(
    out: View<'_>,
    mean: View<'_>,
    rstd: View<'_>,
    input: View<'_>,
    affine: [Option<View<'_>>; 2],
    epsilon: f64,
) -> Result<()> {
    let op = "layer_norm";
    check_float(op, input.dtype)?;
    let queue = Queue::of(out.storage.device(), op)?;
    let from = reading(input, op)?;
    let [weight, bias] = affine.map(|view| view.map(|view| reading(view, op)).transpose());
    let (weight, bias) = (weight?, bias?);
    let (to, means, rstds) = (writing(out, op)?, writing(mean, op)?, writing(rstd, op)?);
    let rows = Rows::of(&queue, input);
    let arguments = Arguments::new()
        .with(to.address())
        .with(means.address())
        .with(rstds.address())
        .with(from.address())
        .with(address_of(&weight))
        .with(address_of(&bias))
        .with(epsilon);
    queue.launch(Kernel::new(FILE, "layer_norm", types(input.dtype)), rows.grid(), &rows.with(arguments))
}

pub(crate) fn layer_norm_again(
    out: View<'_>,
    statistics: [View<'_>; 2],
    input: View<'_>,
    affine: [Option<View<'_>>; 2],
) -> Result<()> {
    let op = "layer_norm";
    check_float(op, input.dtype)?;
    let queue = Queue::of(out.storage.device(), op)?;
    let (from, means, rstds) = (reading(input, op)?, reading(statistics[0], op)?, reading(statistics[1], op)?);
    let [weight, bias] = affine.map(|view| view.map(|view| reading(view, op)).transpose());
    let (weight, bias) = (weight?, bias?);
    let to = writing(out, op)?;
    let rows = Rows::of(&queue, input);
    let arguments = Arguments::new()
        .with(to.address())
        .with(means.address())
        .with(rstds.address())
        .with(from.address())
        .with(address_of(&weight))
        .with(address_of(&bias));
    queue.launch(Kernel::new(FILE, "layer_norm_again", types(input.dtype)), rows.grid(), &rows.with(arguments))
}

pub(crate) fn layer_norm_backward(
    out: View<'_>,
    grad: Option<View<'_>>,
    statistics: [View<'_>; 2],
    input: View<'_>,
    weight: Option<View<'_>>,
) -> Result<()> {
    let op = "layer_norm";
    check_float(op, input.dtype)?;
    let queue = Queue::of(out.storage.device(), op)?;
    let grads = in_order(out, grad)?.map(|grad| reading(grad, op)).transpose()?;
    let (from, means, rstds) = (reading(input, op)?, reading(statistics[0], op)?, reading(statistics[1], op)?);
    let weight = weight.map(|weight| reading(weight, op)).transpose()?;
    let to = writing(out, op)?;
    let rows = Rows::of(&queue, input);
    let arguments = Arguments::new()
        .with(to.address())
        .with(grads.as_ref().unwrap_or(&to).address())
        .with(means.address())
        .with(rstds.address())
        .with(from.address())
        .with(address_of(&weight));
    queue.launch(Kernel::new(FILE, "layer_norm_backward", types(input.dtype)), rows.grid(), &rows.with(arguments))
}

pub(crate) fn layer_norm_backward_affine(
    grad: View<'_>,
    statistics: [View<'_>; 2],
    input: View<'_>,
    affine: [Option<View<'_>>; 2],
    keep: [f64; 2],
) -> Result<()> {
    let op = "layer_norm";
    check_float(op, input.dtype)?;
    let queue = Queue::of(grad.storage.device(), op)?;
    let (grads, from) = (reading(grad, op)?, reading(input, op)?);
    let (means, rstds) = (reading(statistics[0], op)?, reading(statistics[1], op)?);
    let [weight, bias] = affine.map(|view| view.map(|view| writing(view, op)).transpose());
    let outs = [weight?, bias?];
    let sums = [0, 1].map(|kind| Sums::new(outs[kind].as_ref(), keep[kind]));
    let columns = Columns::new(&queue, rows_and_columns(input), input.dtype, &[&grads, &from], 2);
    let kernels = ColumnKernels { file: FILE, sum: "layer_norm_backward_affine", add: "layer_norm_add_parts" };
    kernels.launch(&queue, columns, input.dtype, &sums, |arguments| {
        arguments.with(grads.address()).with(means.address()).with(rstds.address()).with(from.address())
    })
}
