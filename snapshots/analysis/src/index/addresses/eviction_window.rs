//! Finds the smallest set of adjacent live blocks that have to be freed so that a request fits.

use std::fmt;
use std::ops::Range;

use super::map::{AddressMap, Content, Piece, ReservedSegment};
use highwater_snapshots::{BlockId, Category, Trace, count_of, format_bytes};

/// A set of live blocks that have to be freed so that a request fits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvictionSet {
    /// The live blocks, by address.
    pub blocks: Vec<BlockId>,
    /// Bytes of the live blocks.
    pub bytes: u64,
    /// Whether the set is known to have the fewest bytes of its kind.
    pub is_smallest: bool,
    /// The memory that becomes free if the blocks are freed.
    pub freed: Freed,
}

/// The memory that becomes free if a set of blocks is freed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Freed {
    /// A range of addresses in a segment.
    Range(Range<u64>),
    /// Whole segments, and pages of expandable segments, which can be released to the driver.
    Segments {
        /// Number of segments.
        segments: u64,
        /// Number of pages.
        pages: u64,
        /// Total bytes of the segments and pages.
        bytes: u64,
    },
}

impl Freed {
    /// Returns the addresses as a range; `None` for segments and pages.
    pub fn range(&self) -> Option<Range<u64>> {
        match self {
            Self::Range(range) => Some(range.clone()),
            Self::Segments { .. } => None,
        }
    }
}

/// Formats a clause, such as `a range of 20 MiB at 0x0 becomes free` or `3 segments with 60 MiB in all are returned to
/// the driver`.
impl fmt::Display for Freed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Range(range) => {
                write!(f, "a range of {} at {:#x} becomes free", format_bytes(range.end - range.start), range.start)
            }
            Self::Segments { segments, pages, bytes } => {
                let counts = [(*segments, "segment"), (*pages, "page")].into_iter();
                let parts: Vec<String> =
                    counts.filter(|(count, _)| *count > 0).map(|(count, noun)| count_of(count, noun)).collect();
                let (parts, bytes) = (parts.join(" and "), format_bytes(*bytes));
                match segments + pages {
                    1 => write!(f, "{parts} of {bytes} is returned to the driver"),
                    _ => write!(f, "{parts} with {bytes} in all are returned to the driver"),
                }
            }
        }
    }
}

/// Returns whether a program can do without blocks of `category`, unlike parameters, buffers, inputs and optimizer state.
pub(crate) fn is_dispensable(category: Category) -> bool {
    !matches!(category, Category::Parameter | Category::Buffer | Category::Input | Category::OptimizerState)
}

/// Returns whether `piece` belongs to a live block that a program needs.
pub(super) fn is_kept(trace: &Trace, piece: &Piece) -> bool {
    matches!(piece.content, Content::Live(id) | Content::Rounding(id)
        if !is_dispensable(trace.blocks.category[id.0 as usize]))
}

/// Returns the adjacent dispensable blocks with the fewest bytes whose frees would make a range of `needed` bytes free.
/// Searches in `segments` of `map`; `None` if there is no such range. An expandable segment may grow by `tail` bytes.
pub fn eviction_window<'a>(
    trace: &Trace,
    map: &'a AddressMap,
    segments: impl Iterator<Item = &'a ReservedSegment>,
    needed: u64,
    tail: u64,
) -> Option<EvictionSet> {
    let mut best: Option<(u64, Window)> = None;
    for segment in segments {
        let tail = if segment.is_expandable { tail } else { 0 };
        let cheapest = cheapest(trace, map, segment, [needed, tail]);
        if let Some((cost, window)) = cheapest.filter(|(cost, _)| best.as_ref().is_none_or(|(least, _)| cost < least)) {
            best = Some((cost, window));
        }
    }
    let (bytes, Window { pieces, beyond }) = best?;
    let pieces = map.pieces.get(pieces)?;
    let live = |piece: &Piece| match piece.content {
        Content::Live(block) | Content::Rounding(block) => Some(block),
        _ => None,
    };
    let mut blocks: Vec<BlockId> = pieces.iter().filter_map(live).collect();
    blocks.dedup();
    let (start, free) = (pieces.first()?.addresses.start, pieces.iter().map(Piece::bytes).sum::<u64>());
    let freed = Freed::Range(start..start.saturating_add(free).saturating_add(beyond));
    Some(EvictionSet { blocks, bytes, is_smallest: true, freed })
}

struct Window {
    pieces: Range<usize>,
    beyond: u64,
}

/// Returns the window of at least `needed` bytes with the fewest live bytes, and that number. It slides over the
/// segment: of the windows with the same end, the shortest that is long enough has the fewest.
fn cheapest(trace: &Trace, map: &AddressMap, segment: &ReservedSegment, sizes: [u64; 2]) -> Option<(u64, Window)> {
    let [needed, tail] = sizes;
    let pieces = map.pieces_of(segment);
    let length = |row: usize| pieces.get(row).map_or(0, |piece| piece.bytes());
    // Blocks are freed as a whole: a block's rounding stays with its requested bytes.
    let is_seam = |row: usize| {
        !matches!(pieces.get(row).map(|piece| piece.content), Some(Content::Rounding(of))
        if row > 0 && pieces[row - 1].content == Content::Live(of))
    };
    let cost = |row: usize| match pieces.get(row).map(|piece| piece.content) {
        Some(Content::Live(_) | Content::Rounding(_)) => length(row),
        _ => 0,
    };
    let mut best: Option<(u64, Window)> = None;
    let (mut first, mut free, mut price) = (0, 0_u64, 0_u64);
    for row in 0..pieces.len() {
        if pieces[row].content == Content::Unmapped || is_kept(trace, &pieces[row]) {
            (first, free, price) = (row + 1, 0, 0);
            continue;
        }
        free += length(row);
        price += cost(row);
        // The window may extend past the end of a segment; within it, a block ends with its rounding.
        let is_last = pieces[row + 1..].iter().all(|piece| piece.content == Content::Unmapped);
        let beyond = if is_last { tail } else { 0 };
        if !is_seam(row + 1) {
            continue;
        }
        loop {
            // The next piece that may begin a window.
            let mut next = first + 1;
            while next <= row && !is_seam(next) {
                next += 1;
            }
            let dropped: u64 = (first..next.min(row + 1)).map(length).sum();
            if next > row || (free - dropped).saturating_add(beyond) < needed {
                break;
            }
            price -= (first..next).map(cost).sum::<u64>();
            (first, free) = (next, free - dropped);
        }
        if free.saturating_add(beyond) >= needed && best.as_ref().is_none_or(|(least, _)| price < *least) {
            let offset = segment.pieces.start;
            let beyond = needed.saturating_sub(free);
            best = Some((price, Window { pieces: offset + first..offset + row + 1, beyond }));
        }
    }
    best
}
