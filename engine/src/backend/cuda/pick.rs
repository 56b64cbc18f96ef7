//! Pick: elements along an axis at given places, and added back there.

use bytemuck::{Pod, Zeroable};
use highwater_kernels::{Arguments, Kernel};

use super::buckets::Buckets;
use super::launch::{Queue, check_float, nest_words, reading, types, writing};
use crate::backend::View;
use crate::backend::nest::Nest;
use crate::error::Result;
use crate::layout::Layout;

const FILE: &str = "pick";

/// From so many lines on, each has a thread of its own; fewer would leave most of a device idle.
const MANY_LINES: usize = 1024;
/// Lines up to this length are not worth anything else.
const SHORT: usize = 32;

/// `struct Lines` in pick.cu.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Lines {
    lines: u64,
    size: u64,
    length: u64,
    strides: [u64; 3],
}

/// `struct Added` in pick.cu.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Added {
    first: u64,
    count: u64,
    size: u64,
    stride: u64,
}

/// The elements of `whole` that meet `places`, but for `axis`, of which it has the first alone; as many as are asked for
/// stand in for what is not there.
fn first_of_lines(op: &'static str, whole: &Layout, places: &Layout, axis: usize) -> Result<Layout> {
    let met = (0..whole.shape().rank())
        .filter(|&other| other != axis)
        .try_fold(*whole, |layout, other| layout.narrow(op, other, 0, places.shape()[other]))?;
    let length = met.shape()[axis].min(1);
    let first = met.narrow(op, axis, 0, length)?;
    // Where the axis holds nothing, no place is within it, and the layout is not used.
    if length == 0 { Ok(*places) } else { first.expand(op, places.shape()) }
}

/// See [`crate::backend::gather`].
pub fn gather(out: View<'_>, input: View<'_>, places: View<'_>, axis: usize) -> Result<()> {
    let op = "gather";
    let queue = Queue::of(out.storage.device(), op)?;
    let first = first_of_lines(op, input.layout, places.layout, axis)?;
    let nest = Nest::new([out.layout, &first, places.layout]);
    let (from, at, to) = (reading(input, op)?, reading(places, op)?, writing(out, op)?);
    let arguments = Arguments::new()
        .with(to.address())
        .with(from.address())
        .with(at.address())
        .with(nest.elements() as u64)
        .with(input.layout.shape()[axis] as u64)
        .with(input.layout.strides()[axis] as u64)
        .with(queue.gpu().fault_address())
        .with_words(&nest_words(&nest));
    queue.launch(Kernel::new(FILE, "gather", types(out.dtype)), queue.over(nest.elements(), 1), &arguments)
}

/// See [`crate::backend::scatter_add`].
pub fn scatter_add(out: View<'_>, input: View<'_>, places: View<'_>, axis: usize) -> Result<()> {
    let op = "scatter_add";
    check_float(op, out.dtype)?;
    let queue = Queue::of(out.storage.device(), op)?;
    let (elements, length) = (places.layout.elements(), places.layout.shape()[axis]);
    if elements == 0 {
        return Ok(());
    }
    let (size, fault) = (out.layout.shape()[axis] as u64, queue.gpu().fault_address());
    let first = first_of_lines(op, out.layout, places.layout, axis)?;
    let (from, at, to) = (reading(input, op)?, reading(places, op)?, writing(out, op)?);
    let kernel = |name| Kernel::new(FILE, name, types(out.dtype));
    let begin = Arguments::new;
    if length <= SHORT || elements / length >= MANY_LINES {
        let layouts = [&first, input.layout, places.layout];
        let nest = Nest::new(layouts.map(|layout| layout.select(axis, 0)).each_ref());
        let strides = [out, input, places].map(|view| view.layout.strides()[axis] as u64);
        let lines = Lines { lines: nest.elements() as u64, size, length: length as u64, strides };
        let arguments = begin().with(to.address()).with(from.address()).with(at.address()).with(lines).with(fault);
        let arguments = arguments.with_words(&nest_words(&nest));
        return queue.launch(kernel("scatter_lines"), queue.over(nest.elements(), 1), &arguments);
    }
    let stride = out.layout.strides()[axis] as u64;
    let nest = nest_words(&Nest::new([&first, input.layout, places.layout]));
    let buckets = Buckets::of(out.storage.device());
    for part in buckets.parts(elements as u64) {
        let added = Added { first: part.first, count: part.count, size, stride };
        let arguments = begin().with(buckets.address()).with(at.address()).with(added).with(part.buckets() as u32);
        let arguments = arguments.with(fault).with_words(&nest);
        queue.launch(kernel("bucket_places"), queue.over(part.count as usize, 1), &arguments)?;
        let arguments = begin().with(to.address()).with(from.address()).with(at.address()).with(buckets.address());
        let arguments = arguments.with(added).with_words(&nest);
        queue.launch(kernel("scatter_buckets"), part.grid(), &arguments)?;
    }
    Ok(())
}
