//! Softmax and log-softmax of rows.

use super::launch::Launch;
use super::rows::in_order;
use crate::Result;
use crate::backend::View;

const FILE: &str = "softmax";

pub(crate) fn softmax(out: View<'_>, input: Option<View<'_>>) -> Result<()> {
    by_rows("softmax", out, input)
}

pub(crate) fn log_softmax(out: View<'_>, input: Option<View<'_>>) -> Result<()> {
    by_rows("log_softmax", out, input)
}

fn by_rows(op: &'static str, out: View<'_>, input: Option<View<'_>>) -> Result<()> {
    let input = in_order(out, input)?;
    Launch::of_floats(op, out)?.write(out)?.read_or(input, out)?.rows_of(out).run(FILE, op)
}

pub(crate) fn softmax_backward(out: View<'_>, grad: Option<View<'_>>, result: View<'_>) -> Result<()> {
    backward_by_rows("softmax_backward", out, grad, result)
}

pub(crate) fn log_softmax_backward(out: View<'_>, grad: Option<View<'_>>, result: View<'_>) -> Result<()> {
    backward_by_rows("log_softmax_backward", out, grad, result)
}

fn backward_by_rows(op: &'static str, out: View<'_>, grad: Option<View<'_>>, result: View<'_>) -> Result<()> {
    let grad = in_order(out, grad)?;
    Launch::of_floats(op, out)?.write(out)?.read_or(grad, out)?.read(result)?.rows_of(out).run(FILE, op)
}
