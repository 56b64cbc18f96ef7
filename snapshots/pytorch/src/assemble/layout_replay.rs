//! Replays how the allocator split its segments into blocks. This is needed because a trace has only requested sizes,
//! and a block may be larger than the rounded request, since the allocator does not split off a remainder that is too
//! small.

use std::collections::BTreeMap;

use hashbrown::HashMap;

use super::block_matching::Baseline;
use super::start::Start;
use highwater_snapshots::alloc_rules::{AllocRules, SMALL_REQUEST, SMALL_SEGMENT, SegmentKind};
use highwater_snapshots::ranges::Ranges;

/// Identifies a segment. Free blocks coalesce within a segment, not across segments. Adjacent mapped pages coalesce.
type Segment = u32;

/// Represents all mapped pages of expandable segments.
const PAGES: Segment = 0;

/// The block is in no known segment.
const UNKNOWN: Segment = u32::MAX;

/// The free blocks of a device's segments while its events are replayed, and the sizes of all blocks so far.
#[derive(Clone, Debug)]
pub(super) struct Layout<'a> {
    rules: &'a AllocRules,
    free: Ranges<Segment>,
    reserved: BTreeMap<u64, (u64, Segment)>,
    segments: Segment,
    /// Rounded size of each block, by index. The baseline comes first, then the allocations in order.
    pub(super) bytes: Vec<u64>,
    segment: Vec<Segment>,
    /// Live baseline blocks with only a rounded request size, by end address. If a later block does not begin at the
    /// start of the free range that follows such a block, the block is larger.
    doubtful: HashMap<u64, u32>,
    /// Number of blocks that began at an address that was not the start of a free block.
    pub(super) misplaced: u64,
    /// Number of blocks whose final size differs from the size computed by the rules.
    pub(super) differing: u64,
    /// Number of blocks whose size is not in the file.
    pub(super) inferred: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) address: u64,
    pub(super) requested: u64,
    pub(super) is_private: bool,
    /// Rounded size; `None` if the file does not contain it.
    pub(super) exact: Option<u64>,
}

