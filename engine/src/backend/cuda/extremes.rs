//! The largest and smallest elements along an axis, and their indices.

use bytemuck::{Pod, Zeroable};
use highwater_kernels::gpu::launch::THREADS;

use super::launch::{Launch, blocks, nest_words};
use crate::Result;
use crate::backend::{Extremum, Nest, View};

const OP: &str = "extremes";
const BLOCK: u64 = THREADS as u64;
const WARP: u64 = 32;

/// The kernel argument `struct Lines` in extremes.cu.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Lines {
    lines: u64,
    length: u64,
    count: u64,
    strides: [u64; 3],
    group: u32,
    is_smallest: u32,
}

pub(crate) fn extremes(
    places: View<'_>,
    found: Option<View<'_>>,
    input: View<'_>,
    axis: usize,
    extremum: Extremum,
) -> Result<()> {
    let launch = Launch::of_floats(OP, input)?.write(places)?.write_if(found)?.read(input)?;
    if places.layout.elements() == 0 {
        return Ok(());
    }
    let (shape, strides) = (input.layout.shape(), input.layout.strides());
    let layouts = [places.layout, found.unwrap_or(places).layout, input.layout];
    let nest = Nest::new(layouts.map(|layout| layout.select(axis, 0)).each_ref());
    let (lines, length) = (nest.elements() as u64, shape[axis] as u64);
    let is_nearest = (0..shape.rank()).all(|other| shape[other] == 1 || strides[other] >= strides[axis]);
    let group = match length {
        4096.. if is_nearest => BLOCK,
        512.. if lines < 1024 => BLOCK,
        8.. if is_nearest => length.div_ceil(8).next_power_of_two().min(WARP),
        _ => 1,
    };
    let shape = Lines {
        lines,
        length,
        count: places.layout.shape()[axis] as u64,
        strides: layouts.map(|layout| layout.strides()[axis] as u64),
        group: group as u32,
        is_smallest: u32::from(extremum == Extremum::Smallest),
    };
    let launch = launch.with(shape).words(&nest_words(&nest));
    launch.grid(blocks(lines.div_ceil(BLOCK / group), 1)).run("extremes", "extremes_along")
}
