//! Bands: every live block as a band in a stack over time, laid out for what is on screen.
//!
//! The usual layout keeps for each block the offset it had after every free below it, which costs frees × live blocks.
//! Here nothing is kept but a tree of sums over the blocks in stacking order: an event changes it in O(log blocks), and
//! the block at any offset is found by descent. A picture costs the events that it spans and its pixels.

mod tree;
mod window;
mod lines;

use std::ops::Range;

use rayon::prelude::*;

pub use lines::column_totals;
pub use tree::{Slot, SumTree};
pub use window::{Across, Window};

use crate::ids::{BlockId, DeviceId, EventId};
use crate::trace::Trace;

use super::live::LiveIndex;
use super::metric::Metric;
use super::replay::{Effect, effects};
use super::series::Series;

/// Fewest columns that are worth a starting state of their own.
const MIN_COLUMNS: usize = 32;
/// So many events are always walked one by one, however few blocks are alive.
const LONG_WAY: usize = 16_384;

/// The blocks of one device in stacking order.
#[derive(Clone, Debug)]
pub struct Bands {
    device: DeviceId,
    /// Blocks from the bottom of the stack up.
    order: Vec<BlockId>,
    /// The position in `order` of each block of the trace.
    slot_of: Vec<u32>,
}

/// A picture as the block under each pixel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Raster {
    /// The block at each pixel's centre, column by column, each from the bottom up; none above the total.
    pub blocks: Vec<BlockId>,
    /// Pixels in a column.
    pub height: usize,
    /// The columns, from left to right.
    pub columns: Vec<Column>,
    /// What it took.
    pub cost: Cost,
}

/// A column of a picture: the moment among those it spans at which the total is largest, so that no peak is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// Events that have happened by then.
    pub moment: usize,
    /// The exact total then, in bytes.
    pub bytes: u64,
}

impl Column {
    /// The event after which this is the state; none for the baseline.
    pub fn event(&self) -> Option<EventId> {
        self.moment.checked_sub(1).map(EventId::from_index)
    }
}

/// What a picture took, in operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Events applied one by one.
    pub events: u64,
    /// Blocks put in at once where a state was taken from the index of live blocks.
    pub blocks: u64,
    /// Sums of the tree read or written.
    pub visits: u64,
}

/// The whole stack at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stack {
    /// Events that have happened by then.
    pub moment: usize,
    /// Blocks from the bottom up, each with the bytes it covers; blocks of no bytes are left out.
    pub bands: Vec<(BlockId, Range<u64>)>,
}

impl Stack {
    /// The block that covers byte `offset`, and the bytes that it covers; `None` from the total on.
    pub fn band_at(&self, offset: u64) -> Option<&(BlockId, Range<u64>)> {
        let after = self.bands.partition_point(|(_, bytes)| bytes.end <= offset);
        self.bands.get(after)
    }

    /// The sum of all bands.
    pub fn total(&self) -> u64 {
        self.bands.last().map_or(0, |(_, bytes)| bytes.end)
    }
}

impl Bands {
    /// Stacks the blocks of `device` in block order: baseline at the bottom, then as they were allocated.
    pub fn in_block_order(trace: &Trace, device: DeviceId) -> Self {
        Self::grouped(trace, device, |_| 0)
    }

    /// Stacks the blocks of `device` by the rank that `rank_of` gives them, and in block order within a rank.
    pub fn grouped(trace: &Trace, device: DeviceId, rank_of: impl Fn(BlockId) -> u32) -> Self {
        let is_ours = |id: &BlockId| trace.blocks.device[id.0 as usize] == device;
        let mut order: Vec<BlockId> = trace.blocks.ids().filter(is_ours).collect();
        order.sort_by_cached_key(|&id| (rank_of(id), id));
        let mut slot_of = vec![u32::MAX; trace.blocks.len()];
        for (slot, id) in order.iter().enumerate() {
            slot_of[id.0 as usize] = slot as u32;
        }
        Self { device, order, slot_of }
    }

    /// The device.
    pub fn device(&self) -> DeviceId {
        self.device
    }

