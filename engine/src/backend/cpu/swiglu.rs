//! SwiGLU, silu(gate) · up, in one pass, and both gradients in another.

use bytemuck::Pod;
use rayon::prelude::*;

use super::ELEMENTS_A_TASK;
use super::elements::{Elements, read, write};
use super::elementwise::zip;
use super::number::{Float, Real, with_float};
use crate::backend::View;
use crate::error::Result;
use crate::storage::{Reading, Storage};

const OP: &str = "swiglu";

pub(crate) fn swiglu(out: View<'_>, gate: View<'_>, up: View<'_>) -> Result<()> {
    with_float!(OP, out.dtype, T => zip::<T>(out, Some(gate), up, |(x, up): (<T as Float>::Real, <T as Float>::Real)| x * sigmoid(x) * up))
}

fn sigmoid<R: Real>(x: R) -> R {
    R::ONE / (R::ONE + (-x).exp())
}

pub(crate) fn swiglu_backward(grad: View<'_>, inputs: [View<'_>; 2], gradients: [Option<View<'_>>; 2]) -> Result<()> {
    with_float!(OP, grad.dtype, T => {
        match gradients {
            [Some(of_gate), Some(of_up)] => both::<T>([of_gate, of_up], [grad, inputs[0], inputs[1]]),
            [Some(of_gate), None] => one::<T>(of_gate, [grad, inputs[0], inputs[1]], |known| slopes(known).0),
            [None, Some(of_up)] => one::<T>(of_up, [grad, inputs[0], inputs[1]], |known| slopes(known).1),
            [None, None] => Ok(()),
        }
    })
}

/// Returns the gradients of gate and up from `[grad, gate, up]`.
fn slopes<R: Real>([grad, gate, up]: [R; 3]) -> (R, R) {
    let share = sigmoid(gate);
    (grad * up * share * (R::ONE + gate * (R::ONE - share)), grad * gate * share)
}

/// The source of an operand: memory that is only read, or a gradient's memory before it is overwritten.
enum Source<'a, T: Pod> {
    Read(Elements<Reading<'a, T>>),
    Overwritten(usize),
}

impl<'a, T: Float> Source<'a, T> {
    fn new(known: View<'a>, written: &[&Storage]) -> Result<Self> {
        match written.iter().position(|&storage| std::ptr::eq(storage, known.storage)) {
            Some(place) => Ok(Self::Overwritten(place)),
            None => Ok(Self::Read(read::<T>(known, OP)?)),
        }
    }

    /// Returns the elements from `start` on, or `None` if they are in memory that is written.
    fn from(&self, start: usize) -> Option<&[T]> {
        match self {
            Self::Read(elements) => Some(&elements[start..]),
            Self::Overwritten(_) => None,
        }
    }

    /// Returns the element at `place`; `outs` are the elements there in each gradient's memory.
    fn at(&self, read: Option<&[T]>, place: usize, outs: &[T]) -> T::Real {
        match self {
            Self::Overwritten(out) => outs[*out].load(),
            Self::Read(_) => read.map_or(T::Real::ZERO, |read| read[place].load()),
        }
    }
}

fn one<T: Float>(out: View<'_>, known: [View<'_>; 3], f: impl Fn([T::Real; 3]) -> T::Real + Sync) -> Result<()> {
    let sources = [0, 1, 2].map(|n| Source::<T>::new(known[n], &[out.storage]));
    let [a, b, c] = sources;
    let sources = [a?, b?, c?];
    let mut memory = write::<T>(out, OP)?;
    memory.par_chunks_mut(ELEMENTS_A_TASK).enumerate().for_each(|(task, out)| {
        let read = sources.each_ref().map(|source| source.from(task * ELEMENTS_A_TASK));
        for (place, out) in out.iter_mut().enumerate() {
            *out = T::store(f([0, 1, 2].map(|n| sources[n].at(read[n], place, &[*out]))));
        }
    });
    Ok(())
}

fn both<T: Float>(outs: [View<'_>; 2], known: [View<'_>; 3]) -> Result<()> {
    let written = [outs[0].storage, outs[1].storage];
    let [a, b, c] = [0, 1, 2].map(|n| Source::<T>::new(known[n], &written));
    let sources = [a?, b?, c?];
    let (mut first, mut second) = (write::<T>(outs[0], OP)?, write::<T>(outs[1], OP)?);
    let tasks = first.par_chunks_mut(ELEMENTS_A_TASK).zip(second.par_chunks_mut(ELEMENTS_A_TASK));
    tasks.enumerate().for_each(|(task, (of_gate, of_up))| {
        let read = sources.each_ref().map(|source| source.from(task * ELEMENTS_A_TASK));
        for (place, (of_gate, of_up)) in of_gate.iter_mut().zip(of_up).enumerate() {
            let before = [*of_gate, *of_up];
            let (gate, up) = slopes([0, 1, 2].map(|n| sources[n].at(read[n], place, &before)));
            (*of_gate, *of_up) = (T::store(gate), T::store(up));
        }
    });
    Ok(())
}
