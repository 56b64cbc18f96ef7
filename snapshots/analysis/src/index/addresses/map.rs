//! The content of every reserved address at one point in the recording.

use std::ops::Range;

use highwater_snapshots::ids::{BlockId, SegmentId};
use highwater_snapshots::trace::Trace;

use super::extents::{AddressIndex, Extent, PoolAndStream};
use crate::index::live::LiveIndex;
use crate::index::series::Series;
use crate::metric::{Metric, Totals};

/// The content of a piece of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Content {
    /// The requested bytes of a live block.
    Live(BlockId),
    /// The bytes added to a live block by rounding.
    Rounding(BlockId),
    /// A block that the program freed but that another stream may still use.
    Waiting(BlockId),
    /// Free memory.
    Hole,
    /// Unmapped address space of an expandable segment. Not included in any total.
    Unmapped,
}

impl Content {
    /// Returns the block at these addresses, if there is one.
    pub fn block(self) -> Option<BlockId> {
        match self {
            Self::Live(block) | Self::Rounding(block) | Self::Waiting(block) => Some(block),
            Self::Hole | Self::Unmapped => None,
        }
    }

    /// The display name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Live(_) => "live block",
            Self::Rounding(_) => "rounding loss",
            Self::Waiting(_) => "awaiting free",
            Self::Hole => "free",
            Self::Unmapped => "not mapped",
        }
    }
}

/// A range of bytes of a segment with the same content; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The address range.
    pub addresses: Range<u64>,
    /// The use of the bytes.
    pub content: Content,
}

impl Piece {
    /// Returns the length in bytes.
    pub fn bytes(&self) -> u64 {
        self.addresses.end - self.addresses.start
    }
}

/// The use of the bytes of one or more segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes requested for live blocks.
    pub requested: u64,
    /// Bytes added to live blocks by rounding.
    pub rounding: u64,
    /// Bytes of freed blocks awaiting free.
    pub waiting: u64,
    /// Bytes in holes, which are free.
    pub free: u64,
    /// Bytes of address space without mapped memory.
    pub unmapped: u64,
    /// Bytes of the largest hole.
    pub largest_hole: u64,
    /// Number of blocks that are live or awaiting free.
    pub blocks: u64,
    /// Number of holes.
    pub holes: u64,
}

impl Usage {
    /// Bytes of live blocks, after rounding.
    pub fn allocated(&self) -> u64 {
        self.requested + self.rounding
    }

    /// Bytes reserved from the driver.
    pub fn reserved(&self) -> u64 {
        self.allocated() + self.waiting + self.free
    }

    /// Adds the usage of another segment.
    pub fn add(&mut self, other: &Self) {
        self.requested += other.requested;
        self.rounding += other.rounding;
        self.waiting += other.waiting;
        self.free += other.free;
        self.unmapped += other.unmapped;
        self.largest_hole = self.largest_hole.max(other.largest_hole);
        self.blocks += other.blocks;
        self.holes += other.holes;
    }

    fn take(&mut self, piece: &Piece) {
        let bytes = piece.bytes();
        match piece.content {
            Content::Live(_) => self.requested += bytes,
            Content::Rounding(_) => self.rounding += bytes,
            Content::Waiting(_) => self.waiting += bytes,
            Content::Unmapped => self.unmapped += bytes,
            Content::Hole => {
                self.free += bytes;
                self.largest_hole = self.largest_hole.max(bytes);
                self.holes += 1;
            }
        }
    }
}

/// A segment at some point: a segment from the driver, or an expandable segment with all mapped parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReservedSegment {
    /// The range from the first to the last address, including an expandable segment's unmapped parts.
    pub addresses: Range<u64>,
    /// The pool and stream that the segment serves.
    pub home: PoolAndStream,
    /// Whether the segment is mapped page by page.
    pub is_expandable: bool,
    /// The row of the segment in the trace's table of segments. For a segment with several rows, the first.
    pub row: SegmentId,
    /// The range of the segment's pieces in [`AddressMap::pieces`]. The pieces cover the segment's addresses exactly.
    pub pieces: Range<usize>,
    /// The use of the segment's bytes. [`Usage::reserved`] is its part of the device's total.
    pub usage: Usage,
}

impl ReservedSegment {
    /// Returns whether the segment is entirely free, not expandable and not private. The allocator releases such
    /// segments before a request fails.
    pub fn is_returnable(&self) -> bool {
        self.usage.free == self.usage.reserved() && !self.is_expandable && self.home.private.is_none()
    }
}

