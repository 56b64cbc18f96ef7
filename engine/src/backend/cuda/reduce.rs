//! Sums along axes.
//!
//! The division of a sum into parts depends only on the sizes of the tensors and of the workspace, so results are the
//! same every time and on every device.

use bytemuck::{Pod, Zeroable};
use highwater_kernels::gpu::launch::THREADS;

use super::launch::{Launch, WIDE_BYTES, blocks, check_float, nest_words};
use crate::backend::{Nest, View};
use crate::{Layout, Result};

const FILE: &str = "reduce";
const OP: &str = "sum";
const BLOCK: u64 = THREADS as u64;
const WARP: u64 = 32;

/// Number of blocks that keeps any device busy. Sums are not split into more.
const BLOCKS: u64 = 4096;
/// Minimum number of elements that a thread adds before sums are split among further blocks.
const TERMS_PER_THREAD: u64 = 16;

/// The kernel argument `struct Rows` in reduce.cu.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Rows {
    sums: u64,
    rows: u64,
    length: u64,
    stride: u64,
    piece: u64,
    pieces: u64,
    group: u32,
    across: u32,
}

/// The kernel argument `struct Columns` in reduce.cu.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Columns {
    columns: u64,
    stride: u64,
    out_stride: u64,
    rows: u64,
    times: u64,
    across: u64,
}

pub(crate) fn sum(out: View<'_>, input: View<'_>, scale: f64, keep: f64) -> Result<()> {
    check_float(OP, input.dtype)?;
    if input.layout.elements() == 0 {
        return Ok(());
    }
    let (shape, strides) = (input.layout.shape(), input.layout.strides());
    let (mut kept, summed): (Vec<usize>, Vec<usize>) =
        (0..shape.rank()).partition(|&axis| out.layout.strides()[axis] != 0 && shape[axis] != 1);
    kept.sort_by_key(|&axis| std::cmp::Reverse(out.layout.strides()[axis]));
    let nearest = (0..shape.rank()).filter(|&axis| shape[axis] != 1 && strides[axis] != 0);
    let nearest = nearest.min_by_key(|&axis| strides[axis]);
    let workspace = out.storage.device().workspace();
    let (layouts, factors) = ([out.layout, input.layout], Factors { scale, keep });
    let sum = Sum { out, input, workspace, layouts, factors };
    match nearest.and_then(|nearest| kept.iter().position(|&axis| axis == nearest)) {
        Some(place) => {
            let column = kept.remove(place);
            sum.over_columns(&kept, &summed, column)
        }
        None => sum.over_rows(&kept, &summed),
    }
}

struct Sum<'a> {
    out: View<'a>,
    input: View<'a>,
    workspace: (u64, u64),
    /// Layouts of the output and of the input.
    layouts: [&'a Layout; 2],
    factors: Factors,
}

/// Factors of the sum and of the previous contents, `struct Factors` in reduce.cu.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Factors {
    scale: f64,
    keep: f64,
}

