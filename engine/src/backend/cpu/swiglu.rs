//! SwiGLU, silu(gate) · up, in one pass, and each gradient in another.

use rayon::prelude::*;

use super::ELEMENTS_A_TASK;
use super::elements::{read, write};
use super::elementwise::zip;
use super::number::{Float, Real, with_float};
use crate::backend::View;
use crate::error::Result;

const OP: &str = "swiglu";

pub(crate) fn swiglu(out: View<'_>, gate: View<'_>, up: View<'_>) -> Result<()> {
    with_float!(OP, out.dtype, T => zip::<T>(out, Some(gate), up, |(x, up): (<T as Float>::Real, <T as Float>::Real)| x * sigmoid(x) * up))
}

fn sigmoid<R: Real>(x: R) -> R {
    R::ONE / (R::ONE + (-x).exp())
}

pub(crate) fn swiglu_backward(grad: View<'_>, inputs: [View<'_>; 2], gradients: [Option<View<'_>>; 2]) -> Result<()> {
    with_float!(OP, grad.dtype, T => backward::<T>([grad, inputs[0], inputs[1]], gradients))
}

/// Writes the gradients of gate and up, those that are given, from `[grad, gate, up]`.
fn backward<T: Float>(known: [View<'_>; 3], gradients: [Option<View<'_>>; 2]) -> Result<()> {
    // Copies, since each gradient may be written over any of them.
    let [grad, gate, up] = known.map(|view| Ok::<_, crate::Error>(read::<T>(view, OP)?.to_vec()));
    let (grad, gate, up) = (grad?, gate?, up?);
    for (of_up, out) in [false, true].into_iter().zip(gradients) {
        let Some(out) = out else { continue };
        let mut memory = write::<T>(out, OP)?;
        memory.par_chunks_mut(ELEMENTS_A_TASK).enumerate().for_each(|(task, out)| {
            for (place, out) in (task * ELEMENTS_A_TASK..).zip(out) {
                let [grad, gate, up] = [&grad, &gate, &up].map(|values| values[place].load());
                let share = sigmoid(gate);
                *out = T::store(match of_up {
                    true => grad * gate * share,
                    false => grad * up * share * (T::Real::ONE + gate * (T::Real::ONE - share)),
                });
            }
        });
    }
    Ok(())
}
