//! Layer norm, which normalizes rows to mean 0 and variance 1, and RMS norm, which does not subtract the mean.

use super::columns::ColumnKernels;
use super::launch::Launch;
use super::rows::in_order;
use crate::Result;
use crate::backend::View;

const FILE: &str = "norm";
const OP: &str = "layer_norm";

pub(crate) fn layer_norm(
    out: View<'_>,
    mean: Option<View<'_>>,
    rstd: View<'_>,
    input: View<'_>,
    affine: [Option<View<'_>>; 2],
    epsilon: f64,
) -> Result<()> {
    let launch = Launch::of_floats(OP, input)?.write(out)?.write_if(mean)?.write(rstd)?.read(input)?;
    launch.read_if(affine[0])?.read_if(affine[1])?.with(epsilon).rows_of(input).run(FILE, "layer_norm")
}

pub(crate) fn layer_norm_again(
    out: View<'_>,
    mean: Option<View<'_>>,
    rstd: View<'_>,
    input: View<'_>,
    affine: [Option<View<'_>>; 2],
) -> Result<()> {
    let launch = Launch::of_floats(OP, input)?.write(out)?.read_if(mean)?.read(rstd)?.read(input)?;
    launch.read_if(affine[0])?.read_if(affine[1])?.rows_of(input).run(FILE, "layer_norm_again")
}

pub(crate) fn layer_norm_backward(
    out: View<'_>,
    grad: Option<View<'_>>,
    mean: Option<View<'_>>,
    rstd: View<'_>,
    input: View<'_>,
    weight: Option<View<'_>>,
) -> Result<()> {
    let grad = in_order(out, grad)?;
    let launch = Launch::of_floats(OP, input)?.write(out)?.read_or(grad, out)?.read_if(mean)?.read(rstd)?;
    launch.read(input)?.read_if(weight)?.rows_of(input).run(FILE, "layer_norm_backward")
}

pub(crate) fn layer_norm_backward_affine(
    grad: View<'_>,
    mean: Option<View<'_>>,
    rstd: View<'_>,
    input: View<'_>,
    affine: [Option<View<'_>>; 2],
    keep: [f64; 2],
) -> Result<()> {
    let (sum, add) = ("layer_norm_backward_affine", "layer_norm_add_parts");
    let outs = [0, 1].map(|kind| (affine[kind], keep[kind]));
    ColumnKernels { op: OP, file: FILE, sum, add }.launch(input, &outs, &[Some(grad), mean, Some(rstd), Some(input)])
}
