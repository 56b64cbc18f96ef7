//! SwiGLU, silu(gate) · up, in one pass, and each gradient in a separate pass.

use std::ptr;

use rayon::prelude::*;

use super::ELEMENTS_PER_TASK;
use super::elements::{Elements, read, write};
use super::elementwise::zip;
use super::number::{Float, Real, with_float};
use crate::backend::View;
use crate::error::Result;
use crate::storage::Reading;

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

enum Source<'a, T> {
    Operand(Elements<Reading<'a, T>>),
    /// The memory of one of the gradients, which overwrites the operand.
    Gradient(usize),
}

/// Writes the given gradients of gate and up, computed from `[grad, gate, up]`.
fn backward<T: Float>(known: [View<'_>; 3], gradients: [Option<View<'_>>; 2]) -> Result<()> {
    let is_over =
        |out: &Option<View<'_>>, operand: View<'_>| out.is_some_and(|out| ptr::eq(out.storage, operand.storage));
    let [grad, gate, up] = known.map(|operand| match gradients.iter().position(|out| is_over(out, operand)) {
        Some(out) => Ok(Source::Gradient(out)),
        None => read::<T>(operand, OP).map(Source::Operand),
    });
    let sources = [grad?, gate?, up?];
    let [of_gate, of_up] = gradients.map(|out| out.map(|out| write::<T>(out, OP)).transpose());
    let mut outs = [of_gate?, of_up?];
    let [mut of_gate, mut of_up] =
        outs.each_mut().map(|out| out.as_deref_mut().unwrap_or_default().chunks_mut(ELEMENTS_PER_TASK));
    let elements = known[0].layout.elements();
    let tasks = (0..elements).step_by(ELEMENTS_PER_TASK);
    let tasks: Vec<_> =
        tasks.map(|first| (first, [of_gate.next(), of_up.next()].map(Option::unwrap_or_default))).collect();
    tasks.into_par_iter().for_each(|(first, mut outs): (usize, [&mut [T]; 2])| {
        for place in 0..ELEMENTS_PER_TASK.min(elements - first) {
            let [grad, gate, up] = sources.each_ref().map(|source| match source {
                Source::Operand(values) => values[first + place].load(),
                Source::Gradient(out) => outs[*out][place].load(),
            });
            let share = sigmoid(gate);
            let of_gate = grad * up * share * (T::Real::ONE + gate * (T::Real::ONE - share));
            for (out, value) in outs.iter_mut().zip([of_gate, grad * gate * share]) {
                if let Some(out) = out.get_mut(place) {
                    *out = T::store(value);
                }
            }
        }
    });
    Ok(())
}
