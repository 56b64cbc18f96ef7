//! Attention, softmax(query · keyᵀ) · value, by tiles of queries and keys, so that scores never leave registers.
//!
//! As in flash attention (Dao: "FlashAttention-2: Faster Attention with Better Parallelism and Work Partitioning",
//! 2023), but that backward computes the gradients of queries by a kernel of their own, where no two blocks add to one
//! number.

use bytemuck::{Pod, Zeroable};
use highwater_kernels::{Arguments, Grid, Kernel};

use super::attention_tiles::{MAX_WIDTH, Processors, Step, Tiles};
use super::launch::{Place, Queue, check_float, nest_words, reading, types, writing, writing_all};
use crate::backend::kind::Mask;
use crate::backend::nest::Nest;
use crate::backend::{AttentionSize, View};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::layout::Layout;

const OP: &str = "attention";
/// The file of kernels that sum.
const SUMS: &str = "attention_sums";
/// Threads of a block of attention.
const THREADS: u32 = 128;
/// The most blocks of a launch.
const MAX_BLOCKS: usize = i32::MAX as usize;
/// Kernels count heads and places in 32 bits, and go a tile beyond the last.
const MAX_PLACES: usize = 1 << 31;

/// Rows as kernels take them: `struct Rows` in attention.cuh.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Rows {
    address: u64,
    /// From one batch, head and place to the next, in elements.
    strides: [u64; 3],
}

impl Rows {
    fn new(address: u64, layout: &Layout) -> Self {
        Self { address, strides: std::array::from_fn(|axis| layout.strides()[axis] as u64) }
    }

    fn of(place: &Place<'_>, view: View<'_>) -> Self {
        Self::new(place.address(), view.layout)
    }
}

/// What backward reads: `struct Known` in attention_backward.cuh.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Known {
    /// The result's gradient, the logarithms of sums, deltas, query, key and value.
    rows: [Rows; 6],
}

