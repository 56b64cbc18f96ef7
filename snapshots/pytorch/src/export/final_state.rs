//! Computes the segments and blocks of a device after the last event, ordered by address.

use std::collections::BTreeMap;
use std::ops::Range as Span;

use highwater_snapshots::category::Pool;
use highwater_snapshots::event::{EventKind, Range};
use highwater_snapshots::ids::{BlockId, DeviceId, EventId, SegmentId, StreamId};
use highwater_snapshots::ranges::Ranges;
use highwater_snapshots::trace::{SegmentRole, Trace};
use highwater_snapshots::transition::Transition;

#[derive(Clone, Debug, Default)]
pub(super) struct FinalState {
    /// Segments by address, without overlaps.
    pub(super) segments: Vec<FinalSegment>,
    /// Active blocks by address, without overlaps. Each segment refers to a range of them.
    pub(super) blocks: Vec<BlockId>,
    /// Number of segments invented for blocks whose segments were not recorded.
    pub(super) made_up: u64,
    /// Size of these segments in bytes.
    pub(super) made_up_bytes: u64,
    /// Number of blocks omitted because a later block overlaps them.
    pub(super) overlapped: u64,
    /// Number of blocks that extend past the end of their segment and are cut there.
    pub(super) cut: u64,
}

/// A segment in the final state: a whole segment, or a run of adjacent mapped ranges.
#[derive(Clone, Debug)]
pub(super) struct FinalSegment {
    /// From the segment's first byte to one past its last.
    pub(super) addresses: Span<u64>,
    pub(super) stream: StreamId,
    pub(super) pool: Pool,
    /// Row of the segment, or of the first range of the run; `NONE` if the segment is invented.
    pub(super) row: SegmentId,
    pub(super) is_expandable: bool,
    /// Range of its blocks in [`FinalState::blocks`].
    pub(super) blocks: Span<usize>,
}

impl FinalSegment {
    fn new(addresses: Span<u64>, of: Reserved) -> Self {
        let Reserved { stream, pool, row, is_expandable } = of;
        Self { addresses, stream, pool, row, is_expandable, blocks: 0..0 }
    }
}

impl FinalState {
    pub(super) fn of(trace: &Trace, device: DeviceId) -> Self {
        let mut walk = Walk { trace, segments: Ranges::default(), unplaced: BTreeMap::new() };
        walk.run(device);
        let active = active_blocks(trace, device);
        // The segment of a block may have been freed since.
        active.iter().for_each(|&id| walk.place(id));
        let mut holdings = Self::default();
        holdings.take_segments(&walk);
        holdings.take_blocks(trace, &active);
        holdings
    }

    fn take_segments(&mut self, walk: &Walk<'_>) {
        self.segments = walk.segments.iter().map(|(start, end, of)| FinalSegment::new(start..end, of)).collect();
        for (start, (end, block)) in &walk.unplaced {
            let block = walk.trace.blocks.get(*block);
            let of = Reserved { stream: block.stream, pool: block.pool, row: SegmentId::NONE, is_expandable: false };
            for addresses in walk.segments.gaps(*start..*end) {
                self.made_up += 1;
                self.made_up_bytes = self.made_up_bytes.saturating_add(addresses.end - addresses.start);
                self.segments.push(FinalSegment::new(addresses, of));
            }
        }
        self.segments.sort_by_key(|segment| segment.addresses.start);
    }

    fn take_blocks(&mut self, trace: &Trace, active: &[BlockId]) {
        let blocks = &trace.blocks;
        for &id in active {
            let address = blocks.address[id.0 as usize];
            let mut is_younger = true;
            while let Some(&former) = self.blocks.last()
                && address < end_of(trace, former)
                && is_younger
            {
                is_younger = id > former;
                self.overlapped += 1;
                if is_younger {
                    self.blocks.pop();
                }
            }
            if is_younger {
                self.blocks.push(id);
            }
        }
        let mut next = 0;
        for segment in &mut self.segments {
            let first = next;
            while let Some(&id) = self.blocks.get(next)
                && blocks.address[id.0 as usize] < segment.addresses.end
            {
                self.cut += u64::from(end_of(trace, id) > segment.addresses.end);
                next += 1;
            }
            segment.blocks = first..next;
        }
    }
}

/// Returns the blocks of `device` that are active at the end and not empty, by address.
fn active_blocks(trace: &Trace, device: DeviceId) -> Vec<BlockId> {
    let blocks = &trace.blocks;
    let is_active = |id: &BlockId| {
        let row = id.0 as usize;
        blocks.device[row] == device && !blocks.free_completed[row].is_some() && blocks.allocated[row] > 0
    };
    let mut active: Vec<BlockId> = blocks.ids().filter(is_active).collect();
    active.sort_by_key(|id| (blocks.address[id.0 as usize], id.0));
    active
}

/// Returns the end address of a block (exclusive).
fn end_of(trace: &Trace, id: BlockId) -> u64 {
    let row = id.0 as usize;
    trace.blocks.address[row].saturating_add(trace.blocks.allocated[row])
}

#[derive(Clone, Copy, Debug)]
struct Reserved {
    stream: StreamId,
    pool: Pool,
    row: SegmentId,
    is_expandable: bool,
}

/// Ranges of the same stream and pool are equal, so that adjacent mapped ranges are merged even if their rows differ.
impl PartialEq for Reserved {
    fn eq(&self, other: &Self) -> bool {
        let is_same = self.stream == other.stream && self.pool == other.pool;
        self.row == other.row || self.is_expandable && other.is_expandable && is_same
    }
}