impl Sum<'_> {
    /// Sums if the innermost axis in memory is summed.
    fn over_rows(&self, kept: &[usize], summed: &[usize]) -> Result<()> {
        let [out, input] = self.layouts.map(|layout| only(layout, kept));
        let kept_nest = Nest::new([&out, &input]);
        let (outer, length, [stride]) = Nest::new([&only(self.layouts[1], summed)]).split_innermost();
        let (sums, rows, length) = (kept_nest.elements() as u64, outer.elements() as u64, length as u64);
        let at_a_time = if stride == 1 { self.width() } else { 1 };
        let terms = rows * length;
        let loads = terms.div_ceil(at_a_time);
        let is_large = loads >= 1024 || (sums <= 2048 && loads >= 256);
        let group = if is_large { BLOCK } else { loads.div_ceil(4).next_power_of_two().min(WARP) };
        let piece = if is_large { length.min(8 * BLOCK * at_a_time) } else { length };
        let pieces = length.div_ceil(piece);
        let across = length.div_ceil(at_a_time).next_power_of_two().min(group);
        let blocks_per_part = sums.div_ceil(BLOCK / group);
        let useful =
            if is_large { (terms / (BLOCK * TERMS_PER_THREAD)).min(rows * pieces / (group / across)) } else { 1 };
        let parts = self.parts(sums, blocks_per_part, useful);
        let shape = Rows {
            sums,
            rows,
            length,
            stride: stride as u64,
            piece,
            pieces,
            group: group as u32,
            across: across as u32,
        };
        let launch = self.begin(parts)?.with(shape).words(&nest_words(&kept_nest)).words(&nest_words(&outer));
        launch.with(self.factors).grid(blocks(blocks_per_part, parts)).run(FILE, "sum_rows")?;
        self.add_parts(parts, sums, kept)
    }

    /// Sums if the innermost axis in memory is kept. This axis is `column`, and is not contained in `kept`.
    fn over_columns(&self, kept: &[usize], summed: &[usize], column: usize) -> Result<()> {
        let [out, input] = self.layouts;
        let times = Nest::new([&only(out, kept), &only(input, kept)]);
        let terms = Nest::new([&only(input, summed)]);
        let columns = input.shape()[column] as u64;
        let others = (0..input.shape().rank()).filter(|&axis| axis != column && input.shape()[axis] != 1);
        let mut distances = others.map(|axis| input.strides()[axis] as u64).chain([columns]);
        let is_aligned = Launch::new(OP, self.input)?.read(self.input)?.is_aligned(WIDE_BYTES);
        let is_wide = is_aligned
            && input.strides()[column] == 1
            && distances.all(|distance| distance.is_multiple_of(self.width()));
        let width = if is_wide { self.width() } else { 1 };
        let (rows, takes) = (terms.elements() as u64, columns / width);
        let down = rows.div_ceil(8).next_power_of_two().min(8);
        let across = takes.next_power_of_two().min(BLOCK / down);
        let blocks_per_part = columns.div_ceil(across * width) * times.elements() as u64;
        let sums = columns * times.elements() as u64;
        let parts = self.parts(sums, blocks_per_part, rows / (BLOCK / across * TERMS_PER_THREAD));
        let shape = Columns {
            columns,
            stride: input.strides()[column] as u64,
            out_stride: out.strides()[column] as u64,
            rows,
            times: times.elements() as u64,
            across,
        };
        let launch = self.begin(parts)?.with(shape).words(&nest_words(&times)).words(&nest_words(&terms));
        let name = if is_wide { "sum_columns_wide" } else { "sum_columns" };
        launch.with(self.factors).grid(blocks(blocks_per_part, parts)).run(FILE, name)?;
        self.add_parts(parts, sums, &[kept, &[column]].concat())
    }

    /// Returns the number of elements that a thread processes at a time.
    fn width(&self) -> u64 {
        (WIDE_BYTES / self.input.dtype.size()) as u64
    }

    /// Returns the number of parts into which sums are divided: as many as useful, if the workspace is large enough.
    fn parts(&self, sums: u64, blocks_per_part: u64, useful: u64) -> u64 {
        let real_bytes = self.input.dtype.statistics().size() as u64;
        (BLOCKS / blocks_per_part).min(useful).min(self.workspace.1 / (sums * real_bytes)).max(1)
    }

    /// Adds the first arguments, which are the output, the destination of partial sums if there are several, and the
    /// input.
    fn begin(&self, parts: u64) -> Result<Launch<'_>> {
        let workspace = if parts > 1 { self.workspace.0 } else { 0 };
        Launch::new(OP, self.input)?.write(self.out)?.with(workspace).read(self.input)
    }

    /// Adds the sums of the parts to the output. `order` contains the axes by which the sums of a part are indexed.
    fn add_parts(&self, parts: u64, sums: u64, order: &[usize]) -> Result<()> {
        if parts == 1 {
            return Ok(());
        }
        let out = only(self.layouts[0], order);
        let nest = Nest::new([&Layout::contiguous(*out.shape()), &out]);
        // If there are few sums, many threads share each.
        let group = match (1 << 14) / sums {
            256.. => BLOCK,
            share => share.next_power_of_two().clamp(1, WARP).min(parts.next_power_of_two()),
        };
        let launch = Launch::new(OP, self.input)?.write(self.out)?.with(self.workspace.0).with(parts).with(sums);
        let launch = launch.with(group as u32).words(&nest_words(&nest)).with(self.factors);
        launch.grid(blocks(sums.div_ceil(BLOCK / group), 1)).run(FILE, "sum_parts")
    }
}

/// Returns the view along these axes, at index 0 of all other axes.
fn only(layout: &Layout, axes: &[usize]) -> Layout {
    let others = (0..layout.shape().rank()).filter(|axis| !axes.contains(axis));
    let order: Vec<usize> = axes.iter().copied().chain(others).collect();
    let turned = layout.permute(&order);
    (axes.len()..order.len()).rev().fold(turned, |layout, axis| layout.select(axis, 0))
}
