//! SwiGLU, silu(gate) · up, in one pass, and both gradients in another.

use super::launch::Launch;
use crate::Result;
use crate::backend::View;

const FILE: &str = "swiglu";
const OP: &str = "swiglu";

pub(crate) fn swiglu(out: View<'_>, gate: View<'_>, up: View<'_>) -> Result<()> {
    let mut launch = Launch::of_floats(OP, out)?.write(out)?.read(gate)?.read(up)?;
    let elements = out.layout.elements();
    let is_packed = launch.lines_in_order([elements, 1]);
    launch.with(elements as u64).with(is_packed).run(FILE, "swiglu")
}

pub(crate) fn swiglu_backward(grad: View<'_>, inputs: [View<'_>; 2], gradients: [Option<View<'_>>; 2]) -> Result<()> {
    let launch = Launch::of_floats(OP, grad)?.write_if(gradients[0])?.write_if(gradients[1])?;
    let launch = launch.read_or_overwrite(grad)?.read_or_overwrite(inputs[0])?;
    let mut launch = launch.read_or_overwrite(inputs[1])?;
    let elements = grad.layout.elements();
    let is_packed = launch.lines_in_order([elements, 1]);
    launch.with(elements as u64).with(is_packed).run(FILE, "swiglu_backward")
}
