//! Sums along axes.
//!
//! How a sum is cut into parts depends on sizes alone, so that it is the same every time and on every device.

use bytemuck::{Pod, Zeroable};
use highwater_kernels::gpu::launch::THREADS;
use highwater_kernels::{Arguments, Kernel};

use super::launch::{Place, Queue, blocks, check_float, nest_words, reading, types, writing};
use crate::backend::View;
use crate::backend::nest::Nest;
use crate::dtype::DType;
use crate::error::Result;
use crate::layout::Layout;

const FILE: &str = "reduce";
const BLOCK: u64 = THREADS as u64;
const WARP: u64 = 32;

/// Blocks that keep any device busy: more are not worth parts of sums.
const BLOCKS: u64 = 4096;
/// Numbers that a thread adds at least before further blocks are worth parts of sums.
const TERMS_A_THREAD: u64 = 16;

/// `struct Rows` in reduce.cu.
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

/// `struct Columns` in reduce.cu.
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
    let op = "sum";
    check_float(op, input.dtype)?;
    if input.layout.elements() == 0 {
        return Ok(());
    }
    let (shape, strides) = (input.layout.shape(), input.layout.strides());
    let (mut kept, summed): (Vec<usize>, Vec<usize>) =
        (0..shape.rank()).partition(|&axis| out.layout.strides()[axis] != 0 && shape[axis] != 1);
    kept.sort_by_key(|&axis| std::cmp::Reverse(out.layout.strides()[axis]));
    let nearest = (0..shape.rank()).filter(|&axis| shape[axis] != 1 && strides[axis] != 0);
    let nearest = nearest.min_by_key(|&axis| strides[axis]);
    let sum = Sum {
        queue: Queue::of(out.storage.device(), op)?,
        workspace: out.storage.device().workspace(),
        places: (reading(input, op)?, writing(out, op)?),
        layouts: [out.layout, input.layout],
        dtype: input.dtype,
        factors: Factors { scale, keep },
    };
    match nearest.and_then(|nearest| kept.iter().position(|&axis| axis == nearest)) {
        Some(place) => {
            let column = kept.remove(place);
            sum.over_columns(&kept, &summed, column)
        }
        None => sum.over_rows(&kept, &summed),
    }
}

/// A sum that is being given to the device.
struct Sum<'a> {
    queue: Queue<'a>,
    workspace: (u64, u64),
    /// Input and output.
    places: (Place<'a>, Place<'a>),
    /// Output and input.
    layouts: [&'a Layout; 2],
    dtype: DType,
    factors: Factors,
}

/// Of the sum, and of what is there: `struct Factors` in reduce.cu.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Factors {
    scale: f64,
    keep: f64,
}

