//! Computes the largest request that would succeed, by pool and stream.

use std::collections::BTreeMap;

use super::extents::PoolAndStream;
use super::map::{AddressMap, Content, Piece, Usage};
use crate::metric::Totals;
use highwater_snapshots::alloc_rules::AllocRules;

/// The segments of one pool and stream, and the largest requests that they could serve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolFit {
    /// The pool and stream.
    pub home: PoolAndStream,
    /// Number of segments.
    pub segments: u64,
    /// The use of the segments' bytes.
    pub usage: Usage,
    /// The largest request that fits into reserved memory; 0 if there is no free range.
    pub fits: u64,
    /// The start address of the free range that would serve the request.
    pub address: Option<u64>,
    /// The largest request that fits if the allocator releases its entirely free segments and the driver provides all
    /// of
    /// its free memory; `None` if the capacity is unknown, or the pool is private.
    pub fits_with_driver: Option<u64>,
}

/// The segments of `map` and the largest requests, by pool and stream. `driver_free` is the driver's free bytes.
pub fn rooms(map: &AddressMap, rules: &AllocRules, driver_free: Option<u64>) -> Vec<PoolFit> {
    let mut rooms: BTreeMap<PoolAndStream, PoolFit> = BTreeMap::new();
    // Before it fails, the allocator releases entirely free segments to the driver.
    let returnable: u64 =
        map.segments.iter().filter(|segment| segment.is_returnable()).map(|segment| segment.usage.free).sum();
    let available = driver_free.map(|free| free.saturating_add(returnable));
    for segment in &map.segments {
        let home = segment.home;
        let room = rooms.entry(home).or_insert_with(|| PoolFit {
            home,
            segments: 0,
            usage: Usage::default(),
            fits: 0,
            address: None,
            fits_with_driver: available
                .filter(|_| home.private.is_none())
                .map(|bytes| rules.largest_new(home.pool, bytes)),
        });
        room.segments += 1;
        room.usage.add(&segment.usage);
        for piece in map.pieces_of(segment).iter().filter(|piece| piece.content == Content::Hole) {
            let fits = rules.largest_in(home.pool, piece.bytes());
            if fits > room.fits {
                (room.fits, room.address) = (fits, Some(piece.addresses.start));
            }
        }
        if let Some(with_driver) = &mut room.fits_with_driver {
            let grown = match segment.is_expandable {
                true => grown(map.pieces_of(segment), available.unwrap_or(0), rules.page(home.pool)),
                false => 0,
            };
            *with_driver = (*with_driver).max(room.fits).max(rules.largest_in(home.pool, grown));
        }
    }
    rooms.into_values().collect()
}

/// Returns the driver's free memory: the capacity minus the larger of `device_used` and `reserved`. `None` if the
/// capacity is 0, which means that it is unknown.
pub fn driver_free(capacity: u64, totals: &Totals) -> Option<u64> {
    (capacity > 0).then(|| capacity.saturating_sub(totals.device_used.max(totals.reserved)))
}

/// Returns the longest free range of an expandable segment if pages of up to `bytes` bytes are mapped into it or after
/// its end.
fn grown(pieces: &[Piece], bytes: u64, page: u64) -> u64 {
    let budget = bytes / page.max(1) * page.max(1);
    let mut longest = 0;
    for first in 0..pieces.len() {
        let is_first = first == 0 || !is_open(&pieces[first - 1]) || pieces[first - 1].content == Content::Unmapped;
        if !is_open(&pieces[first]) || !is_first {
            continue;
        }
        let (mut length, mut left) = (0_u64, budget);
        let mut rest = pieces[first..].iter();
        let is_stopped = rest.any(|piece| match piece.content {
            Content::Hole => {
                length += piece.bytes();
                false
            }
            Content::Unmapped => {
                let mapped = piece.bytes().min(left);
                (length, left) = (length + mapped, left - mapped);
                mapped < piece.bytes()
            }
            _ => true,
        });
        longest = longest.max(if is_stopped { length } else { length.saturating_add(left) });
    }
    // The segment can also grow after its last block.
    longest.max(budget)
}

fn is_open(piece: &Piece) -> bool {
    matches!(piece.content, Content::Hole | Content::Unmapped)
}
