//! The bytes of a total outside of blocks: free in segments, by kind of segment, and in use outside of the allocator.

use std::collections::BTreeMap;

use highwater_snapshots::ids::{StackId, StreamId};
use highwater_snapshots::trace::Trace;

use super::addresses::{AddressIndex, AddressMap, UnplacedReason};
use super::live::LiveIndex;
use super::pools::BlockPool;
use super::series::Series;
use crate::metric::Metric;

/// The kind of bytes outside of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Beside {
    /// The whole total, which cannot be split: it is less than the reserved bytes, or these are less than the active
    /// bytes.
    LessThanReserved,
    /// Free memory in segments of this kind; `None` if the recorded segments are inconsistent with the totals.
    Free(Option<SegmentKind>),
    /// Memory in use on the device outside of the allocator.
    Outside,
}

/// The properties by which segments are grouped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentKind {
    /// The pool of the segments.
    pub pool: BlockPool,
    /// The stream of the segments.
    pub stream: StreamId,
    /// The size of the segment; for an expandable segment, its mapped bytes.
    pub bytes: u64,
}

impl Beside {
    /// The name of this kind of memory. Parentheses distinguish it from names of blocks.
    pub const fn name(self) -> &'static str {
        match self {
            Self::LessThanReserved => "(less than reserved)",
            Self::Free(_) => "(free in segments)",
            Self::Outside => "(outside the allocator)",
        }
    }

    /// Whether the bytes are free in segments.
    pub const fn is_free(self) -> bool {
        matches!(self, Self::Free(_))
    }

    /// The values of the segments in which the bytes are free; `None` if unknown.
    pub(crate) fn segment(self) -> Option<SegmentValues> {
        match self {
            Self::Free(kind) => kind.map(|kind| SegmentValues { kind, stack: None, step: None }),
            Self::LessThanReserved | Self::Outside => None,
        }
    }
}

/// Values of grouping keys for a segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SegmentValues {
    pub(crate) kind: SegmentKind,
    /// The stack that reserved the segment; `None` for several segments together.
    pub(crate) stack: Option<StackId>,
    /// The step in which the segment was reserved; `None` for several segments together.
    pub(crate) step: Option<u32>,
}

/// Returns the bytes of `metric` outside of blocks after `position` events; empty for metrics that are sums over
/// blocks. The boolean is whether blocks account for the rest; false if all bytes are [`Beside::LessThanReserved`].
pub fn non_block_bytes(
    trace: &Trace,
    (series, live): (&Series, &LiveIndex),
    metric: Metric,
    position: usize,
) -> (bool, Vec<(Beside, u64)>) {
    if metric.is_of_blocks() {
        return (true, Vec::new());
    }
    let totals = series.before_position(trace, position);
    let whole = if metric == Metric::Reserved { totals.reserved } else { totals.device_used };
    if whole < totals.reserved || totals.reserved < totals.active {
        return (false, vec![(Beside::LessThanReserved, whole)]);
    }
    let free = totals.reserved - totals.active;
    let by_segment = if free > 0 { free_by_segment(trace, series, live, position) } else { BTreeMap::new() };
    let mut beside: Vec<(Beside, u64)> =
        by_segment.into_iter().map(|(kind, bytes)| (Beside::Free(Some(kind)), bytes)).collect();
    if beside.iter().map(|(_, bytes)| bytes).sum::<u64>() != free {
        beside = vec![(Beside::Free(None), free)];
    }
    beside.push((Beside::Outside, whole - totals.reserved));
    beside.retain(|(_, bytes)| *bytes > 0);
    (true, beside)
}