    /// The picture of `window`: for each column the moment with the largest total, for each pixel the block at its
    /// centre. `live` and `series` are those of the same trace and device.
    pub fn raster(&self, trace: &Trace, live: &LiveIndex, series: &Series, window: &Window) -> Raster {
        let (width, height) = (window.width, window.height);
        let mut blocks = vec![BlockId::NONE; width * height];
        let runs = 2 * rayon::current_num_threads();
        let run = width.div_ceil(runs).max(MIN_COLUMNS);
        // Each run of columns starts from the index of live blocks and walks on alone.
        let painted = blocks.par_chunks_mut((run * height).max(1)).enumerate().map(|(index, pixels)| {
            let first = index * run;
            self.paint_run(trace, live, series, window, (first, pixels))
        });
        let painted: Vec<(Vec<Column>, Cost)> = painted.collect();
        let mut raster = Raster { blocks, height, columns: Vec::with_capacity(width), cost: Cost::default() };
        for (columns, cost) in painted {
            raster.columns.extend(columns);
            raster.cost.events += cost.events;
            raster.cost.blocks += cost.blocks;
            raster.cost.visits += cost.visits;
        }
        raster
    }

    /// Paints the columns from `first` on into `pixels`, from left to right.
    fn paint_run(
        &self,
        trace: &Trace,
        live: &LiveIndex,
        series: &Series,
        window: &Window,
        (first, pixels): (usize, &mut [BlockId]),
    ) -> (Vec<Column>, Cost) {
        let height = window.height.max(1);
        let mut walker = Walker::new(self, trace, live, window.metric);
        let mut columns: Vec<Column> = Vec::with_capacity(pixels.len() / height);
        for start in (0..pixels.len()).step_by(height) {
            let column = column_of(trace, series, window, first + columns.len());
            if columns.last() == Some(&column) {
                pixels.copy_within(start - height..start, start);
            } else {
                walker.go_to(column.moment);
                walker.paint(window, &mut pixels[start..start + height]);
            }
            columns.push(column);
        }
        (columns, walker.cost())
    }

    /// The whole stack at `moment`.
    pub fn stack(&self, trace: &Trace, live: &LiveIndex, metric: Metric, moment: usize) -> Stack {
        let metric = of_blocks(metric);
        let mut slots: Vec<u32> = live.before_position(trace, metric, moment).iter().map(|id| self.slot(*id)).collect();
        slots.sort_unstable();
        let mut end = 0;
        let bands = slots.iter().map(|&slot| {
            let id = self.order[slot as usize];
            let start = end;
            end += size_of(trace, metric, id.0 as usize);
            (id, start..end)
        });
        Stack { moment, bands: bands.filter(|(_, bytes)| !bytes.is_empty()).collect() }
    }

    /// The bytes that `block` covers in each of `columns`; `None` where it is not alive.
    pub fn outline(
        &self,
        trace: &Trace,
        live: &LiveIndex,
        metric: Metric,
        columns: &[Column],
        block: BlockId,
    ) -> Vec<Option<Range<u64>>> {
        let slot = self.slot(block) as usize;
        let mut walker = Walker::new(self, trace, live, metric);
        let is_alive = |moment: usize| {
            let row = trace.blocks.get(block);
            let end = if walker.metric == Metric::Active { row.free_completed } else { row.free_requested };
            let is_past = |event: EventId| event.index().is_some_and(|index| index < moment);
            (row.is_baseline() || is_past(row.alloc)) && !is_past(end)
        };
        let alive: Vec<bool> = columns.iter().map(|column| is_alive(column.moment)).collect();
        let ranges = columns.iter().zip(alive).map(|(column, is_alive)| {
            is_alive.then(|| {
                walker.go_to(column.moment);
                walker.tree.bytes_of(slot)
            })
        });
        ranges.collect()
    }

    fn slot(&self, id: BlockId) -> u32 {
        self.slot_of[id.0 as usize]
    }
}

/// The metric whose sum over blocks stands for `metric`.
fn of_blocks(metric: Metric) -> Metric {
    if metric.is_of_blocks() { metric } else { Metric::Active }
}

