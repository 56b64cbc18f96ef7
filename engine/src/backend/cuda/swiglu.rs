//! SwiGLU, silu(gate) · up, in one pass, and both gradients in another.

use highwater_kernels::{Arguments, Kernel};

use super::launch::{Queue, address_of, check_float, reading, types, writing};
use super::lines::in_order;
use crate::backend::View;
use crate::error::Result;

const FILE: &str = "swiglu";
const OP: &str = "swiglu";

pub(crate) fn swiglu(out: View<'_>, gate: View<'_>, up: View<'_>) -> Result<()> {
    check_float(OP, out.dtype)?;
    let queue = Queue::of(out.storage.device(), OP)?;
    let elements = out.layout.elements();
    let (gates, ups) = (reading(gate, OP)?, reading(up, OP)?);
    let to = writing(out, OP)?;
    let addresses = [to.address(), gates.address(), ups.address()];
    let (is_packed, grid) = in_order(&queue, &addresses, out.dtype.size(), [elements, 1]);
    let arguments = addresses.into_iter().fold(Arguments::new(), Arguments::with);
    let arguments = arguments.with(elements as u64).with(is_packed);
    queue.launch(Kernel::new(FILE, "swiglu", types(out.dtype)), grid, &arguments)
}

pub(crate) fn swiglu_backward<'a>(
    grad: View<'a>,
    inputs: [View<'a>; 2],
    gradients: [Option<View<'a>>; 2],
) -> Result<()> {
    check_float(OP, grad.dtype)?;
    let queue = Queue::of(grad.storage.device(), OP)?;
    let elements = grad.layout.elements();
    let [to_gate, to_up] = gradients.map(|gradient| gradient.map(|view| writing(view, OP)).transpose());
    let written = [to_gate?, to_up?];
    // Memory that is written is lent once, also where it is read before.
    let mut only_read = Vec::new();
    let mut address = |view: View<'a>| -> Result<u64> {
        let is_same =
            |gradient: &Option<View<'_>>| gradient.is_some_and(|other| std::ptr::eq(other.storage, view.storage));
        match gradients.iter().position(is_same).and_then(|n| written[n].as_ref()) {
            Some(place) => Ok(place.address_of(view)),
            None => {
                let place = reading(view, OP)?;
                let address = place.address();
                only_read.push(place);
                Ok(address)
            }
        }
    };
    let addresses =
        [address_of(&written[0]), address_of(&written[1]), address(grad)?, address(inputs[0])?, address(inputs[1])?];
    let (is_packed, grid) = in_order(&queue, &addresses, grad.dtype.size(), [elements, 1]);
    let arguments = addresses.into_iter().fold(Arguments::new(), Arguments::with);
    let arguments = arguments.with(elements as u64).with(is_packed);
    queue.launch(Kernel::new(FILE, "swiglu_backward", types(grad.dtype)), grid, &arguments)
}