impl<'a> Layout<'a> {
    /// `baseline` is sorted by block index.
    pub(super) fn new<'b>(
        rules: &'a AllocRules,
        start: &Start,
        baseline: impl ExactSizeIterator<Item = &'b Baseline>,
    ) -> Self {
        let mut layout = Self {
            rules,
            free: Ranges::default(),
            reserved: BTreeMap::new(),
            segments: PAGES,
            bytes: Vec::with_capacity(baseline.len()),
            segment: vec![UNKNOWN; baseline.len()],
            doubtful: HashMap::new(),
            misplaced: 0,
            differing: 0,
            inferred: 0,
        };
        for range in &start.segments {
            layout.reserve(range.address, range.end());
        }
        for range in &start.mappings {
            layout.map(range.address, range.end());
        }
        // Blocks with their places, by address.
        let mut blocks: Vec<(&Baseline, u32)> = baseline.zip(0..).collect();
        layout.bytes.resize(blocks.len(), 0);
        blocks.sort_by_key(|(block, _)| block.address);
        let mut after = blocks.iter().skip(1).map(|(block, _)| block.address).chain([u64::MAX]);
        for (block, place) in &blocks {
            layout.place(block, *place, after.next().unwrap_or(u64::MAX));
        }
        layout
    }

    /// Places a block of the baseline. The next block begins at `next`.
    fn place(&mut self, block: &Baseline, place: u32, next: u64) {
        let address = block.address;
        let rounded = self.rules.round(block.requested);
        let mut bytes = block.allocated.unwrap_or(rounded);
        let free = self.free.holding(address);
        let segment = free.map_or(UNKNOWN, |(_, _, segment)| segment);
        if block.allocated.is_none() {
            self.inferred += 1;
        }
        if let (None, Some((_, end, _))) = (block.allocated, free) {
            // The next block, the end of the segment or a free block follows; only the last leaves the size ambiguous.
            let gap = end.min(next) - address;
            let rest = gap.saturating_sub(rounded);
            let is_large = segment != PAGES && rounded > SMALL_REQUEST && self.is_large(address);
            let is_clipped = gap >= block.requested && gap < rounded;
            if is_clipped || is_large && self.rules.is_slack(rounded, rest) {
                bytes = gap;
            } else if is_large && rest > 0 {
                self.doubtful.insert(address.saturating_add(bytes), place);
            }
        }
        bytes = bytes.max(block.requested);
        self.free.remove(address, address.saturating_add(bytes));
        self.bytes[place as usize] = bytes;
        self.segment[place as usize] = segment;
    }

    fn is_large(&self, address: u64) -> bool {
        self.holding(address).is_some_and(|(start, end, _)| end - start > SMALL_SEGMENT)
    }

    fn holding(&self, address: u64) -> Option<(u64, u64, Segment)> {
        let (&start, &(end, segment)) = self.reserved.range(..=address).next_back()?;
        (address < end).then_some((start, end, segment))
    }

    pub(super) fn reserve(&mut self, address: u64, end: u64) {
        self.segments += 1;
        self.reserved.insert(address, (end, self.segments));
        self.free.insert(address, end, self.segments);
    }

    pub(super) fn release(&mut self, address: u64, end: u64) {
        self.reserved.remove(&address);
        self.free.remove(address, end);
    }

    /// Adds pages that were mapped, which coalesce with adjacent free blocks.
    pub(super) fn map(&mut self, address: u64, end: u64) {
        self.free.insert(address, end, PAGES);
    }

    pub(super) fn unmap(&mut self, address: u64, end: u64) {
        self.free.remove(address, end);
    }

    /// Returns whether the sizes of the baseline can no longer change.
    pub(super) fn is_baseline_final(&self) -> bool {
        self.doubtful.is_empty()
    }

    pub(super) fn alloc(&mut self, request: &Request) -> u64 {
        let Request { address, requested, is_private, exact } = *request;
        let rounded = self.rules.round(requested);
        let free = self.free.starting_at(address).or_else(|| self.grow_before(address));
        let (bytes, segment) = match free {
            Some((end, segment)) if end - address >= rounded => {
                let kind = match (segment, is_private) {
                    (PAGES, _) => SegmentKind::Expandable,
                    (_, true) => SegmentKind::Private,
                    (_, false) => SegmentKind::Default,
                };
                let rest = end - address - rounded;
                let by_rule = if self.rules.splits(rounded, rest, kind) { rounded } else { end - address };
                self.differing += u64::from(exact.is_some_and(|bytes| bytes != by_rule));
                let bytes = exact.unwrap_or(by_rule);
                match address.checked_add(bytes) {
                    Some(last) if last <= end => self.free.take_front(address, last),
                    last => self.free.remove(address, last.unwrap_or(u64::MAX)),
                }
                (bytes, segment)
            }
            _ => {
                self.misplaced += u64::from(exact.is_none());
                let bytes = exact.unwrap_or(rounded);
                let around = self.free.holding(address).map(|row| row.2);
                let segment = around.or_else(|| self.holding(address).map(|row| row.2)).unwrap_or(UNKNOWN);
                self.free.remove(address, address.saturating_add(bytes));
                (bytes, segment)
            }
        };
        self.inferred += u64::from(exact.is_none());
        self.bytes.push(bytes);
        self.segment.push(segment);
        bytes
    }

    /// If a baseline block turns out to extend to `address`, enlarges it, and returns the free range after it, if any.
    fn grow_before(&mut self, address: u64) -> Option<(u64, Segment)> {
        if self.doubtful.is_empty() {
            return None;
        }
        let (start, _, _) = self.free.holding(address)?;
        let more = address - start;
        let place = *self.doubtful.get(&start).filter(|_| more <= SMALL_REQUEST)?;
        self.doubtful.remove(&start);
        self.bytes[place as usize] += more;
        self.free.take_front(start, address);
        self.free.starting_at(address)
    }

    pub(super) fn free_block(&mut self, place: u64, address: u64) {
        let row = place as usize;
        let (Some(&bytes), Some(&segment)) = (self.bytes.get(row), self.segment.get(row)) else { return };
        let end = address.saturating_add(bytes);
        if !self.doubtful.is_empty() {
            self.doubtful.remove(&end);
        }
        if segment != UNKNOWN {
            self.free.insert(address, end, segment);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::sample::{MIB, Sample};
    use crate::raw::BlockState::{Allocated, Inactive};
    use highwater_snapshots::Trace;

    const BASE: u64 = 0x1000_0000;

    fn sizes(trace: &Trace) -> Vec<u64> {
        trace.blocks.allocated.clone()
    }

    #[test]
    fn a_block_takes_a_rest_that_is_too_small_to_split_off() {
        let mut sample = Sample::of(&[
            ("segment_alloc", BASE, 12 * MIB),
            ("alloc", BASE, 11 * MIB + 5),
            ("free_requested", BASE, 11 * MIB + 5),
            ("free_completed", BASE, 11 * MIB + 5),
            ("alloc", BASE, 10 * MIB),
            ("free_requested", BASE, 10 * MIB),
            ("free_completed", BASE, 10 * MIB),
        ]);
        sample.segment(BASE, &[(12 * MIB, 0, Inactive)]);
        let trace = sample.assemble();
        assert_eq!(sizes(&trace), [12 * MIB, 10 * MIB]);
        assert_eq!((trace.problems.as_slice(), trace.trust.sizes_inferred), (&[][..], 2));
    }

    #[test]
    fn neighbouring_segments_do_not_merge() {
        let second = BASE + 20 * MIB;
        let mut sample = Sample::of(&[
            ("segment_alloc", BASE, 20 * MIB),
            ("segment_alloc", second, 20 * MIB),
            ("alloc", BASE, 19 * MIB + MIB / 2),
            ("free_requested", BASE, 19 * MIB + MIB / 2),
            ("free_completed", BASE, 19 * MIB + MIB / 2),
        ]);
        sample.segment(BASE, &[(20 * MIB, 0, Inactive)]).segment(second, &[(20 * MIB, 0, Inactive)]);
        assert_eq!(sizes(&sample.assemble()), [20 * MIB]);
    }

    #[test]
    fn pages_that_touch_are_one_free_block() {
        let mut sample = Sample::of(&[
            ("segment_map", BASE, 20 * MIB),
            ("segment_map", BASE + 20 * MIB, 20 * MIB),
            ("alloc", BASE, 39 * MIB + MIB / 2),
            ("free_requested", BASE, 39 * MIB + MIB / 2),
            ("free_completed", BASE, 39 * MIB + MIB / 2),
        ]);
        sample.segment_with(BASE, &[(40 * MIB, 0, Inactive)], |made| made.is_expandable = true);
        let trace = sample.assemble();
        assert_eq!(sizes(&trace), [39 * MIB + MIB / 2], "expandable segments split off any rest");
        assert_eq!(trace.problems, []);
    }

    #[test]
    fn of_a_block_that_was_there_before_the_neighbours_show_the_size() {
        // Before a block that stays, at the end of a segment, and before free memory that is used later.
        let (one, two, three) = (BASE, BASE + 20 * MIB, BASE + 40 * MIB);
        let request = 4 * MIB;
        let mut sample = Sample::of(&[
            ("alloc", three + request + 4096, 3 * MIB),
            ("free_requested", one, request),
            ("free_completed", one, request),
            ("free_requested", two + 16 * MIB, 3 * MIB),
            ("free_completed", two + 16 * MIB, 3 * MIB),
            ("free_requested", three, request),
            ("free_completed", three, request),
        ]);
        sample.segment(one, &[(5 * MIB, 0, Inactive), (15 * MIB, 15 * MIB, Allocated)]);
        sample.segment(two, &[(16 * MIB, 15 * MIB, Allocated), (4 * MIB, 0, Inactive)]);
        sample.segment(
            three,
            &[(request + 4096, 0, Inactive), (3 * MIB, 3 * MIB, Allocated), (13 * MIB - 4096, 0, Inactive)],
        );
        let trace = sample.assemble();
        let size_at = |address| {
            let row = trace.blocks.address.iter().position(|&at| at == address);
            row.map(|row| trace.blocks.allocated[row])
        };
        assert_eq!(size_at(one), Some(5 * MIB));
        assert_eq!(size_at(two + 16 * MIB), Some(4 * MIB));
        assert_eq!(size_at(three), Some(request + 4096));
        assert_eq!(trace.problems, []);
    }

    #[test]
    fn sizes_of_the_last_state_win_and_differences_are_reported() {
        let mut sample = Sample::of(&[("segment_alloc", BASE, 2 * MIB), ("alloc", BASE, 100)]);
        sample.segment(BASE, &[(4096, 100, Allocated), (2 * MIB - 4096, 0, Inactive)]);
        let trace = sample.assemble();
        assert_eq!((sizes(&trace), trace.trust.sizes_inferred), (vec![4096], 0));
        let notes: Vec<&str> = trace.header.notes().collect();
        assert!(notes.len() == 1 && notes[0].contains("1 block has another size"), "{notes:?}");
        assert_eq!(trace.problems, []);
    }

    #[test]
    fn a_block_where_no_free_memory_begins_is_rounded_and_reported() {
        let mut sample = Sample::of(&[
            ("segment_alloc", BASE, 2 * MIB),
            ("alloc", BASE + 0x1000, 100),
            ("free_requested", BASE + 0x1000, 100),
            ("free_completed", BASE + 0x1000, 100),
            ("alloc", BASE, 2000),
        ]);
        sample.segment(BASE, &[(2048, 2000, Allocated), (2 * MIB - 2048, 0, Inactive)]);
        let trace = sample.assemble();
        assert_eq!(sizes(&trace), [512, 2048]);
        let notes: Vec<&str> = trace.header.notes().collect();
        assert!(notes.len() == 1 && notes[0].contains("1 block begins where"), "{notes:?}");
        assert_eq!(trace.problems, [], "what was taken is free again");
    }
}
