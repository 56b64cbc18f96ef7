//! Computes a device's segments and mapped pages before its trace begins from those at the end.

use hashbrown::HashSet;

use super::super::raw::{Action, RawEvent, RawSegment};
use highwater_snapshots::Pool;
use highwater_snapshots::alloc_rules::AllocRules;
use highwater_snapshots::event::Range;
use highwater_snapshots::ids::StreamId;
use highwater_snapshots::ranges::Ranges;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) stream: u64,
    pub(super) pool: Pool,
    pub(super) pool_id: (u64, u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReservedRange {
    pub(super) address: u64,
    pub(super) bytes: u64,
    pub(super) owner: Owner,
}

impl ReservedRange {
    pub(super) fn range(&self) -> Range {
        let Self { address, bytes, owner } = *self;
        Range { address, bytes, stream: StreamId(owner.stream), pool: owner.pool }
    }

    pub(super) fn end(&self) -> u64 {
        self.address.saturating_add(self.bytes)
    }
}

/// The memory that a device had reserved when its trace began.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Start {
    pub(super) segments: Vec<ReservedRange>,
    pub(super) mappings: Vec<ReservedRange>,
    /// Reserved bytes at the end according to the trace, minus those of the snapshot.
    pub(super) excess_bytes: i128,
}

impl Start {
    /// Computes the initial state. Ranges not touched by the trace existed as they are at the end. Ranges touched by
    /// the trace existed if they are freed before they are allocated.
    pub(super) fn of(
        trace: &[RawEvent],
        finals: &[&RawSegment],
        rules: &AllocRules,
        pool_id: impl Fn(&RawEvent) -> (u64, u64),
    ) -> Self {
        let mut touched = HashSet::new();
        let mut pages: Vec<(ReservedRange, bool)> = Vec::new();
        let mut start = Self::default();
        let mut gained = 0_i128;
        for event in trace {
            let gives = match event.action {
                Action::SegmentAlloc | Action::SegmentMap => false,
                Action::SegmentFree | Action::SegmentUnmap => true,
                _ => continue,
            };
            gained += if gives { -i128::from(event.size) } else { i128::from(event.size) };
            let is_whole = matches!(event.action, Action::SegmentAlloc | Action::SegmentFree);
            let pool = if is_whole { rules.segment_pool(event.size) } else { rules.page_pool(event.size) };
            let owner = Owner { stream: event.stream, pool, pool_id: pool_id(event) };
            let range = ReservedRange { address: event.address, bytes: event.size, owner };
            if !is_whole {
                pages.push((range, gives));
            } else if touched.insert(event.address) && gives {
                start.segments.push(range);
            }
        }
        let mut mapped = Ranges::default();
        let mut at_end = 0_i128;
        for segment in finals {
            at_end += i128::from(segment.total_size);
            let pool = if segment.is_small { Pool::Small } else { Pool::Large };
            let owner = Owner { stream: segment.stream, pool, pool_id: segment.pool_id };
            let range = ReservedRange { address: segment.address, bytes: segment.total_size, owner };
            if segment.is_expandable {
                mapped.insert(range.address, range.end(), owner);
            } else if touched.insert(range.address) {
                start.segments.push(range);
            }
        }
        for (range, was_unmapped) in pages.into_iter().rev() {
            if was_unmapped {
                mapped.insert(range.address, range.end(), range.owner);
            } else {
                mapped.remove(range.address, range.end());
            }
        }
        start.segments.sort_by_key(|range| range.address);
        start.mappings =
            mapped.iter().map(|(address, end, owner)| ReservedRange { address, bytes: end - address, owner }).collect();
        let at_start: i128 = start.segments.iter().chain(&start.mappings).map(|range| i128::from(range.bytes)).sum();
        start.excess_bytes = at_start + gained - at_end;
        start
    }
}
#[cfg(test)]
mod tests {
    use super::super::tests::sample::{MIB, Sample, rows};
    use crate::raw::BlockState::Inactive;
    use highwater_snapshots::Trace;
    use highwater_snapshots::trace::SegmentRole;

    fn reserved(trace: &Trace) -> Vec<u64> {
        rows(trace, 0).iter().map(|row| row[3] / MIB).collect()
    }

    #[test]
    fn segments_that_are_given_back_first_were_there_before() {
        let mut sample = Sample::of(&[
            ("segment_free", 0x1000_0000, 20 * MIB),
            ("segment_alloc", 0x1000_0000, 30 * MIB),
            ("segment_alloc", 0x9000_0000, 2 * MIB),
            ("segment_free", 0x9000_0000, 2 * MIB),
        ]);
        sample.segment(0x1000_0000, &[(30 * MIB, 0, Inactive)]);
        sample.segment(0x5000_0000, &[(4 * MIB, 0, Inactive)]);
        let trace = sample.assemble();
        assert_eq!(reserved(&trace), [24, 4, 34, 36, 34]);
        assert_eq!((trace.problems.as_slice(), trace.trust.unmatched_releases), (&[][..], 0));
    }

    #[test]
    fn pages_at_the_start_are_found_byte_by_byte() {
        let base = 0x1000_0000;
        let page = 20 * MIB;
        let mut sample = Sample::of(&[
            // The middle of three pages is unmapped; then all of five are mapped except the outer two of the three,
            // which still are.
            ("segment_unmap", base + page, page),
            ("segment_map", base + page, page),
            ("segment_map", base + 3 * page, 2 * page),
        ]);
        sample.segment_with(base, &[(5 * page, 0, Inactive)], |made| made.is_expandable = true);
        let trace = sample.assemble();
        assert_eq!(reserved(&trace), [60, 40, 60, 100]);
        assert_eq!(trace.problems, []);
        let start: Vec<_> = trace
            .segments
            .ids()
            .map(|id| trace.segments.get(id))
            .filter(|row| !row.alloc.is_some())
            .map(|row| (row.role, row.range.address, row.range.bytes))
            .collect();
        let expected = [(0, page), (page, page), (2 * page, page)]
            .map(|(offset, bytes)| (SegmentRole::Mapping, base + offset, bytes));
        let joined = [(SegmentRole::Mapping, base, 3 * page)];
        assert!(start == expected || start == joined, "{start:?}");
    }

    #[test]
    fn bytes_that_cannot_be_reconciled_are_reported() {
        let mut sample =
            Sample::of(&[("segment_alloc", 0x1000_0000, 2 * MIB), ("segment_alloc", 0x1000_0000, 2 * MIB)]);
        sample.segment(0x1000_0000, &[(2 * MIB, 0, Inactive)]);
        let trace = sample.assemble();
        let expected = format!("reserves {} bytes more", 2 * MIB);
        assert!(trace.problems[0].what.contains(&expected), "{:?}", trace.problems);
    }
}
