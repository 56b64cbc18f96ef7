//! Draws every live block as a band in a stack over time, for the visible window.
//!
//! The usual layout stores each block's offset after every free below it, which costs frees × live blocks. Here no
//! layout is stored. A column's moment and total come from the pyramid of [`Series`], and the blocks that differ from
//! the previous column come from the pyramid of [`LiveIndex`]. The live blocks are kept in stacks with sums per chunk,
//! in which the block at a pixel's centre is searched. The time depends on the number of pixels and, at worst, on the
//! blocks live at the columns' moments, but not on the number of events in the window. The result is exact at every
//! zoom level.

mod window;
mod lines;
mod block_stack;
mod walker;

use std::ops::Range;

use rayon::prelude::*;

pub use lines::column_totals;
pub use window::{Across, BandWindow};

use highwater_snapshots::format::Extreme;
use highwater_snapshots::ids::{BlockId, DeviceId, EventId};
use highwater_snapshots::trace::Trace;
use highwater_snapshots::yielding::{tick, yield_if_due};

use super::live::LiveIndex;
use super::series::Series;
use crate::metric::Metric;
use walker::Walker;

/// The rank of blocks that are hidden.
const HIDDEN: u8 = u8::MAX;
/// Minimum number of columns for which a separate starting state is computed.
const MIN_COLUMNS: usize = 32;

/// The stacking order of a device's blocks: by rank, and in allocation order within a rank.
#[derive(Clone, Debug)]
pub struct Bands {
    device: DeviceId,
    /// The rank of each block of the trace; empty if all ranks are equal.
    ranks: Vec<u8>,
    rank_count: usize,
}

/// A drawing: the block at each pixel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Raster {
    /// The block at each pixel's centre, by column, each from the bottom up; [`BlockId::NONE`] above the total.
    pub blocks: Vec<BlockId>,
    /// Pixels per column.
    pub height: usize,
    /// The columns, from left to right.
    pub columns: Vec<Column>,
    /// The cost of drawing the image.
    pub cost: Cost,
}

/// A column of a drawing. Shows the moment in the column at which the total is largest, so that every peak is visible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// Number of events before the moment.
    pub moment: usize,
    /// The total at the moment shown, in bytes.
    pub bytes: u64,
}

impl Column {
    /// The last event before this state; `None` for the baseline.
    pub fn event(&self) -> Option<EventId> {
        self.moment.checked_sub(1).map(EventId::from_index)
    }
}

/// The cost of a drawing, as numbers of operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Number of events that were applied individually to find the columns' moments.
    pub events: u64,
    /// Number of blocks added to a stack.
    pub blocks: u64,
    /// Number of other values visited, such as ends of blocks and sums of chunks.
    pub visits: u64,
}

impl std::ops::AddAssign for Cost {
    fn add_assign(&mut self, other: Self) {
        self.events += other.events;
        self.blocks += other.blocks;
        self.visits += other.visits;
    }
}

/// The whole stack at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stack {
    /// Number of events before the moment.
    pub moment: usize,
    /// The blocks from bottom to top, each with its range of bytes; empty blocks are omitted.
    pub bands: Vec<(BlockId, Range<u64>)>,
}

impl Stack {
    /// The sum of all bands.
    pub fn total(&self) -> u64 {
        self.bands.last().map_or(0, |(_, bytes)| bytes.end)
    }
}

impl Raster {
    /// The pixels of column `x`, from the bottom up; empty if the column does not exist.
    pub fn column(&self, x: usize) -> &[BlockId] {
        self.blocks.get(x * self.height..(x + 1) * self.height).unwrap_or_default()
    }

    /// Returns the block at pixel `y` from the bottom of column `x`; `None` if there is none.
    pub fn block_at(&self, x: usize, y: usize) -> Option<BlockId> {
        self.column(x).get(y).copied().filter(|block| block.is_some())
    }
}

impl Bands {
    /// Stacks the blocks of `device` in block order: baseline at the bottom, then by allocation.
    pub fn in_block_order(_trace: &Trace, device: DeviceId) -> Self {
        Self { device, ranks: Vec::new(), rank_count: 1 }
    }

    /// Stacks the blocks of `device` by their rank from `rank_of`, which must be below 255, and in allocation order
    /// within a rank.
    pub fn grouped(trace: &Trace, device: DeviceId, rank_of: impl Fn(BlockId) -> u8 + Sync) -> Self {
        let rows = 0..trace.blocks.len();
        let ranks: Vec<u8> =
            rows.into_par_iter().with_min_len(1 << 14).map(|row| rank_of(BlockId(row as u32))).collect();
        let rank_count = ranks.par_iter().with_min_len(1 << 16).max().map_or(1, |most| usize::from(*most) + 1);
        Self { device, ranks, rank_count }
    }

    /// Draws only the blocks for which `is_shown` is true, without gaps for the others.
    pub fn showing(mut self, trace: &Trace, is_shown: impl Fn(BlockId) -> bool + Sync) -> Self {
        self.ranks.resize(trace.blocks.len(), 0);
        let ranks = self.ranks.par_iter_mut().with_min_len(1 << 14).enumerate();
        ranks.filter(|(row, _)| !is_shown(BlockId(*row as u32))).for_each(|(_, rank)| *rank = HIDDEN);
        self
    }

    /// The device whose blocks are drawn.
    pub fn device(&self) -> DeviceId {
        self.device
    }

