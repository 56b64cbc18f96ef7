//! Finds the fewest bytes of neighbouring live blocks to free so that a request fits.

use super::map::{AddressMap, Content, ReservedSegment};
use highwater_snapshots::ids::BlockId;

/// Neighbouring live blocks in one segment that prevent a request from fitting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvictionWindow {
    /// The start address of the range that would become free.
    pub address: u64,
    /// The length of that range.
    pub free: u64,
    /// Bytes of the live blocks in it: no other range of the pool that is long enough has fewer.
    pub bytes: u64,
    /// Bytes in it that wait for a stream, and will become free anyway.
    pub waiting: u64,
    /// The live blocks, by address.
    pub blocks: Vec<BlockId>,
}

/// The cheapest range of `needed` bytes among `segments` of `map`; `None` if no segment is that long. An expandable
/// segment may grow by `tail` bytes.
pub fn eviction_window<'a>(
    map: &'a AddressMap,
    segments: impl Iterator<Item = &'a ReservedSegment>,
    needed: u64,
    tail: u64,
) -> Option<EvictionWindow> {
    let mut best: Option<(u64, Window)> = None;
    for segment in segments {
        let tail = if segment.is_expandable { tail } else { 0 };
        let cheapest = cheapest(map, segment, needed, tail);
        if let Some((cost, window)) = cheapest.filter(|(cost, _)| best.as_ref().is_none_or(|(least, _)| cost < least)) {
            best = Some((cost, window));
        }
    }
    let (bytes, Window { pieces, beyond }) = best?;
    let pieces = map.pieces.get(pieces)?;
    let mut blocks: Vec<BlockId> = Vec::new();
    let mut waiting = 0;
    for piece in pieces {
        match piece.content {
            Content::Live(block) | Content::Rounding(block) if blocks.last() != Some(&block) => blocks.push(block),
            Content::Waiting(_) => waiting += piece.bytes(),
            _ => {}
        }
    }
    Some(EvictionWindow {
        address: pieces.first()?.addresses.start,
        free: pieces.iter().map(|piece| piece.bytes()).sum::<u64>().saturating_add(beyond),
        bytes,
        waiting,
        blocks,
    })
}

/// Neighbouring pieces, and bytes after the end of the segment.
struct Window {
    pieces: std::ops::Range<usize>,
    beyond: u64,
}

/// Slides a window over the segment: for each end, the shortest one that is long enough, which has the fewest live
/// bytes.
fn cheapest(map: &AddressMap, segment: &ReservedSegment, needed: u64, tail: u64) -> Option<(u64, Window)> {
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
        if pieces[row].content == Content::Unmapped {
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