/// A block that could not be placed in the map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnplacedBlock {
    /// The block outside of all segments.
    pub block: BlockId,
    /// The bytes after rounding.
    pub bytes: u64,
    /// Whether the block is awaiting free.
    pub is_waiting: bool,
    /// The reason the block could not be placed.
    pub why: UnplacedReason,
}

/// The reason a block could not be placed in the map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnplacedReason {
    /// The block is outside all recorded segments, or only partly inside one.
    Outside,
    /// A later block overlaps it, because the free of the earlier block was not recorded.
    Covered,
}

/// All memory reserved on one device at some point in the recording, byte by byte.
///
/// Pieces add up to the segments, and segments to `reserved`. Live blocks, in segments or in `strays`, add up to
/// `allocated`; together with those awaiting free, to `active`.
#[derive(Clone, Debug)]
pub struct AddressMap {
    /// Number of events before this point.
    pub moment: usize,
    /// The device's totals at this point.
    pub totals: Totals,
    /// The segments, by address.
    pub segments: Vec<ReservedSegment>,
    /// The pieces of all segments, by address.
    pub pieces: Vec<Piece>,
    /// Blocks that could not be placed, by address.
    pub strays: Vec<UnplacedBlock>,
    /// The use of the bytes of all segments.
    pub usage: Usage,
}

impl AddressMap {
    /// Builds the map of `index` at `moment`. Queries `live` once, and sorts the result.
    pub fn at(trace: &Trace, index: &AddressIndex, live: &LiveIndex, series: &Series, moment: usize) -> Self {
        let mut map = Self {
            moment,
            totals: series.before_position(trace, moment),
            segments: Vec::new(),
            pieces: Vec::new(),
            strays: Vec::new(),
            usage: Usage::default(),
        };
        let mut extents: Vec<&Extent> = index.extents().iter().filter(|extent| extent.is_reserved(moment)).collect();
        extents.sort_by_key(|extent| extent.addresses.start);
        let blocks = live.before_position(trace, Metric::Active, moment);
        let placed = map.place(trace, blocks, &mapped_runs(&extents));
        map.fill(trace, index, &extents, &placed);
        map
    }

    /// Whether the mapped bytes equal the `reserved` total; false if releases are missing from the recording.
    pub fn is_exact(&self) -> bool {
        self.usage.reserved() == self.totals.reserved
    }

    /// Returns the piece that contains `address`, and its segment; `None` if no segment covers `address`.
    pub fn piece_at(&self, address: u64) -> Option<(&ReservedSegment, &Piece)> {
        let segment = &self.segments[self.segment_at(address)?];
        let pieces = &self.pieces[segment.pieces.clone()];
        Some((segment, pieces.get(pieces.partition_point(|piece| piece.addresses.end <= address))?))
    }

    /// Returns the index of the segment that covers `address`; `None` if none does.
    pub fn segment_at(&self, address: u64) -> Option<usize> {
        let row = self.segments.partition_point(|segment| segment.addresses.end <= address);
        self.segments.get(row).filter(|segment| segment.addresses.start <= address).map(|_| row)
    }

    /// The pieces of a segment.
    pub fn pieces_of(&self, segment: &ReservedSegment) -> &[Piece] {
        self.pieces.get(segment.pieces.clone()).unwrap_or_default()
    }

    /// Returns the bytes of blocks outside of segments: of live blocks, and of freed blocks that another stream still
    /// uses.
    pub fn stray_bytes(&self) -> (u64, u64) {
        self.strays.iter().fold((0, 0), |(live, waiting), stray| match stray.is_waiting {
            true => (live, waiting + stray.bytes),
            false => (live + stray.bytes, waiting),
        })
    }

    /// Sorts active `blocks` by address. Removes blocks that are outside of `runs`, or covered by a later block.
    fn place(&mut self, trace: &Trace, mut blocks: Vec<BlockId>, runs: &[Range<u64>]) -> Vec<BlockId> {
        blocks.retain(|id| trace.blocks.allocated[id.0 as usize] > 0);
        blocks.sort_unstable_by_key(|id| (trace.blocks.address[id.0 as usize], id.0));
        let mut placed: Vec<BlockId> = Vec::with_capacity(blocks.len());
        let mut run = 0;
        for id in blocks {
            let span = span_of(trace, id);
            while runs.get(run).is_some_and(|run| run.end <= span.start) {
                run += 1;
            }
            if !runs.get(run).is_some_and(|run| run.start <= span.start && span.end <= run.end) {
                self.stray(trace, id, UnplacedReason::Outside);
                continue;
            }
            let mut is_younger = true;
            while let Some(&former) = placed.last()
                && is_younger
                && span_of(trace, former).end > span.start
            {
                is_younger = id > former;
                if is_younger {
                    placed.pop();
                    self.stray(trace, former, UnplacedReason::Covered);
                }
            }
            match is_younger {
                true => placed.push(id),
                false => self.stray(trace, id, UnplacedReason::Covered),
            }
        }
        placed
    }

