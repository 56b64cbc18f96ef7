//! Attention, softmax(query · keyᵀ) · value, in tiles of queries and keys, so that scores never leave registers.
//!
//! The algorithm is flash attention (Dao: "FlashAttention-2: Faster Attention with Better Parallelism and Work
//! Partitioning", 2023), except that backward computes the gradients of queries in a separate kernel, where no two
//! blocks add to the same number.

use bytemuck::{Pod, Zeroable};
use highwater_kernels::Grid;

use super::attention_tiles::{MAX_WIDTH, Processors, Step, Tiles};
use super::launch::{Launch, Queue, nest_words};
use crate::backend::kind::Mask;
use crate::backend::{AttentionSize, Nest, View};
use crate::{DType, Error, Result};

const OP: &str = "attention";
const SUMS: &str = "attention_sums";
const THREADS: u32 = 128;
const MAX_BLOCKS: usize = i32::MAX as usize;
/// Maximum number of heads and positions. Kernels count them in 32 bits, and go up to a tile beyond the last.
const MAX_PLACES: usize = 1 << 31;

/// The rows of a tensor as a kernel argument, `struct Rows` in attention.cuh.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Rows {
    address: u64,
    /// Strides of batches, heads and positions, in elements.
    strides: [u64; 3],
}

impl Rows {
    fn new(address: u64, view: View<'_>) -> Self {
        Self { address, strides: std::array::from_fn(|axis| view.layout.strides()[axis] as u64) }
    }

    fn read<'a>(launch: &mut Launch<'a>, view: View<'a>) -> Result<Self> {
        Ok(Self::new(launch.lend(view)?, view))
    }

    fn write<'a>(launch: &mut Launch<'a>, view: View<'a>) -> Result<Self> {
        Ok(Self::new(launch.lend_to_write(view)?, view))
    }

    /// Returns whether the address and the size in bytes of every row of this view are multiples of 16.
    fn is_wide(&self, view: View<'_>) -> bool {
        let (shape, strides) = (view.layout.shape(), view.layout.strides());
        let bytes = |elements: usize| (elements * view.dtype.size()) as u64;
        let distances = (0..3).filter(|&axis| shape[axis] > 1).map(|axis| bytes(strides[axis]));
        distances.chain([self.address, bytes(shape[3])]).all(|bytes| bytes.is_multiple_of(16))
    }
}

/// The inputs of backward, `struct Known` in attention_backward.cuh.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Known {
    /// The result's gradient, the log-sum-exps, deltas, query, key and value.
    rows: [Rows; 6],
}

/// The sizes and settings of attention, `struct Sight` in attention.cuh.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Sight {
    batches: u64,
    heads: u32,
    heads_a_key: u32,
    places: u32,
    keys: u32,
    width: u32,
    is_causal: u32,
    is_wide: u32,
    parts: u32,
    first_share: u64,
    scale: f64,
}

impl Sight {
    /// `is_wide` states that the addresses and sizes in bytes of all rows are multiples of 16.
    fn new(query: View<'_>, key: View<'_>, size: AttentionSize, is_wide: bool) -> Result<Self> {
        let (q, k) = (query.layout.shape(), key.layout.shape());
        if q[3] > MAX_WIDTH {
            return Err(Error::shape(OP, q, "CUDA attention supports head sizes of at most 256"));
        }
        if [q[1], q[2], k[2]].into_iter().any(|length| length > MAX_PLACES) {
            return Err(Error::shapes(OP, q, k, "CUDA attention supports at most 2³¹ heads and sequence positions"));
        }
        Ok(Self {
            batches: q[0] as u64,
            heads: q[1] as u32,
            heads_a_key: (q[1] / k[1].max(1)) as u32,
            places: q[2] as u32,
            keys: k[2] as u32,
            width: q[3] as u32,
            is_causal: u32::from(size.mask == Mask::Causal),
            is_wide: u32::from(is_wide),
            parts: 1,
            first_share: 0,
            scale: size.scale,
        })
    }

    /// Returns the numbers of query heads and of key heads in the whole batch.
    fn heads(&self) -> [usize; 2] {
        let heads = self.batches as usize * self.heads as usize;
        [heads, heads / self.heads_a_key.max(1) as usize]
    }
}

/// Panics unless the elements of a row are contiguous.
fn check_rows(views: &[View<'_>]) {
    let is_row = |view: &View<'_>| view.layout.shape()[3] <= 1 || view.layout.strides()[3] == 1;
    assert!(views.iter().all(is_row), "the elements of a row are not contiguous");
}

struct Work {
    step: Step,
    tiles: Tiles,
    shares: usize,
}

impl Work {
    fn new(queue: &Queue<'_>, step: Step, dtype: DType, sight: &Sight, [heads, rows]: [usize; 2]) -> Result<Self> {
        let gpu = queue.gpu();
        let device = Processors { count: gpu.processors() as usize, shared_bytes: gpu.shared_bytes() };
        let width = sight.width as usize;
        let tiles = Tiles::new(step, [width, dtype.size()], [heads, rows], device).ok_or_else(|| {
            let what = "f64 heads wider than 128 need more shared memory per thread block than this GPU has: use f32";
            Error::shape(OP, &width, what)
        })?;
        Ok(Self { step, tiles, shares: heads * rows.div_ceil(tiles.rows) })
    }

    /// Submits the step to the stream. `launch` returns a launch with the arguments of its kernel before `sight`.
    fn start<'a>(&self, sight: Sight, launch: impl Fn() -> Result<Launch<'a>>) -> Result<()> {
        for first in (0..self.shares).step_by(MAX_BLOCKS) {
            let blocks = (self.shares - first).min(MAX_BLOCKS) as u32;
            let grid = Grid { blocks: [blocks, 1, 1], threads: [THREADS, 1, 1], shared_bytes: self.tiles.shared_bytes };
            let sight = Sight { first_share: first as u64, ..sight };
            launch()?.with(sight).grid(grid).run(self.tiles.file, self.step.kernel())?;
        }
        Ok(())
    }
}