fn size_of(trace: &Trace, metric: Metric, row: usize) -> u64 {
    if metric == Metric::Requested { trace.blocks.requested[row] } else { trace.blocks.allocated[row] }
}

/// The moment with the largest total among those of column `x`; the first of several.
fn column_of(trace: &Trace, series: &Series, window: &Window, x: usize) -> Column {
    let metric = of_blocks(window.metric);
    let moments = window.moments(trace, x);
    let after_events = moments.start.saturating_sub(1)..moments.end.saturating_sub(1);
    let largest = series.largest(trace, metric, after_events);
    let largest = largest.map(|(bytes, event)| Column { moment: event.0 as usize + 1, bytes });
    let baseline = series.baseline().get(metric);
    match largest {
        Some(column) if moments.start > 0 || column.bytes > baseline => column,
        _ => Column { moment: 0, bytes: baseline },
    }
}

/// Carries the tree from moment to moment.
struct Walker<'a> {
    bands: &'a Bands,
    trace: &'a Trace,
    live: &'a LiveIndex,
    metric: Metric,
    tree: SumTree,
    /// The moment that the tree holds; none before the first.
    moment: Option<usize>,
    /// Blocks alive when the tree was last made.
    started_with: usize,
    cost: Cost,
}

impl<'a> Walker<'a> {
    fn new(bands: &'a Bands, trace: &'a Trace, live: &'a LiveIndex, metric: Metric) -> Self {
        let tree = SumTree::new(0);
        let metric = of_blocks(metric);
        Self { bands, trace, live, metric, tree, moment: None, started_with: 0, cost: Cost::default() }
    }

    fn cost(&self) -> Cost {
        Cost { visits: self.cost.visits + self.tree.visits(), ..self.cost }
    }

    /// Brings the tree to `moment`: forward by single events, or anew from the index of live blocks where that is
    /// the shorter way. Starting anew costs a checkpoint's blocks, the events since it (about as many again, or some
    /// thousands) and a place in the tree for each live block: it pays off only where more events lie between.
    fn go_to(&mut self, moment: usize) {
        match self.moment {
            Some(now) if now <= moment && moment - now <= LONG_WAY.max(4 * self.started_with) => {
                for index in now..moment {
                    self.step(index);
                }
                self.cost.events += (moment - now) as u64;
            }
            _ => self.start_at(moment),
        }
        self.moment = Some(moment);
    }

    fn start_at(&mut self, moment: usize) {
        self.cost.visits += self.tree.visits();
        self.tree = SumTree::new(self.bands.order.len());
        let blocks = self.live.before_position(self.trace, self.metric, moment);
        for id in &blocks {
            self.tree.add(self.bands.slot(*id) as usize, size_of(self.trace, self.metric, id.0 as usize));
        }
        self.cost.blocks += blocks.len() as u64;
        self.started_with = blocks.len();
    }

    fn step(&mut self, index: usize) {
        if self.trace.events.device[index] != self.bands.device {
            return;
        }
        let (trace, metric, tree, slot_of) = (self.trace, self.metric, &mut self.tree, &self.bands.slot_of);
        effects(trace, index, |effect| match effect {
            Effect::Begins(row) => tree.add(slot_of[row] as usize, size_of(trace, metric, row)),
            Effect::EndsLive(row) if metric != Metric::Active => {
                tree.take(slot_of[row] as usize, size_of(trace, metric, row));
            }
            Effect::EndsActive(row) if metric == Metric::Active => {
                tree.take(slot_of[row] as usize, size_of(trace, metric, row));
            }
            _ => {}
        });
    }

    /// Fills a column from the bottom up, from band edge to band edge.
    fn paint(&mut self, window: &Window, pixels: &mut [BlockId]) {
        let mut y = 0;
        while y < pixels.len() {
            let Some(slot) = self.tree.slot_at(window.byte_at(y)) else {
                return;
            };
            let block = self.bands.order[slot.index];
            while y < pixels.len() && window.byte_at(y) < slot.bytes.end {
                pixels[y] = block;
                y += 1;
            }
        }
    }
}