impl Eq for Reserved {}

struct Walk<'a> {
    trace: &'a Trace,
    /// Reserved memory, in which adjacent mapped ranges of the same stream and pool are merged.
    segments: Ranges<Reserved>,
    /// Address ranges of blocks outside all segments, each with its end and its first block. PyTorch's viewer needs a
    /// segment for every block that ever existed, not only for those that exist at the end.
    unplaced: BTreeMap<u64, (u64, BlockId)>,
}

impl Walk<'_> {
    fn run(&mut self, device: DeviceId) {
        let trace = self.trace;
        for id in trace.segments.ids().take_while(|id| !trace.segments.alloc[id.0 as usize].is_some()) {
            if trace.segments.device[id.0 as usize] == device {
                self.reserve(id, trace.segments.role[id.0 as usize] != SegmentRole::Segment);
            }
        }
        for id in trace.blocks.ids().take_while(|id| !trace.blocks.alloc[id.0 as usize].is_some()) {
            if trace.blocks.device[id.0 as usize] == device {
                self.place(id);
            }
        }
        let events = &trace.events;
        for row in (0..events.len()).filter(|&row| events.device[row] == device) {
            let subject = events.subject[row];
            match trace.transition(EventId(row as u32)) {
                Transition::Allocated { .. } => self.place(BlockId(subject)),
                Transition::Reserved => {
                    self.reserve(SegmentId(subject), events.kind[row] == EventKind::SegmentMap);
                }
                Transition::Released { .. } => {
                    let range = trace.segments.range[subject as usize];
                    self.segments.remove(range.address, range.address.saturating_add(range.bytes));
                }
                _ => {}
            }
        }
    }

    fn reserve(&mut self, row: SegmentId, is_expandable: bool) {
        let Range { address, bytes, stream, pool } = self.trace.segments.range[row.0 as usize];
        let of = Reserved { stream, pool, row, is_expandable };
        self.segments.insert(address, address.saturating_add(bytes), of);
    }

    /// Records the address range of a block if no segment contains it.
    fn place(&mut self, id: BlockId) {
        let mut start = self.trace.blocks.address[id.0 as usize];
        let mut end = end_of(self.trace, id);
        if end == start || self.segments.holding(start).is_some_and(|(_, until, _)| until >= end) {
            return;
        }
        let mut first = id;
        while let Some((&at, &(until, block))) = self.unplaced.range(..=end).next_back() {
            if until < start {
                break;
            }
            if at <= start && end <= until {
                return;
            }
            self.unplaced.remove(&at);
            (start, end, first) = (start.min(at), end.max(until), first.min(block));
        }
        self.unplaced.insert(start, (end, first));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwater_notation::trace_from_text;

    fn described(text: &str) -> (Vec<String>, FinalState) {
        let trace = trace_from_text(text).unwrap();
        let holdings = FinalState::of(&trace, DeviceId(0));
        let segment = |segment: &FinalSegment| {
            let kind = match (segment.row.is_some(), segment.is_expandable) {
                (false, _) => "made up",
                (true, true) => "mapped",
                (true, false) => "segment",
            };
            format!("{kind} {}..{} {:?}", segment.addresses.start, segment.addresses.end, segment.blocks)
        };
        (holdings.segments.iter().map(segment).collect(), holdings)
    }

    #[test]
    fn mapped_ranges_that_touch_are_one_and_unmapping_splits_them() {
        let text = "segment_map 0x0 100\nsegment_map 0x64 100\nalloc a 150\nfree a\nsegment_map 0xc8 50 stream=1\n\
                    segment_unmap 0x32 100\nsegment_alloc 0x1000 64\nsegment_alloc 0x2000 64\nsegment_free 0x1000 64";
        let (segments, holdings) = described(text);
        let expected = ["mapped 0..50 0..0", "mapped 150..200 0..0", "mapped 200..250 0..0", "segment 8192..8256 0..0"];
        assert_eq!(segments, expected);
        assert_eq!(holdings.made_up, 0, "a block may span ranges that were mapped one by one");
    }

    #[test]
    fn blocks_outside_all_segments_get_segments_that_are_reported_as_made_up() {
        let (segments, holdings) = described("segment_alloc 0x64 100\nalloc a 50\nalloc b 100\nalloc c 100\nfree c");
        assert_eq!(segments, ["made up 0..100 0..2", "segment 100..200 2..2", "made up 200..250 2..2"]);
        assert_eq!((holdings.made_up, holdings.made_up_bytes, holdings.cut), (2, 150, 1));
    }

    #[test]
    fn a_block_whose_segment_is_gone_lies_in_one_that_is_made_up() {
        let text = "segment_alloc 0x0 64\nalloc a 64\nsegment_free 0x0 64\nsegment_alloc 0x100 64";
        assert_eq!(described(text).0, ["made up 0..64 0..1", "segment 256..320 1..1"]);
    }

    #[test]
    fn of_two_blocks_in_one_place_the_younger_stays() {
        let trace = trace_from_text("segment_alloc 0x0 1000\nalloc a 100\nalloc b 100\nalloc c 100")
            .unwrap()
            .edited(|trace| trace.blocks.address[2] = 50);
        let holdings = FinalState::of(&trace, DeviceId(0));
        assert_eq!((holdings.blocks, holdings.overlapped), (vec![BlockId(2)], 2));
    }
}
