//! A pyramid of maxima over the ends of blocks. It finds the blocks that outlive an event without visiting the others.

use std::ops::Range;

use rayon::prelude::*;

use highwater_snapshots::ids::EventId;
use highwater_snapshots::yielding::tick;

/// Number of children per node, chosen as one cache line of ends.
const FAN_OUT: usize = 16;

/// A pyramid over the events that end blocks. The lowest level has the maximum of each group of 16 blocks, and each
/// higher level the maximum of each group of 16 nodes.
///
/// The pyramid takes a fifteenth of the memory of the column that it indexes, whose rows are its leaves.
#[derive(Clone, Debug)]
pub(crate) struct Ends {
    levels: Vec<Vec<u32>>,
}

impl Ends {
    /// Builds the pyramid over `ends`, including only rows for which `is_ours` is true.
    pub(crate) fn build(ends: &[EventId], is_ours: impl Fn(usize) -> bool + Sync) -> Self {
        let of_run = |(run, ends): (usize, &[EventId])| {
            tick();
            let rows = ends.iter().enumerate().filter(|(row, _)| is_ours(run * FAN_OUT + row));
            rows.map(|(_, end)| end.0).max().unwrap_or(0)
        };
        let lowest: Vec<u32> = ends.par_chunks(FAN_OUT).enumerate().with_min_len(1 << 10).map(of_run).collect();
        let mut levels = vec![lowest];
        while let Some(last) = levels.last().filter(|level| level.len() > FAN_OUT) {
            let next = last.chunks(FAN_OUT).map(|nodes| nodes.iter().copied().max().unwrap_or(0)).collect();
            levels.push(next);
        }
        Self { levels }
    }

    /// Calls `each`, in order, for every row of `rows` that ends at event `limit` or later, and possibly for such rows
    /// that
    /// are not included in the pyramid. Returns the number of tree nodes and ends visited.
    pub(crate) fn reaching(
        &self,
        ends: &[EventId],
        rows: Range<usize>,
        limit: u32,
        each: &mut impl FnMut(usize),
    ) -> u64 {
        let rows = rows.start..rows.end.min(ends.len());
        if rows.is_empty() {
            return 0;
        }
        // The lowest level on which few nodes cover the range.
        let mut level = 0;
        let mut nodes = rows.start / FAN_OUT..rows.end.div_ceil(FAN_OUT);
        while nodes.len() > FAN_OUT && level + 1 < self.levels.len() {
            nodes = nodes.start / FAN_OUT..nodes.end.div_ceil(FAN_OUT);
            level += 1;
        }
        let search = Search { ends, rows, limit };
        nodes.map(|node| self.visit(level, node, &search, each)).sum()
    }

    fn visit(&self, level: usize, node: usize, search: &Search<'_>, each: &mut impl FnMut(usize)) -> u64 {
        if self.levels[level][node] < search.limit {
            return 1;
        }
        let children = node * FAN_OUT..(node + 1) * FAN_OUT;
        if level > 0 {
            let below = children.start..children.end.min(self.levels[level - 1].len());
            // Skip nodes outside the range.
            let reach = FAN_OUT.pow(level as u32);
            let first = (search.rows.start / reach).max(below.start);
            let after = search.rows.end.div_ceil(reach).min(below.end);
            return 1 + (first..after).map(|node| self.visit(level - 1, node, search, each)).sum::<u64>();
        }
        let rows = children.start.max(search.rows.start)..children.end.min(search.rows.end);
        let read = rows.len() as u64;
        for (row, end) in rows.clone().zip(&search.ends[rows]) {
            if end.0 >= search.limit {
                each(row);
            }
        }
        1 + read
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.levels.iter().map(|level| level.capacity() * size_of::<u32>()).sum()
    }
}

struct Search<'a> {
    ends: &'a [EventId],
    rows: Range<usize>,
    limit: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_that_outlives_a_moment_is_found_and_no_other() {
        let ends: Vec<EventId> = (0..5000_u32).map(|row| EventId(row.wrapping_mul(2_654_435_761) >> 19)).collect();
        let pyramid = Ends::build(&ends, |_| true);
        for rows in [0..5000, 0..0, 17..18, 3..4001, 255..257, 4096..5000, 4990..9000] {
            for limit in [0, 1, 4000, 8000, 8191, 8192] {
                let mut found = Vec::new();
                pyramid.reaching(&ends, rows.clone(), limit, &mut |row| found.push(row));
                let rows = rows.start..rows.end.min(ends.len());
                let expected: Vec<usize> = rows.filter(|row| ends[*row].0 >= limit).collect();
                assert_eq!(found, expected);
            }
        }
    }

    #[test]
    fn few_that_outlive_are_found_without_reading_many() {
        let mut ends = vec![EventId(5); 1 << 20];
        ends[777_777] = EventId::NONE;
        let pyramid = Ends::build(&ends, |_| true);
        let read = pyramid.reaching(&ends, 0..ends.len(), 6, &mut |row| assert_eq!(row, 777_777));
        assert!(read < 200, "{read}");
        assert_eq!(Ends::build(&[], |_| true).reaching(&[], 0..10, 0, &mut |_| panic!("there are none")), 0);
    }
}
