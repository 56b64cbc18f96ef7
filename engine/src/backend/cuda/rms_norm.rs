//! RMS norm: divides rows by their root mean square.

use super::columns::ColumnKernels;
use super::launch::Launch;
use super::rows::in_order;
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
    let launch = Launch::of_floats(OP, input)?.write(out)?.write(inverse)?.read(input)?.read_if(weight)?;
    launch.with(epsilon).rows_of(input).run(FILE, "rms_norm")
}

pub(crate) fn rms_norm_again(
    out: View<'_>,
    inverse: View<'_>,
    input: View<'_>,
    weight: Option<View<'_>>,
) -> Result<()> {
    let launch = Launch::of_floats(OP, input)?.write(out)?.read(inverse)?.read(input)?.read_if(weight)?;
    launch.rows_of(input).run(FILE, "rms_norm_again")
}

pub(crate) fn rms_norm_backward(
    out: View<'_>,
    grad: Option<View<'_>>,
    inverse: View<'_>,
    input: View<'_>,
    weight: Option<View<'_>>,
) -> Result<()> {
    let grad = in_order(out, grad)?;
    let launch = Launch::of_floats(OP, input)?.write(out)?.read_or(grad, out)?.read(inverse)?;
    launch.read(input)?.read_if(weight)?.rows_of(input).run(FILE, "rms_norm_backward")
}

pub(crate) fn rms_norm_backward_weight(
    weight: View<'_>,
    grad: View<'_>,
    inverse: View<'_>,
    input: View<'_>,
    keep: f64,
) -> Result<()> {
    let (sum, add) = ("rms_norm_backward_weight", "rms_norm_add_parts");
    ColumnKernels { op: OP, file: FILE, sum, add }.launch(input, &[(Some(weight), keep)], &[grad, inverse, input])
}
