//! The blocks that pass a filter, as a bit set, with their totals.

use rayon::prelude::*;

use highwater_snapshots::ids::BlockId;
use highwater_snapshots::trace::{Trace, TraceParts};
use highwater_snapshots::yielding::tick;

use super::filter::Filter;

/// The blocks that pass a filter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Matches {
    /// One bit per block; empty if all blocks pass.
    words: Vec<u64>,
    blocks: u64,
    requested: u64,
}

/// Number of rows per task, large enough to benefit from the filter's caches of stacks and scopes.
const RUN: usize = 1 << 16;

impl Matches {
    /// Evaluates `filter` on every block, in parallel.
    pub fn of(trace: &Trace, filter: &Filter) -> Self {
        let rows = trace.blocks.len();
        if filter.is_empty() {
            let requested = trace.blocks.requested.par_iter().sum();
            return Self { words: Vec::new(), blocks: rows as u64, requested };
        }
        let mut words = vec![0_u64; rows.div_ceil(64)];
        let sums = words.par_chunks_mut(RUN / 64).enumerate().map(|(run, words)| {
            let mut matcher = filter.on(trace);
            let (mut blocks, mut requested) = (0, 0);
            for row in run * RUN..rows.min((run + 1) * RUN) {
                tick();
                if matcher.matches(BlockId(row as u32)) {
                    words[(row - run * RUN) / 64] |= 1 << (row % 64);
                    blocks += 1;
                    requested += trace.blocks.requested[row];
                }
            }
            (blocks, requested)
        });
        let (blocks, requested) = sums.reduce(|| (0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
        Self { words, blocks, requested }
    }

    /// Whether the filter lets every block pass.
    pub fn is_all(&self) -> bool {
        self.words.is_empty()
    }

    /// Whether the filter lets `block` pass.
    #[inline]
    pub fn contains(&self, block: BlockId) -> bool {
        let row = block.0 as usize;
        self.words.is_empty() || self.words.get(row / 64).is_some_and(|word| word >> (row % 64) & 1 == 1)
    }

    /// Number of blocks that pass, on all devices.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Returns the requested bytes of the blocks that pass, on all devices, over the whole recording.
    pub fn requested(&self) -> u64 {
        self.requested
    }
}

/// Returns `trace` with a size of 0 for all blocks that do not pass `filter`.
pub(crate) fn counting_only(trace: Trace, filter: &Filter) -> Trace {
    if filter.is_empty() {
        return trace;
    }
    let matches = Matches::of(&trace, filter);
    trace.edited(|TraceParts { blocks, .. }| {
        for row in (0..blocks.len()).filter(|row| !matches.contains(BlockId(*row as u32))) {
            (blocks.requested[row], blocks.allocated[row]) = (0, 0);
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwater_notation::trace_from_text;

    #[test]
    fn every_block_is_asked_once_and_counted() {
        let text: String =
            (0..130).map(|n| format!("alloc b{n} {} {}\n", n + 1, ["activation", "gradient"][n % 2])).collect();
        let trace = trace_from_text(&text).unwrap();
        let filter: Filter = "category=gradient size>64".parse().unwrap();
        let matches = Matches::of(&trace, &filter);
        let expected: Vec<u32> = (0..130).filter(|n| n % 2 == 1 && n + 1 > 64).collect();
        let found: Vec<u32> = (0..130).filter(|row| matches.contains(BlockId(*row))).collect();
        assert_eq!(found, expected);
        assert_eq!(matches.blocks(), expected.len() as u64);
        assert_eq!(matches.requested(), expected.iter().map(|n| u64::from(n + 1)).sum::<u64>());
        assert!(!matches.contains(BlockId(500)) && !matches.is_all());
    }

    #[test]
    fn no_condition_is_met_by_all() {
        let trace = trace_from_text("alloc a 10\nalloc b 20").unwrap();
        let matches = Matches::of(&trace, &Filter::default());
        assert!(matches.is_all() && matches.contains(BlockId(1)));
        assert_eq!((matches.blocks(), matches.requested()), (2, 30));
    }
}
