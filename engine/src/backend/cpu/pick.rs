//! Gathers elements along an axis by index, and adds gradients back to them.

use super::number::{Float, with_bytes, with_float};
use crate::backend::{Nest, View};
use crate::{Error, Layout, Result};

/// Narrows `whole` to the lengths of `places`, except along `axis`.
fn narrowed(op: &'static str, whole: &Layout, places: &Layout, axis: usize) -> Result<Layout> {
    (0..whole.shape().rank())
        .filter(|&other| other != axis)
        .try_fold(*whole, |layout, other| layout.narrow(op, other, 0, places.shape()[other]))
}

/// Calls `visit` for every index in `places`, with the offset of the indexed element in `whole`, and the offset of the
/// element of `beside` at the position of the index itself.
fn each(
    op: &'static str,
    [whole, beside, places]: [View<'_>; 3],
    axis: usize,
    mut visit: impl FnMut(usize, usize),
) -> Result<()> {
    let indices = places.storage.read::<i64>(op)?;
    let (size, stride) = (whole.layout.shape()[axis], whole.layout.strides()[axis]);
    let lines = narrowed(op, whole.layout, places.layout, axis)?;
    if places.layout.elements() == 0 {
        return Ok(());
    }
    let mut wrong = None;
    let beside = narrowed(op, beside.layout, places.layout, axis)?;
    let steps = [beside.strides()[axis], places.layout.strides()[axis]];
    let first = [lines.select(axis, 0), beside.select(axis, 0), places.layout.select(axis, 0)];
    Nest::new([&first[0], &first[1], &first[2]]).each(|[at, at_beside, at_place]| {
        for i in 0..places.layout.shape()[axis] {
            let index = indices[at_place + i * steps[1]];
            match usize::try_from(index).ok().filter(|&index| index < size) {
                Some(place) => visit(at + place * stride, at_beside + i * steps[0]),
                None => wrong = wrong.or(Some(index)),
            }
        }
    });
    wrong.map_or(Ok(()), |index| Err(Error::Index { op, index, size }))
}

pub(crate) fn gather(out: View<'_>, input: View<'_>, places: View<'_>, axis: usize) -> Result<()> {
    with_bytes!(out.dtype, T => {
        let (values, mut memory) = (input.storage.read::<T>("gather")?, out.storage.write::<T>("gather")?);
        each("gather", [input, out, places], axis, |from, to| memory[to] = values[from])
    })
}

pub(crate) fn scatter_add(out: View<'_>, input: View<'_>, places: View<'_>, axis: usize) -> Result<()> {
    with_float!("scatter_add", out.dtype, T => {
        let values = input.storage.read::<T>("scatter_add")?;
        let mut memory = out.storage.write::<T>("scatter_add")?;
        each("scatter_add", [out, input, places], axis, |to, from| {
            memory[to] = <T as Float>::store(memory[to].load() + values[from].load());
        })
    })
}
