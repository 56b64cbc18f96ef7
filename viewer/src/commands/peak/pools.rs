//! Compares the pools of reserved memory: which of them are never in use at the same time.

use highwater_analysis::pools::BlockPool;
use highwater_analysis::{Breakdown, Together};
use highwater_app::figures::moment::count_of;
use highwater_app::report::{Column, Table};
use highwater_snapshots::units::format_bytes;

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

    /// A row for each pool.
    pub(super) fn table(&self) -> Table<'_> {
        let pool = |row: usize| self.pools[row].0;
        let never_in_use_with = move |row: usize| -> Vec<String> {
            let others = self.pools.iter().map(|(other, _)| *other).filter(|other| other.is_private());
            let is_apart =
                |other: &BlockPool| pool(row).is_private() && self.together.are_apart(pool(row).code(), other.code());
            others.filter(is_apart).map(|other| other.to_string()).collect()
        };
        let columns = [
            Column::text("pool", "pool", move |row| pool(row).to_string()),
            Column::bytes("bytes", "bytes", |row| self.pools[row].1[0]),
            Column::bytes("free_bytes", "free", |row| self.pools[row].1[1]),
            // The most bytes in its blocks at any moment of the recording.
            Column::bytes("most_in_use_bytes", "most in use", move |row| self.together.most(pool(row).code())),
            // The private pools that never have blocks at the same time.
            Column::text("never_in_use_with", "never in use with", never_in_use_with),
        ];
        Table::new(self.pools.len(), columns)
    }
}
