//! Updates the stack of live blocks from one moment to the next by applying only the differences.

use crate::{LiveIndex, Metric};
use highwater_snapshots::ids::BlockId;
use highwater_snapshots::trace::Trace;

use super::block_stack::{BlockStack, ColumnPainter, StackedBlock};
use super::{Bands, Cost, HIDDEN, of_blocks};

/// The stack of live blocks at successive moments, from left to right.
///
/// Blocks that begin and end between two moments are never visited. The time of a step depends on the new blocks that
/// stay live, and on the existing blocks, which are checked.
pub(super) struct Walker<'a> {
    bands: &'a Bands,
    trace: &'a Trace,
    live: &'a LiveIndex,
    metric: Metric,
    stacks: Vec<BlockStack>,
    /// The current moment; `None` before the first moment.
    moment: Option<usize>,
    /// If set, the walker tracks only the blocks below this block in the stack.
    below: Option<BlockId>,
    cost: Cost,
}

impl<'a> Walker<'a> {
    pub(super) fn new(bands: &'a Bands, trace: &'a Trace, live: &'a LiveIndex, metric: Metric) -> Self {
        let stacks = vec![BlockStack::default(); bands.rank_count()];
        let metric = of_blocks(metric);
        Self { bands, trace, live, metric, stacks, moment: None, below: None, cost: Cost::default() }
    }

    pub(super) fn below(self, block: BlockId) -> Self {
        Self { below: Some(block), ..self }
    }

    pub(super) fn cost(&self) -> Cost {
        self.cost
    }

    pub(super) fn bytes(&self) -> u64 {
        self.stacks.iter().map(BlockStack::bytes).sum()
    }

    /// Moves the stack to `moment`; starts anew if `moment` is before the current one.
    pub(super) fn go_to(&mut self, moment: usize) {
        let from = self.moment.filter(|now| *now <= moment);
        if from == Some(moment) {
            return;
        }
        match from {
            Some(_) => {
                let looked_at: u64 =
                    self.stacks.iter_mut().map(|block_stack| block_stack.drop_ended(moment as u32)).sum();
                self.cost.visits += looked_at;
            }
            None => self.stacks.fill(BlockStack::default()),
        }
        let (bands, trace, metric, below) = (self.bands, self.trace, self.metric, self.below);
        let ends = if metric == Metric::Active { &trace.blocks.free_completed } else { &trace.blocks.free_requested };
        let (stacks, mut added) = (&mut self.stacks, 0);
        self.cost.visits += self.live.lasting(trace, metric, from, moment, |row| {
            let block = BlockId(row as u32);
            let bytes = trace.blocks.sizes(metric)[row];
            let is_shown = bytes > 0 && bands.rank(block) != HIDDEN;
            if is_shown && below.is_none_or(|below| bands.key(block) < bands.key(below)) {
                stacks[usize::from(bands.rank(block))].push(StackedBlock { row: block.0, end: ends[row].0, bytes });
                added += 1;
            }
        });
        self.cost.blocks += added;
        self.moment = Some(moment);
    }

    /// Fills a column from the bottom up; `bytes_at` contains the byte offset at each pixel's centre. Pixels that equal
    /// those of the previously painted column `former` are copied.
    pub(super) fn paint(&mut self, bytes_at: &[u64], former: Option<&[BlockId]>, pixels: &mut [BlockId]) {
        let (mut unchanged_bytes, mut is_steady) = (0, true);
        for block_stack in &mut self.stacks {
            // A stack that changed shifts those above it.
            let (same, is_same) = block_stack.take_steady();
            unchanged_bytes += if is_steady { same } else { 0 };
            is_steady &= is_same;
        }
        let mut y = 0;
        if let Some(former) = former {
            y = bytes_at.partition_point(|byte| *byte < unchanged_bytes);
            pixels[..y].copy_from_slice(&former[..y]);
        }
        let mut brush = ColumnPainter::new(bytes_at, pixels, y);
        for block_stack in &self.stacks {
            self.cost.visits += block_stack.paint(&mut brush);
        }
    }
}
