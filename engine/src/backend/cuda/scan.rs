//! Cumulative sums and products along an axis.

use bytemuck::{Pod, Zeroable};
use highwater_kernels::Grid;
use highwater_kernels::gpu::launch::THREADS;

use super::launch::{Launch, Queue, blocks, nest_words};
use crate::backend::{Fold, Nest, Scan, View};
use crate::{Layout, Result};

const FILE: &str = "scan";
const BLOCK: u64 = THREADS as u64;
const WARP: u64 = 32;

/// Minimum length of lines that are summed by one block each, if there are fewer than `FEW_LINES`.
const LONG: u64 = 4096;
const FEW_LINES: u64 = 1024;

/// The kernel argument `struct Walk` in scan.cu.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Walk {
    lines: u64,
    length: u64,
    strides: [u64; 3],
    is_product: u32,
    is_exclusive: u32,
    is_backwards: u32,
    padding: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Walker {
    Thread,
    Warp,
    Block,
}

impl Walk {
    fn new<const N: usize>(layouts: [&Layout; N], axis: usize, nest: &Nest<N>, scan: Scan) -> Self {
        let mut strides = [0; 3];
        strides.iter_mut().zip(layouts).for_each(|(stride, layout)| *stride = layout.strides()[axis] as u64);
        Self {
            lines: nest.elements() as u64,
            length: layouts[0].shape()[axis] as u64,
            strides,
            is_product: u32::from(scan.fold == Fold::Product),
            is_exclusive: u32::from(scan.exclusive),
            is_backwards: u32::from(scan.backwards),
            padding: 0,
        }
    }

    /// A block walks along each long line to be summed if there are few lines. Otherwise a warp walks along each line
    /// of at least 32 elements if they are contiguous or there are few lines. Otherwise adjacent threads walk along
    /// adjacent lines.
    fn walker(&self) -> Walker {
        let is_few = self.lines < FEW_LINES;
        if self.length >= LONG && is_few && self.is_product == 0 {
            Walker::Block
        } else if self.length >= WARP && (is_few || self.strides[0] == 1) {
            Walker::Warp
        } else {
            Walker::Thread
        }
    }

    fn grid(&self, queue: &Queue<'_>) -> Grid {
        match self.walker() {
            Walker::Thread => queue.over(self.lines as usize, 1),
            Walker::Warp => blocks(self.lines.div_ceil(BLOCK / WARP), 1),
            Walker::Block => blocks(self.lines, 1),
        }
    }
}

pub(crate) fn scan(out: View<'_>, input: Option<View<'_>>, axis: usize, scan: Scan) -> Result<()> {
    let launch = Launch::of_floats("scan", out)?.write(out)?.read_or(input, out)?;
    if out.layout.elements() == 0 {
        return Ok(());
    }
    let layouts = [out.layout, input.unwrap_or(out).layout];
    let nest = Nest::new(layouts.map(|layout| layout.select(axis, 0)).each_ref());
    let walk = Walk::new(layouts, axis, &nest, scan);
    let name = match walk.walker() {
        Walker::Thread => "scan_lines",
        Walker::Warp => "scan_rows",
        Walker::Block => "scan_long",
    };
    let grid = walk.grid(&launch.queue);
    launch.with(walk).words(&nest_words(&nest)).grid(grid).run(FILE, name)
}

pub(crate) fn product_backward(
    out: View<'_>,
    grad: View<'_>,
    input: View<'_>,
    axis: usize,
    exclusive: bool,
) -> Result<()> {
    let before = Scan { fold: Fold::Product, exclusive: true, backwards: false };
    scan(out, Some(input), axis, before)?;
    let launch = Launch::of_floats("cumprod", out)?.write(out)?.read(grad)?.read(input)?;
    if out.layout.elements() == 0 {
        return Ok(());
    }
    let layouts = [out.layout, grad.layout, input.layout];
    let nest = Nest::new(layouts.map(|layout| layout.select(axis, 0)).each_ref());
    let walk = Walk::new(layouts, axis, &nest, Scan { exclusive, ..before });
    let name = match walk.walker() {
        Walker::Thread => "product_backward_lines",
        Walker::Warp | Walker::Block => "product_backward_rows",
    };
    let grid = walk.grid(&launch.queue);
    launch.with(walk).words(&nest_words(&nest)).grid(grid).run(FILE, name)
}
