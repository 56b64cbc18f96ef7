//! Compares the pools of reserved memory: which of them are never in use at the same time.

use highwater_analysis::pools::BlockPool;
use highwater_analysis::{Breakdown, Together};
use highwater_app::figures::moment::count_of;
use highwater_snapshots::units::format_bytes;
use serde::Serialize;

/// Maximum number of pools that are named in a line.
const MAX_NAMES: usize = 12;

/// The pools at a moment, and which of them are never in use at the same time in the recording.
#[derive(Debug)]
pub(super) struct PoolsReport {
    /// The pools with their reserved bytes, and those of them that are free.
    pools: Vec<(BlockPool, [u64; 2])>,
    together: Together,
}

impl PoolsReport {
    /// Creates the report of a moment's memory by pool.
    pub(super) fn of(by_pool: &Breakdown, together: Together) -> Self {
        let pools = by_pool.groups.iter().filter_map(|group| {
            let pool = BlockPool::from_name(group.key.first()?)?;
            Some((pool, [group.bytes, group.free_bytes]))
        });
        Self { pools: pools.collect(), together }
    }

    /// Returns a sentence for each set of private pools that are never in use at the same time.
    pub(super) fn lines(&self) -> Vec<String> {
        let sets = self.together.private_apart(self.pools.iter().map(|(pool, _)| *pool));
        let line = |(pools, most): (Vec<BlockPool>, u64)| {
            let reserved: u64 =
                self.pools.iter().filter(|(pool, _)| pools.contains(pool)).map(|(_, [bytes, _])| bytes).sum();
            let names: Vec<String> = pools.iter().map(BlockPool::to_string).take(MAX_NAMES).collect();
            let more = pools.len().saturating_sub(MAX_NAMES);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            format!(
                "{} ({}{more}) are never in use at the same time: {} reserved, at most {} in blocks at once. Graphs, or \
                 other code, that never run at the same time can share a pool.",
                count_of(pools.len() as u64, "private pool"),
                names.join(" "),
                format_bytes(reserved),
                format_bytes(most),
            )
        };
        sets.into_iter().map(line).collect()
    }

    /// Returns the figures of each pool.
    pub(super) fn figures(&self) -> Vec<PoolFigures> {
        let figures = |(pool, [bytes, free_bytes]): &(BlockPool, [u64; 2])| {
            let others = self.pools.iter().map(|(other, _)| *other).filter(|other| other.is_private());
            let is_apart = |other: &BlockPool| pool.is_private() && self.together.are_apart(pool.code(), other.code());
            PoolFigures {
                pool: pool.to_string(),
                bytes: *bytes,
                free_bytes: *free_bytes,
                most_in_use_bytes: self.together.most(pool.code()),
                never_in_use_with: others.filter(is_apart).map(|other| other.to_string()).collect(),
            }
        };
        self.pools.iter().map(figures).collect()
    }
}

/// A pool of reserved memory.
#[derive(Debug, Serialize)]
pub(super) struct PoolFigures {
    pool: String,
    bytes: u64,
    free_bytes: u64,
    /// The most bytes in its blocks at any moment of the recording.
    most_in_use_bytes: u64,
    /// The private pools that never have blocks at the same time.
    never_in_use_with: Vec<String>,
}