    fn stray(&mut self, trace: &Trace, block: BlockId, why: UnplacedReason) {
        let is_waiting = is_waiting(trace, block, self.moment);
        self.strays.push(UnplacedBlock { block, bytes: trace.blocks.allocated[block.0 as usize], is_waiting, why });
    }

    /// Creates the segments of `extents`, each with its pieces.
    fn fill(&mut self, trace: &Trace, index: &AddressIndex, extents: &[&Extent], placed: &[BlockId]) {
        let mut next = 0;
        let mut at = 0;
        while let Some(first) = extents.get(at) {
            let count = match first.growing {
                Some(_) => extents[at..].iter().take_while(|extent| extent.growing == first.growing).count(),
                None => 1,
            };
            let parts = &extents[at..at + count];
            let Some(last) = parts.last() else { break };
            let mut addresses = first.addresses.start..last.addresses.end;
            if let Some(whole) = first.growing.and_then(|row| index.growing().get(row as usize)) {
                // Others may have reserved parts of it since.
                let before =
                    at.checked_sub(1).and_then(|row| extents.get(row)).map_or(0, |before| before.addresses.end);
                let before = before.max(self.segments.last().map_or(0, |segment| segment.addresses.end));
                let after = extents.get(at + parts.len()).map_or(u64::MAX, |after| after.addresses.start);
                addresses.start = addresses.start.min(whole.addresses.start.max(before));
                addresses.end = addresses.end.max(whole.addresses.end.min(after));
            }
            let first_piece = self.pieces.len();
            let mut usage = Usage::default();
            let mut from = addresses.start;
            for run in mapped_runs(parts) {
                self.push(&mut usage, from..run.start, Content::Unmapped);
                from = run.start;
                while let Some(&id) = placed.get(next)
                    && trace.blocks.address[id.0 as usize] < run.end
                {
                    let block = span_of(trace, id);
                    self.push(&mut usage, from..block.start, Content::Hole);
                    from = block.end;
                    usage.blocks += 1;
                    if is_waiting(trace, id, self.moment) {
                        self.push(&mut usage, block, Content::Waiting(id));
                    } else {
                        let asked = block.start.saturating_add(trace.blocks.requested[id.0 as usize]).min(block.end);
                        self.push(&mut usage, block.start..asked, Content::Live(id));
                        self.push(&mut usage, asked..block.end, Content::Rounding(id));
                    }
                    next += 1;
                }
                self.push(&mut usage, from..run.end, Content::Hole);
                from = run.end;
            }
            self.push(&mut usage, from..addresses.end, Content::Unmapped);
            self.usage.add(&usage);
            self.segments.push(ReservedSegment {
                addresses,
                home: first.home,
                is_expandable: first.growing.is_some(),
                row: first.row,
                pieces: first_piece..self.pieces.len(),
                usage,
            });
            at += parts.len();
        }
    }

    fn push(&mut self, usage: &mut Usage, addresses: Range<u64>, content: Content) {
        if !addresses.is_empty() {
            let piece = Piece { addresses, content };
            usage.take(&piece);
            self.pieces.push(piece);
        }
    }
}

/// Returns the reserved ranges that may contain a block; adjacent mapped ranges of the same segment are merged.
fn mapped_runs(extents: &[&Extent]) -> Vec<Range<u64>> {
    let mut runs: Vec<(Range<u64>, Option<u32>)> = Vec::new();
    for extent in extents {
        match runs.last_mut() {
            Some((run, growing))
                if growing.is_some() && *growing == extent.growing && run.end == extent.addresses.start =>
            {
                run.end = extent.addresses.end;
            }
            _ => runs.push((extent.addresses.clone(), extent.growing)),
        }
    }
    runs.into_iter().map(|(run, _)| run).collect()
}

pub(super) fn span_of(trace: &Trace, id: BlockId) -> Range<u64> {
    let row = id.0 as usize;
    let start = trace.blocks.address[row];
    start..start.saturating_add(trace.blocks.allocated[row])
}

/// Returns whether an active block has already been freed at `moment`, and is therefore awaiting free.
pub(super) fn is_waiting(trace: &Trace, id: BlockId, moment: usize) -> bool {
    let requested = trace.blocks.free_requested[id.0 as usize];
    trace.was_waiting_at_start(id) || requested.index().is_some_and(|event| event < moment)
}
