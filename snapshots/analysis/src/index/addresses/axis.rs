//! An axis of all addresses that were ever reserved, without the gaps between reserved ranges.

use std::ops::Range;

use rayon::prelude::*;

use super::extents::{AddressIndex, PoolAndStream};
use super::map::span_of;
use highwater_snapshots::ids::BlockId;
use highwater_snapshots::ranges::Ranges;
use highwater_snapshots::trace::Trace;

/// A range of addresses, and its position on the axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lane {
    /// The address range of the lane.
    pub addresses: Range<u64>,
    /// The start on the axis, in bytes.
    pub start: u64,
    /// The pool and stream of the first segment of these addresses; `None` if blocks there are outside of all recorded
    /// segments.
    pub home: Option<PoolAndStream>,
}

impl Lane {
    /// Returns its range on the axis.
    pub fn range(&self) -> Range<u64> {
        self.start..self.start + (self.addresses.end - self.addresses.start)
    }
}

/// All addresses that a device ever reserved or that blocks outside of them had, ordered by pool and stream, then by
/// address, without gaps.
///
/// An address keeps its position for the whole recording, even while it is not reserved, so that a position on the axis
/// always means the same memory. A range that served several pools is ordered by the first pool.
#[derive(Clone, Debug, Default)]
pub struct LaneAxis {
    /// The lanes by address, disjoint.
    lanes: Vec<Lane>,
    /// Rows of `lanes` in axis order.
    order: Vec<u32>,
    bytes: u64,
}

/// Address ranges that are already assigned to a pool and stream.
type Claimed = Ranges<Option<PoolAndStream>>;

impl LaneAxis {
    /// Builds the axis from `index`, and from blocks outside its segments.
    pub fn build(trace: &Trace, index: &AddressIndex) -> Self {
        let mut claimed = Claimed::default();
        for extent in index.extents() {
            claim(&mut claimed, extent.addresses.clone(), Some(extent.home));
        }
        for addresses in unplaced(trace, index, &claimed) {
            claim(&mut claimed, addresses, None);
        }
        let lane = |(start, end, home)| Lane { addresses: start..end, start: 0, home };
        let mut lanes: Vec<Lane> = claimed.iter().map(lane).collect();
        let mut order: Vec<u32> = (0..lanes.len() as u32).collect();
        order.sort_by_key(|row| {
            let lane = &lanes[*row as usize];
            (lane.home.is_none(), lane.home, lane.addresses.start)
        });
        let mut bytes = 0_u64;
        for row in &order {
            let lane = &mut lanes[*row as usize];
            lane.start = bytes;
            bytes = bytes.saturating_add(lane.addresses.end - lane.addresses.start);
        }
        Self { lanes, order, bytes }
    }

    /// Returns the length in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The lanes in axis order.
    pub fn lanes(&self) -> impl ExactSizeIterator<Item = &Lane> {
        self.order.iter().map(|row| &self.lanes[*row as usize])
    }

    /// Returns the lane at a position on the axis, and the address there; `None` past the end.
    pub fn at(&self, place: u64) -> Option<(&Lane, u64)> {
        let row = self.order.partition_point(|row| self.lanes[*row as usize].range().end <= place);
        let lane = self.order.get(row).and_then(|row| self.lanes.get(*row as usize))?;
        Some((lane, lane.addresses.start + place.checked_sub(lane.start)?))
    }

    /// Returns the positions of `addresses` on the axis: one range for each lane that overlaps them.
    pub fn places(&self, addresses: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let first = self.lanes.partition_point(|lane| lane.addresses.end <= addresses.start);
        let touched = self.lanes[first..].iter().take_while(move |lane| lane.addresses.start < addresses.end);
        let (from, to) = (addresses.start, addresses.end);
        touched.map(move |lane| {
            let own = &lane.addresses;
            lane.start + (from.max(own.start) - own.start)..lane.start + (to.min(own.end) - own.start)
        })
    }
}

/// Assigns to `home` the addresses that are not assigned yet.
fn claim(claimed: &mut Claimed, addresses: Range<u64>, home: Option<PoolAndStream>) {
    for free in claimed.gaps(addresses) {
        claimed.insert(free.start, free.end, home);
    }
}

/// The ranges of blocks that are not entirely inside claimed ranges; overlapping and adjacent ones are merged.
fn unplaced(trace: &Trace, index: &AddressIndex, claimed: &Claimed) -> Vec<Range<u64>> {
    let mut known: Vec<Range<u64>> = Vec::new();
    for (start, end, _) in claimed.iter() {
        match known.last_mut().filter(|last| last.end == start) {
            Some(last) => last.end = end,
            None => known.push(start..end),
        }
    }
    let is_outside = |span: &Range<u64>| {
        let row = known.partition_point(|range| range.end <= span.start);
        !known.get(row).is_some_and(|range| range.start <= span.start && span.end <= range.end)
    };
    let rows = (0..trace.blocks.len() as u32).into_par_iter().map(BlockId);
    let ours = rows.filter(|id| trace.blocks.device[id.0 as usize] == index.device());
    let spans = ours.map(|id| span_of(trace, id)).filter(|span| !span.is_empty() && is_outside(span));
    let mut spans: Vec<Range<u64>> = spans.collect();
    spans.par_sort_unstable_by_key(|span| (span.start, span.end));
    let mut joined: Vec<Range<u64>> = Vec::new();
    for span in spans {
        match joined.last_mut().filter(|last| last.end >= span.start) {
            Some(last) => last.end = last.end.max(span.end),
            None => joined.push(span),
        }
    }
    joined
}