/// What is to be computed: `struct Sight` in attention.cuh.
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
    /// For these queries and keys. `is_wide` says that all rows begin at multiples of 16 bytes and have as many.
    fn new(query: View<'_>, key: View<'_>, size: AttentionSize, is_wide: bool) -> Result<Self> {
        let (q, k) = (query.layout.shape(), key.layout.shape());
        if q[3] > MAX_WIDTH {
            return Err(Error::shape(OP, q, "on a CUDA device heads are at most 256 wide"));
        }
        if [q[1], q[2], k[2]].into_iter().any(|length| length > MAX_PLACES) {
            return Err(Error::shapes(OP, q, k, "on a CUDA device heads and lengths are at most 2³¹"));
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

    /// How many heads of queries there are in all, and how many of keys.
    fn heads(&self) -> [usize; 2] {
        let heads = self.batches as usize * self.heads as usize;
        [heads, heads / self.heads_a_key.max(1) as usize]
    }
}

/// Whether every row begins at a multiple of 16 bytes, and has as many.
fn is_wide(address: u64, view: View<'_>) -> bool {
    let (shape, strides) = (view.layout.shape(), view.layout.strides());
    let bytes = |elements: usize| (elements * view.dtype.size()) as u64;
    let distances = (0..3).filter(|&axis| shape[axis] > 1).map(|axis| bytes(strides[axis]));
    distances.chain([address, bytes(shape[3])]).all(|bytes| bytes.is_multiple_of(16))
}

/// Fails unless numbers of a row are contiguous.
fn check_rows(views: &[View<'_>]) {
    let is_row = |view: &View<'_>| view.layout.shape()[3] <= 1 || view.layout.strides()[3] == 1;
    assert!(views.iter().all(is_row), "numbers of a row lie one after another");
}

/// A step of attention, ready to be given to the stream.
struct Work {
    step: Step,
    tiles: Tiles,
    shares: usize,
}

impl Work {
    /// For `heads` heads of `rows` rows each.
    fn new(queue: &Queue<'_>, step: Step, dtype: DType, sight: &Sight, [heads, rows]: [usize; 2]) -> Result<Self> {
        let gpu = queue.gpu();
        let device = Processors { count: gpu.processors() as usize, shared_bytes: gpu.shared_bytes() };
        let width = sight.width as usize;
        let tiles = Tiles::new(step, [width, dtype.size()], [heads, rows], device).ok_or_else(|| {
            let what = "this GPU's blocks have too little shared memory for heads of doubles wider than 128: use f32";
            Error::shape(OP, &width, what)
        })?;
        Ok(Self { step, tiles, shares: heads * rows.div_ceil(tiles.rows) })
    }

    /// Gives it to the stream, with the arguments that its kernel takes before `sight`.
    fn start(&self, queue: &Queue<'_>, dtype: DType, sight: Sight, arguments: impl Fn() -> Arguments) -> Result<()> {
        let kernel = Kernel::new(self.tiles.file, self.step.kernel(), types(dtype));
        for first in (0..self.shares).step_by(MAX_BLOCKS) {
            let blocks = (self.shares - first).min(MAX_BLOCKS) as u32;
            let grid = Grid { blocks: [blocks, 1, 1], threads: [THREADS, 1, 1], shared_bytes: self.tiles.shared_bytes };
            let sight = Sight { first_share: first as u64, ..sight };
            queue.launch(kernel, grid, &arguments().with(sight))?;
        }
        Ok(())
    }
}

pub(crate) fn attention(out: View<'_>, statistics: View<'_>, inputs: [View<'_>; 3], size: AttentionSize) -> Result<()> {
    check_float(OP, out.dtype)?;
    let [query, key, value] = inputs;
    let rows = [out, query, key, value];
    check_rows(&rows);
    if out.layout.elements() == 0 {
        return Ok(());
    }
    let queue = Queue::of(out.storage.device(), OP)?;
    let [q, k, v] = [reading(query, OP)?, reading(key, OP)?, reading(value, OP)?];
    let (to, log_sums) = (writing(out, OP)?, writing(statistics, OP)?);
    let is_wide = [&to, &q, &k, &v].into_iter().zip(rows).all(|(place, view)| is_wide(place.address(), view));
    let sight = Sight::new(query, key, size, is_wide)?;
    let work = Work::new(&queue, Step::Forward, out.dtype, &sight, [sight.heads()[0], sight.places as usize])?;
    work.start(&queue, out.dtype, sight, || {
        let (to, log_sums) = (Rows::of(&to, out), Rows::of(&log_sums, statistics));
        Arguments::new()
            .with(to)
            .with(log_sums)
            .with(Rows::of(&q, query))
            .with(Rows::of(&k, key))
            .with(Rows::of(&v, value))
    })
}

pub(crate) fn attention_delta(out: View<'_>, grad: View<'_>, result: View<'_>) -> Result<()> {
    check_float(OP, grad.dtype)?;
    check_rows(&[grad, result]);
    let rows = out.layout.elements();
    if rows == 0 {
        return Ok(());
    }
    let queue = Queue::of(out.storage.device(), OP)?;
    let (left, right, to) = (reading(grad, OP)?, reading(result, OP)?, writing(out, OP)?);
    let width = grad.layout.shape()[3];
    let lanes = (width * grad.dtype.size()).div_ceil(16).next_power_of_two().clamp(1, 32);
    let is_wide = is_wide(left.address(), grad) && is_wide(right.address(), result);
    let first_columns = [grad, result].map(|view| view.layout.select(3, 0));
    let nest = Nest::new([out.layout, &first_columns[0], &first_columns[1]]);
    let arguments = Arguments::new()
        .with(to.address())
        .with(left.address())
        .with(right.address())
        .with(rows as u64)
        .with(width as u64)
        .with(u32::from(is_wide))
        .with(lanes as u32)
        .with_words(&nest_words(&nest));
    let grid = queue.over(rows * lanes, 1);
    queue.launch(Kernel::new(SUMS, "attention_delta", types(grad.dtype)), grid, &arguments)
}

pub(crate) fn attention_backward(
    query_grad: View<'_>,
    other_grads: [View<'_>; 2],
    known: [View<'_>; 3],
    inputs: [View<'_>; 3],
    size: AttentionSize,
) -> Result<()> {
    let dtype = query_grad.dtype;
    check_float(OP, dtype)?;
    let outs = [query_grad, other_grads[0], other_grads[1]];
    let [query, key, value] = inputs;
    if inputs.iter().any(|input| input.layout.elements() == 0) {
        return outs.into_iter().try_for_each(|out| super::elementwise::fill(out, 0.0));
    }
    let queue = Queue::of(query_grad.storage.device(), OP)?;
    let views = [known[0], known[1], known[2], query, key, value];
    let mut places = Vec::with_capacity(views.len());
    for view in views {
        places.push(reading(view, OP)?);
    }
    let (_lent, addresses) = writing_all(outs, OP)?;
    let rows = [known[0], query, key, value];
    check_rows(&outs);
    check_rows(&rows);
    let read = [&places[0], &places[3], &places[4], &places[5]].map(Place::address);
    let is_wide = addresses.into_iter().zip(outs).chain(read.into_iter().zip(rows)).all(|(at, view)| is_wide(at, view));
    let sight = Sight::new(query, key, size, is_wide)?;
    let known = Known { rows: std::array::from_fn(|index| Rows::of(&places[index], views[index])) };
    let [query_grad, key_grad, value_grad] =
        std::array::from_fn(|index| Rows::new(addresses[index], outs[index].layout));

    let [heads, key_heads] = sight.heads();
    let mut work = Work::new(&queue, Step::KeyGradients, dtype, &sight, [key_heads, sight.keys as usize])?;
    let sums = 2 * outs[1].layout.elements();
    let parts = parts(&queue, &sight, work.shares, sums * dtype.statistics().size());
    work.shares *= parts;
    let sight = Sight { parts: parts as u32, ..sight };
    let grads = || Arguments::new().with(key_grad).with(value_grad).with(queue.workspace().0);
    work.start(&queue, dtype, sight, || grads().with(known))?;
    if parts > 1 {
        let kernel = Kernel::new(SUMS, "attention_add_parts", types(dtype));
        queue.launch(kernel, queue.over(sums, 1), &grads().with(sight))?;
    }
    let work = Work::new(&queue, Step::QueryGradients, dtype, &sight, [heads, sight.places as usize])?;
    work.start(&queue, dtype, sight, || Arguments::new().with(query_grad).with(known))
}

/// Among how many blocks the heads of queries are divided that look at one tile of keys: where one head of keys serves
/// many, there would be too few blocks else. What each has, of so many bytes, waits in the workspace to be added up.
fn parts(queue: &Queue<'_>, sight: &Sight, blocks: usize, bytes: usize) -> usize {
    let room = queue.workspace().1 as usize / bytes.max(1);
    let wanted = 2 * queue.gpu().processors() as usize / blocks.max(1);
    wanted.min(room).min(sight.heads_a_key as usize).max(1)
}