impl Sum<'_> {
    /// What lies nearest in memory is summed.
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
        let blocks_a_part = sums.div_ceil(BLOCK / group);
        let useful =
            if is_large { (terms / (BLOCK * TERMS_A_THREAD)).min(rows * pieces / (group / across)) } else { 1 };
        let parts = self.parts(sums, blocks_a_part, useful);
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
        let arguments = self.begin(parts).with(shape).with_words(&nest_words(&kept_nest));
        let arguments = arguments.with_words(&nest_words(&outer)).with(self.factors);
        self.queue.launch(self.kernel("sum_rows"), blocks(blocks_a_part, parts), &arguments)?;
        self.add_parts(parts, sums, kept)
    }

    /// What lies nearest in memory is kept: axis `column`, which is not among `kept`.
    fn over_columns(&self, kept: &[usize], summed: &[usize], column: usize) -> Result<()> {
        let [out, input] = self.layouts;
        let times = Nest::new([&only(out, kept), &only(input, kept)]);
        let terms = Nest::new([&only(input, summed)]);
        let columns = input.shape()[column] as u64;
        let others = (0..input.shape().rank()).filter(|&axis| axis != column && input.shape()[axis] != 1);
        let are_wide = |mut strides: std::slice::Iter<'_, usize>| {
            self.places.0.is_wide() && strides.all(|&stride| (stride as u64).is_multiple_of(self.width()))
        };
        let strides: Vec<usize> = others.map(|axis| input.strides()[axis]).collect();
        let is_wide = input.strides()[column] == 1 && columns.is_multiple_of(self.width()) && are_wide(strides.iter());
        let width = if is_wide { self.width() } else { 1 };
        let (rows, takes) = (terms.elements() as u64, columns / width);
        let down = rows.div_ceil(8).next_power_of_two().min(8);
        let across = takes.next_power_of_two().min(BLOCK / down);
        let blocks_a_part = columns.div_ceil(across * width) * times.elements() as u64;
        let sums = columns * times.elements() as u64;
        let parts = self.parts(sums, blocks_a_part, rows / (BLOCK / across * TERMS_A_THREAD));
        let shape = Columns {
            columns,
            stride: input.strides()[column] as u64,
            out_stride: out.strides()[column] as u64,
            rows,
            times: times.elements() as u64,
            across,
        };
        let arguments = self.begin(parts).with(shape).with_words(&nest_words(&times));
        let arguments = arguments.with_words(&nest_words(&terms)).with(self.factors);
        let kernel = self.kernel(if is_wide { "sum_columns_wide" } else { "sum_columns" });
        self.queue.launch(kernel, blocks(blocks_a_part, parts), &arguments)?;
        self.add_parts(parts, sums, &[kept, &[column]].concat())
    }

    /// Elements that a thread takes at a time.
    fn width(&self) -> u64 {
        16 / self.dtype.size() as u64
    }

    fn kernel(&self, name: &'static str) -> Kernel {
        Kernel::new(FILE, name, types(self.dtype))
    }

    /// Into how many parts sums are cut: as many as there is use for, and room.
    fn parts(&self, sums: u64, blocks_a_part: u64, useful: u64) -> u64 {
        let real_bytes = if self.dtype == DType::F64 { 8 } else { 4 };
        (BLOCKS / blocks_a_part).min(useful).min(self.workspace.1 / (sums * real_bytes)).max(1)
    }

    /// The first arguments: output, where parts of sums go if there are several, input.
    fn begin(&self, parts: u64) -> Arguments {
        let workspace = if parts > 1 { self.workspace.0 } else { 0 };
        Arguments::new().with(self.places.1.address()).with(workspace).with(self.places.0.address())
    }

    /// Adds the parts to the output. `order` is the axes by which a part's sums are counted.
    fn add_parts(&self, parts: u64, sums: u64, order: &[usize]) -> Result<()> {
        if parts == 1 {
            return Ok(());
        }
        let out = only(self.layouts[0], order);
        let nest = Nest::new([&Layout::contiguous(*out.shape()), &out]);
        // Few sums are shared by many threads each.
        let group = match (1 << 14) / sums {
            256.. => BLOCK,
            share => share.next_power_of_two().clamp(1, WARP).min(parts.next_power_of_two()),
        };
        let arguments = Arguments::new()
            .with(self.places.1.address())
            .with(self.workspace.0)
            .with(parts)
            .with(sums)
            .with(group as u32)
            .with_words(&nest_words(&nest))
            .with(self.factors);
        self.queue.launch(self.kernel("sum_parts"), blocks(sums.div_ceil(BLOCK / group), 1), &arguments)
    }
}

/// The view along these axes at the first place of all others.
fn only(layout: &Layout, axes: &[usize]) -> Layout {
    let others = (0..layout.shape().rank()).filter(|axis| !axes.contains(axis));
    let order: Vec<usize> = axes.iter().copied().chain(others).collect();
    let turned = layout.permute(&order);
    (axes.len()..order.len()).rev().fold(turned, |layout, axis| layout.select(axis, 0))
}