pub(crate) fn attention(out: View<'_>, statistics: View<'_>, inputs: [View<'_>; 3], size: AttentionSize) -> Result<()> {
    let [query, key, value] = inputs;
    let views = [out, query, key, value];
    check_rows(&views);
    let mut launch = Launch::of_floats(OP, out)?;
    if out.layout.elements() == 0 {
        return Ok(());
    }
    let (to, log_sums) = (Rows::write(&mut launch, out)?, Rows::write(&mut launch, statistics)?);
    let [q, k, v] = [query, key, value].map(|view| Rows::read(&mut launch, view));
    let (q, k, v, queue) = (q?, k?, v?, launch.queue);
    let is_wide = [to, q, k, v].iter().zip(views).all(|(rows, view)| rows.is_wide(view));
    let sight = Sight::new(query, key, size, is_wide)?;
    let work = Work::new(&queue, Step::Forward, out.dtype, &sight, [sight.heads()[0], sight.places as usize])?;
    work.start(sight, || Ok(Launch::new(OP, out)?.with(to).with(log_sums).with(q).with(k).with(v)))
}

pub(crate) fn attention_delta(out: View<'_>, grad: View<'_>, result: View<'_>) -> Result<()> {
    check_rows(&[grad, result]);
    let mut launch = Launch::of_floats(OP, grad)?.write(out)?;
    let rows = out.layout.elements();
    if rows == 0 {
        return Ok(());
    }
    let (left, right) = (Rows::read(&mut launch, grad)?, Rows::read(&mut launch, result)?);
    let is_wide = left.is_wide(grad) && right.is_wide(result);
    let width = grad.layout.shape()[3];
    let lanes = (width * grad.dtype.size()).div_ceil(16).next_power_of_two().clamp(1, 32);
    let first_columns = [grad, result].map(|view| view.layout.select(3, 0));
    let nest = Nest::new([out.layout, &first_columns[0], &first_columns[1]]);
    let launch = launch.with(left.address).with(right.address).with(rows as u64).with(width as u64);
    let launch = launch.with(u32::from(is_wide)).with(lanes as u32).words(&nest_words(&nest));
    launch.over(rows * lanes, 1).run(SUMS, "attention_delta")
}

pub(crate) fn attention_backward(
    query_grad: View<'_>,
    other_grads: [View<'_>; 2],
    known: [View<'_>; 3],
    inputs: [View<'_>; 3],
    size: AttentionSize,
) -> Result<()> {
    let dtype = query_grad.dtype;
    let outs = [query_grad, other_grads[0], other_grads[1]];
    let [query, key, value] = inputs;
    let mut launch = Launch::of_floats(OP, query_grad)?;
    if inputs.iter().any(|input| input.layout.elements() == 0) {
        return outs.into_iter().try_for_each(|out| super::elementwise::fill(out, 0.0));
    }
    let queue = launch.queue;
    let read = [known[0], known[1], known[2], query, key, value];
    let rows = [known[0], query, key, value];
    check_rows(&outs);
    check_rows(&rows);
    let mut is_wide = true;
    let mut known = Known::zeroed();
    for (place, (rows, view)) in known.rows.iter_mut().zip(read).enumerate() {
        *rows = Rows::read(&mut launch, view)?;
        // Logarithms of sums and deltas are read one by one.
        is_wide &= [1, 2].contains(&place) || rows.is_wide(view);
    }
    let mut grads = [Rows::zeroed(); 3];
    for (rows, view) in grads.iter_mut().zip(outs) {
        *rows = Rows::write(&mut launch, view)?;
        is_wide &= rows.is_wide(view);
    }
    let sight = Sight::new(query, key, size, is_wide)?;

    let [heads, key_heads] = sight.heads();
    let mut work = Work::new(&queue, Step::KeyGradients, dtype, &sight, [key_heads, sight.keys as usize])?;
    let sums = 2 * outs[1].layout.elements();
    let parts = parts(&queue, &sight, work.shares, sums * dtype.statistics().size());
    work.shares *= parts;
    let sight = Sight { parts: parts as u32, ..sight };
    let launch = || Launch::new(OP, query_grad);
    let key_grads = || Ok::<_, Error>(launch()?.with(grads[1]).with(grads[2]).with(queue.workspace().0));
    work.start(sight, || Ok(key_grads()?.with(known)))?;
    if parts > 1 {
        key_grads()?.with(sight).over(sums, 1).run(SUMS, "attention_add_parts")?;
    }
    let work = Work::new(&queue, Step::QueryGradients, dtype, &sight, [heads, sight.places as usize])?;
    work.start(sight, || Ok(launch()?.with(grads[0]).with(known)))
}

/// Returns the number of parts into which the query heads of each key head are divided. If many query heads share a key
/// head, there would otherwise be too few blocks. Each of several parts writes its gradients of all keys and values,
/// which take `bytes` bytes, to the workspace, where they are added up.
fn parts(queue: &Queue<'_>, sight: &Sight, blocks: usize, bytes: usize) -> usize {
    let room = queue.workspace().1 as usize / bytes.max(1);
    let wanted = 2 * queue.gpu().processors() as usize / blocks.max(1);
    wanted.min(room).min(sight.heads_a_key as usize).max(1)
}
