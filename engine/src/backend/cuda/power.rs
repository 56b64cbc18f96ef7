//! Powers with a constant exponent.

use super::launch::Launch;
use crate::Result;
use crate::backend::View;

const FILE: &str = "power";
const OP: &str = "powf";

pub(crate) fn power(out: View<'_>, input: View<'_>, exponent: f64) -> Result<()> {
    Launch::of_floats(OP, out)?.write(out)?.read(input)?.lines::<2>().with(exponent).run(FILE, "power")
}

pub(crate) fn power_backward(out: View<'_>, grad: Option<View<'_>>, input: View<'_>, exponent: f64) -> Result<()> {
    let launch = Launch::of_floats(OP, out)?.write(out)?.read_or(grad, out)?.read(input)?.lines::<3>();
    launch.with(exponent).with(exponent - 1.0).run(FILE, "power_backward")
}
