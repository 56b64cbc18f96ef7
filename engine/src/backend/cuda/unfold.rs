//! im2col, which unfolds the windows of an image into the columns of a matrix, so that a convolution is a matrix
//! product, and its reverse.

use bytemuck::{Pod, Zeroable};
use highwater_kernels::gpu::launch::THREADS;

use super::launch::{Launch, blocks};
use super::window::WindowWords;
use crate::Result;
use crate::backend::{View, Window};

const FILE: &str = "unfold";
const OP: &str = "conv2d";
const BLOCK: u64 = THREADS as u64;
/// Maximum number of blocks along a grid's third axis.
const MAX_DEPTH: usize = 65535;

/// The kernel argument `struct Unfolded` in unfold.cu.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Unfolded {
    channels: u64,
    size: [u64; 2],
    strides: [u64; 3],
    count: u64,
    down: u64,
    right: u64,
}

impl Unfolded {
    fn new(columns: View<'_>, image: View<'_>) -> Self {
        let (shape, strides) = (image.layout.shape(), image.layout.strides());
        Self {
            channels: shape[0] as u64,
            size: [shape[1] as u64, shape[2] as u64],
            strides: [strides[0] as u64, strides[1] as u64, strides[2] as u64],
            count: columns.layout.shape()[1] as u64,
            down: columns.layout.strides()[0] as u64,
            right: columns.layout.strides()[1] as u64,
        }
    }
}

/// The kernel argument `struct Region` in unfold.cu.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Region {
    first: [u64; 2],
    size: [u64; 2],
}

impl Region {
    /// Returns the pixels of an image of `size` that `count` windows cover. If the windows are in several lines, the
    /// whole width is covered.
    fn of(window: Window, count: u64, size: [u64; 2]) -> Self {
        let width = window.places[1] as u64;
        let (first, last) = (window.first as u64, window.first as u64 + count - 1);
        let lines = [first / width, last / width];
        let columns = if lines[0] == lines[1] { [first % width, last % width] } else { [0, width - 1] };
        let mut region = Self { first: [0; 2], size: [0; 2] };
        for (axis, [first, last]) in [lines, columns].into_iter().enumerate() {
            let [stride, padding, span] = [window.stride, window.padding, window.span()].map(|pair| pair[axis] as u64);
            let end = (last * stride + span).saturating_sub(padding).min(size[axis]);
            region.first[axis] = (first * stride).saturating_sub(padding).min(end);
            region.size[axis] = end - region.first[axis];
        }
        region
    }
}

/// Returns the number of adjacent threads of a block along a line of `length` elements.
fn across(length: u64) -> u64 {
    length.next_power_of_two().clamp(1, BLOCK)
}

pub(crate) fn unfold(out: View<'_>, image: View<'_>, window: Window) -> Result<()> {
    let launch = Launch::of_floats(OP, out)?.write(out)?.read(image)?;
    let shape = Unfolded::new(out, image);
    let across = across(shape.count);
    let mut grid = blocks(shape.count.div_ceil(across), shape.channels.div_ceil(BLOCK / across));
    if u64::from(grid.blocks[0]) * u64::from(grid.blocks[1]) < u64::from(launch.queue.gpu().processors()) {
        // With few positions and channels, as for patches, the rows of the kernel are divided among blocks as well.
        grid.blocks[2] = window.kernel[0].min(MAX_DEPTH) as u32;
    }
    launch.with(WindowWords::from(window)).with(shape).with(across as u32).grid(grid).run(FILE, "unfold")
}

pub(crate) fn fold_add(image: View<'_>, columns: View<'_>, window: Window) -> Result<()> {
    let launch = Launch::of_floats(OP, image)?.write(image)?.read(columns)?;
    let shape = Unfolded::new(columns, image);
    if shape.count == 0 {
        return Ok(());
    }
    let region = Region::of(window, shape.count, shape.size);
    let across = across(region.size[1]);
    let lines = shape.channels * region.size[0];
    let grid = blocks(region.size[1].div_ceil(across), lines.div_ceil(BLOCK / across));
    let launch = launch.with(WindowWords::from(window)).with(shape).with(region).with(across as u32);
    launch.grid(grid).run(FILE, "fold_add")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_go_back_to_no_pixels_but_those_of_their_windows() {
        let window =
            Window { kernel: [3, 2], stride: [2, 1], padding: [1, 0], dilation: [1, 1], places: [4, 5], first: 6 };
        let region = |first, count| {
            let region = Region::of(Window { first, ..window }, count, [8, 6]);
            [0, 1].map(|axis| region.first[axis]..region.first[axis] + region.size[axis])
        };
        assert_eq!(region(6, 2), [1..4, 1..4]);
        assert_eq!(region(0, 5), [0..2, 0..6]);
        assert_eq!(region(4, 2), [0..4, 0..6]);
        assert_eq!(region(15, 5), [5..8, 0..6]);
    }
}