    /// Draws `window`: in each column the moment with the largest total, in each pixel the block at its centre. `live`
    /// and `series` must be built from the same trace and device.
    pub fn raster(&self, trace: &Trace, live: &LiveIndex, series: &Series, window: &BandWindow) -> Raster {
        let (width, height) = (window.width, window.height);
        let mut blocks = vec![BlockId::NONE; width * height];
        let bytes_at: Vec<u64> = (0..height).map(|y| window.byte_at(y)).collect();
        let run = run_of(width);
        // Each run of columns starts from the index of live blocks and continues independently.
        let painted = blocks.par_chunks_mut((run * height).max(1)).enumerate().map(|(index, pixels)| {
            let mut walker = Walker::new(self, trace, live, window.metric);
            let columns = columns_of(trace, series, window, index * run..((index + 1) * run).min(width));
            for (x, column) in columns.0.iter().enumerate() {
                yield_if_due();
                let start = x * height;
                if x > 0 && columns.0.get(x - 1) == Some(column) {
                    pixels.copy_within(start - height..start, start);
                } else {
                    walker.go_to(column.moment);
                    let (former, rest) = pixels.split_at_mut(start);
                    let former = (x > 0).then(|| &former[start - height..]);
                    walker.paint(&bytes_at, former, &mut rest[..height]);
                }
            }
            (columns.0, Cost { events: columns.1, ..walker.cost() })
        });
        let painted: Vec<(Vec<Column>, Cost)> = painted.collect();
        let mut raster = Raster { blocks, height, columns: Vec::with_capacity(width), cost: Cost::default() };
        for (columns, cost) in painted {
            raster.columns.extend(columns);
            raster.cost += cost;
        }
        raster
    }

    /// The whole stack at `moment`.
    pub fn stack(&self, trace: &Trace, live: &LiveIndex, metric: Metric, moment: usize) -> Stack {
        let metric = of_blocks(metric);
        let mut blocks = live.before_position(trace, metric, moment);
        if !self.ranks.is_empty() {
            blocks.retain(|block| self.rank(*block) != HIDDEN);
            blocks.sort_by_key(|block| self.rank(*block));
        }
        let mut end = 0;
        let bands = blocks.into_iter().map(|id| {
            let start = end;
            end += trace.blocks.sizes(metric)[id.0 as usize];
            (id, start..end)
        });
        Stack { moment, bands: bands.filter(|(_, bytes)| !bytes.is_empty()).collect() }
    }

    /// Returns the range of bytes that `block` covers in each of `columns`; `None` where the block is not live,
    /// and everywhere if it is hidden.
    pub fn outline(
        &self,
        trace: &Trace,
        live: &LiveIndex,
        metric: Metric,
        columns: &[Column],
        block: BlockId,
    ) -> Vec<Option<Range<u64>>> {
        let is_there = |row: &usize| *row < trace.blocks.len() && self.rank(block) != HIDDEN;
        let Some(row) = block.index().filter(is_there) else {
            return vec![None; columns.len()];
        };
        let metric = of_blocks(metric);
        let bytes = trace.blocks.sizes(metric)[row];
        let facts = trace.blocks.get(block);
        let end = if metric == Metric::Active { facts.free_completed } else { facts.free_requested };
        let is_past = |event: EventId, moment: usize| event.index().is_some_and(|index| index < moment);
        let is_alive = |moment: usize| (facts.is_baseline() || is_past(facts.alloc, moment)) && !is_past(end, moment);
        let mut outline = vec![None; columns.len()];
        let run = run_of(columns.len());
        outline.par_chunks_mut(run).zip(columns.par_chunks(run)).for_each(|(outline, columns)| {
            let mut walker = Walker::new(self, trace, live, metric).below(block);
            for (range, column) in outline.iter_mut().zip(columns).filter(|(_, column)| is_alive(column.moment)) {
                walker.go_to(column.moment);
                *range = Some(walker.bytes()..walker.bytes() + bytes);
            }
        });
        outline
    }

    /// Returns the pixels of `block` in each column of `raster`, counted from the bottom; `None` in columns without a
    /// pixel of the block. `raster` must have been drawn with the stacking order of `self`, which allows a binary
    /// search.
    pub fn pixels_of(&self, raster: &Raster, block: BlockId) -> Vec<Option<Range<usize>>> {
        let key = self.key(block);
        let of_column = |x: usize| {
            let column = raster.column(x);
            let first = column.partition_point(|other| other.is_some() && self.key(*other) < key);
            let count = column[first..].partition_point(|other| *other == block);
            (count > 0).then(|| first..first + count)
        };
        (0..raster.columns.len()).map(of_column).collect()
    }

    #[inline]
    fn rank(&self, block: BlockId) -> u8 {
        self.ranks.get(block.0 as usize).copied().unwrap_or(0)
    }

    #[inline]
    fn key(&self, block: BlockId) -> (u8, BlockId) {
        (self.rank(block), block)
    }

    fn rank_count(&self) -> usize {
        self.rank_count
    }
}

/// Number of columns per task.
fn run_of(width: usize) -> usize {
    width.div_ceil(rayon::current_num_threads()).max(MIN_COLUMNS)
}

/// The metric that determines the height of blocks if `metric` is shown.
fn of_blocks(metric: Metric) -> Metric {
    if metric.is_of_blocks() { metric } else { Metric::Active }
}

/// Returns the moment with the largest total in each column of `run` (the first in a tie), and the number of events
/// replayed to find these moments.
fn columns_of(trace: &Trace, series: &Series, window: &BandWindow, run: Range<usize>) -> (Vec<Column>, u64) {
    let metric = of_blocks(window.metric);
    let mut walk = series.walk(trace);
    let column_of = |x: usize| {
        tick();
        let Extreme { bytes, after: moment } = walk.largest(metric, window.moments(trace, x));
        Column { moment, bytes }
    };
    let columns = run.map(column_of).collect();
    (columns, walk.events())
}