/// Returns the free bytes in each kind of segment. Blocks without a recorded free count as used.
fn free_by_segment(trace: &Trace, series: &Series, live: &LiveIndex, position: usize) -> BTreeMap<SegmentKind, u64> {
    let index = AddressIndex::build(trace, series.device());
    let map = AddressMap::at(trace, &index, live, series, position);
    let mut free: Vec<u64> = map.segments.iter().map(|segment| segment.usage.free).collect();
    for stray in map.strays.iter().filter(|stray| stray.why == UnplacedReason::Covered) {
        if let Some(segment) = map.segment_at(trace.blocks.address[stray.block.0 as usize]) {
            free[segment] = free[segment].saturating_sub(stray.bytes);
        }
    }
    let mut sums = BTreeMap::new();
    for (segment, free) in map.segments.iter().zip(free) {
        let pool = BlockPool::of_home(&segment.home);
        let kind = SegmentKind { pool, stream: segment.home.stream, bytes: segment.usage.reserved() };
        *sums.entry(kind).or_default() += free;
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwater_notation::trace_from_text;
    use highwater_snapshots::DeviceId;

    /// The bytes beside blocks at these addresses, at the end.
    fn beside(text: &str, addresses: &[u64], metric: Metric) -> Vec<(String, u64)> {
        let trace = trace_from_text(text).unwrap().edited(|trace| trace.blocks.address = addresses.to_vec());
        let (series, live) = (Series::build(&trace, DeviceId(0)), LiveIndex::build(&trace, DeviceId(0)));
        let position = trace.events.len();
        let (is_split, rows) = non_block_bytes(&trace, (&series, &live), metric, position);
        let totals = series.before_position(&trace, position);
        let of_blocks = if metric.is_of_blocks() { totals.get(metric) } else { totals.active };
        let of_blocks = if is_split { of_blocks } else { 0 };
        assert_eq!(rows.iter().map(|(_, bytes)| bytes).sum::<u64>() + of_blocks, totals.get(metric), "{rows:?}");
        let name = |beside: Beside| match beside {
            Beside::Free(Some(SegmentKind { pool, stream, bytes })) => format!("{pool}, {}, {bytes}", stream.0),
            other => other.name().to_owned(),
        };
        rows.into_iter().map(|(beside, bytes)| (name(beside), bytes)).collect()
    }

    fn named(rows: &[(&str, u64)]) -> Vec<(String, u64)> {
        rows.iter().map(|(name, bytes)| ((*name).to_owned(), *bytes)).collect()
    }

    const SEGMENTS: &str = "
        segment_alloc 0x100000 4096 large
        attribute segment_pool_id \"(0, 1)\"
        segment_alloc 0x200000 8192 large stream=7
        segment_alloc 0x300000 8192 large stream=7
        alloc a 512
        alloc b 500/512 stream=7
    ";
    const ADDRESSES: [u64; 2] = [0x10_0000, 0x20_0000];

    #[test]
    fn free_bytes_belong_to_the_segments_that_they_lie_in() {
        let rows = |more: &str, metric| beside(&format!("{SEGMENTS}{more}"), &ADDRESSES, metric);
        let free = [("large, 7, 8192", 2 * 8192 - 512), ("(0,1), 0, 4096", 4096 - 512)];
        assert_eq!(rows("", Metric::Reserved), named(&free));
        assert!(rows("", Metric::Allocated).is_empty());
        let outside = [free[0], free[1], ("(outside the allocator)", 1000)];
        assert_eq!(rows("device_used 21480", Metric::DeviceUsed), named(&outside));
        assert_eq!(rows("device_used 7", Metric::DeviceUsed), named(&[("(less than reserved)", 7)]));
    }

    #[test]
    fn a_block_whose_free_was_not_recorded_takes_its_bytes_from_its_segment() {
        let rows = beside(&format!("{SEGMENTS}alloc c 512"), &[0x10_0000, 0x20_0000, 0x10_0000], Metric::Reserved);
        assert_eq!(rows, named(&[("large, 7, 8192", 2 * 8192 - 512), ("(0,1), 0, 4096", 4096 - 1024)]));
    }

    #[test]
    fn where_blocks_lie_outside_of_all_segments_free_bytes_are_not_divided() {
        let rows = beside(&format!("{SEGMENTS}alloc c 512"), &[0x10_0000, 0x20_0000, 0x90_0000], Metric::Reserved);
        assert_eq!(rows, named(&[("(free in segments)", 4096 + 2 * 8192 - 3 * 512)]));
    }
}
