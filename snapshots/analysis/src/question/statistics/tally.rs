//! Counts blocks by size, lifetime and category, in parallel.

use std::collections::HashMap;

use rayon::prelude::*;

use crate::grouping::lifetime::Lifetime;
use crate::grouping::matches::Matches;
use crate::metric::Metric;
use highwater_snapshots::Category;
use highwater_snapshots::ids::{BlockId, DeviceId, ScopeId};
use highwater_snapshots::trace::{Block, Trace};

use super::bins::{Bin, Powers, bin_of};
use crate::question::between::{Sum, bytes_of};

/// Blocks that are never freed, by category and scope, then by the first event of the span in which they were
/// allocated.
pub(super) type Kept = HashMap<(Category, ScopeId), HashMap<u32, Sum>>;

pub(super) struct Tally {
    pub blocks: Bin,
    pub sizes: Powers,
    pub lifetimes: [Bin; Lifetime::ALL.len()],
    /// The blocks by their lifetime in events.
    pub lived: Powers,
    /// Blocks whose allocation or free is not recorded.
    pub open: Bin,
    pub kept: Kept,
    pub requested: u64,
    pub allocated: u64,
    addresses: Vec<u64>,
}

/// Number of blocks counted by each parallel task.
const RUN: usize = 1 << 16;

impl Tally {
    fn new() -> Self {
        Self {
            blocks: Bin::default(),
            sizes: [Bin::default(); 65],
            lifetimes: [Bin::default(); Lifetime::ALL.len()],
            lived: [Bin::default(); 65],
            open: Bin::default(),
            kept: Kept::default(),
            requested: 0,
            allocated: 0,
            addresses: Vec::new(),
        }
    }

    /// Counts the blocks of `device` in `matches`; the peak is added later.
    pub(super) fn of(trace: &Trace, device: DeviceId, metric: Metric, matches: &Matches) -> Self {
        let rows = trace.blocks.len();
        let runs = (0..rows.div_ceil(RUN)).into_par_iter().map(|run| {
            let mut tally = Self::new();
            for row in run * RUN..rows.min((run + 1) * RUN) {
                let id = BlockId(row as u32);
                if trace.blocks.device[row] == device && matches.contains(id) {
                    tally.count(trace, metric, id);
                }
            }
            tally
        });
        runs.reduce(Self::new, Self::joined)
    }

    fn count(&mut self, trace: &Trace, metric: Metric, id: BlockId) {
        let block = trace.blocks.get(id);
        let bytes = bytes_of(trace, metric, id);
        self.each(trace, &block, bytes, |bin| bin.all.add(bytes));
        self.requested = self.requested.saturating_add(block.requested);
        self.allocated = self.allocated.saturating_add(block.allocated);
        self.addresses.push(block.address);
        if !block.is_baseline() && !block.free_requested.is_some() && block.death.is_none() {
            let made = trace.spans.at(block.alloc).map_or(0, |span| span.first.0);
            let group = self.kept.entry((block.category, block.scope)).or_default();
            group.entry(made).or_default().add(bytes);
        }
    }

    pub(super) fn add_peak(&mut self, trace: &Trace, metric: Metric, blocks: &[BlockId]) {
        for &id in blocks {
            let block = trace.blocks.get(id);
            let bytes = bytes_of(trace, metric, id);
            self.each(trace, &block, bytes, |bin| bin.at_peak.add(bytes));
        }
    }

    /// Calls `each` for each histogram bin that contains a block.
    fn each(&mut self, trace: &Trace, block: &Block, bytes: u64, mut each: impl FnMut(&mut Bin)) {
        each(&mut self.blocks);
        each(&mut self.sizes[bin_of(bytes)]);
        each(&mut self.lifetimes[Lifetime::of(trace, block) as usize]);
        each(match (block.alloc.index(), block.free_requested.index()) {
            (Some(made), Some(freed)) => &mut self.lived[bin_of(freed.saturating_sub(made) as u64)],
            _ => &mut self.open,
        });
    }

    fn joined(mut self, mut other: Self) -> Self {
        self.blocks.join(&other.blocks);
        self.open.join(&other.open);
        let pairs = self.sizes.iter_mut().zip(&other.sizes).chain(self.lived.iter_mut().zip(&other.lived));
        pairs.chain(self.lifetimes.iter_mut().zip(&other.lifetimes)).for_each(|(bin, more)| bin.join(more));
        for (group, runs) in other.kept {
            let known = self.kept.entry(group).or_default();
            runs.into_iter().for_each(|(run, sum)| known.entry(run).or_default().join(&sum));
        }
        self.requested = self.requested.saturating_add(other.requested);
        self.allocated = self.allocated.saturating_add(other.allocated);
        self.addresses.append(&mut other.addresses);
        self
    }

    pub(super) fn addresses(&mut self) -> u64 {
        self.addresses.par_sort_unstable();
        self.addresses.dedup();
        self.addresses.len() as u64
    }
}
