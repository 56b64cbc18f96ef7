//! The free ranges of a pool in best-fit order, and its unmapped ranges.

use std::collections::BTreeSet;
use std::ops::Bound::{Excluded, Included, Unbounded};

use highwater_recorder::StreamId;

use super::arena::{BlockIndex, Record};

/// The sort key of a stream's free ranges, first by size, then by age of the segment, then by address. The first range
/// that is large enough is the best fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FreeKey {
    bytes: u64,
    registration: u64,
    address: u64,
    pub(super) index: BlockIndex,
}

impl FreeKey {
    #[inline]
    fn of(index: BlockIndex, record: &Record) -> Self {
        Self { bytes: record.bytes, registration: record.registration, address: record.address, index }
    }

    #[inline]
    fn smallest_of(bytes: u64) -> Self {
        Self { bytes, registration: 0, address: 0, index: BlockIndex::FIRST }
    }
}

/// The free ranges of one stream.
///
/// The most recently freed range stays outside the tree until the next one is freed. A program that frees and allocates
/// again, such as a training step, usually gets the same range back, without a change to the tree. Ranges are still
/// taken in the order of their keys.
#[derive(Debug, Default)]
struct StreamRanges {
    latest: Option<FreeKey>,
    tree: BTreeSet<FreeKey>,
}

impl StreamRanges {
    #[inline]
    fn insert(&mut self, key: FreeKey) {
        if let Some(former) = self.latest.replace(key) {
            let inserted = self.tree.insert(former);
            assert!(inserted, "{former:?} is in the list more than once");
        }
    }

    #[inline]
    fn remove(&mut self, key: &FreeKey) -> bool {
        if self.latest == Some(*key) {
            self.latest = None;
            return true;
        }
        self.tree.remove(key)
    }

    /// Returns the first range of at least `bytes`; `None` if there is none.
    #[inline]
    fn first_of(&self, bytes: u64) -> Option<FreeKey> {
        let least = FreeKey::smallest_of(bytes);
        let in_tree = self.tree.range(least..).next().copied();
        let latest = self.latest.filter(|latest| *latest >= least);
        earlier(in_tree, latest)
    }

    fn after(&self, key: FreeKey) -> Option<FreeKey> {
        let in_tree = self.tree.range((Excluded(key), Unbounded)).next().copied();
        let latest = self.latest.filter(|latest| *latest > key);
        earlier(in_tree, latest)
    }

    fn sorted(&self) -> Vec<FreeKey> {
        let mut keys: Vec<FreeKey> = self.tree.iter().copied().chain(self.latest).collect();
        keys.sort_unstable();
        keys
    }
}

#[inline]
fn earlier(a: Option<FreeKey>, b: Option<FreeKey>) -> Option<FreeKey> {
    match (a, b) {
        (Some(a), Some(b)) => Some(if b < a { b } else { a }),
        (one, None) | (None, one) => one,
    }
}

/// The unused ranges of one pool. Ranges are never shared between streams, so each stream has a separate sorted set.
#[derive(Debug, Default)]
pub(super) struct FreeList {
    /// The free ranges of each stream, in stream order. Entries stay when they become empty, since there are few.
    streams: Vec<(StreamId, StreamRanges)>,
    /// Unmapped ranges of expandable segments, ordered by stream and address.
    unmapped: BTreeSet<(StreamId, u64, BlockIndex)>,
    /// The number of searches since the allocator was created, counted while garbage collection is on. It serves as the
    /// clock for the age of cached ranges.
    pub(super) searches: u64,
}

impl FreeList {
    #[inline]
    pub(super) fn insert(&mut self, index: BlockIndex, record: &Record) {
        let place = self.streams.iter().position(|(stream, _)| *stream == record.stream);
        let place = place.unwrap_or_else(|| self.add_stream(record.stream));
        self.streams[place].1.insert(FreeKey::of(index, record));
    }

    #[inline]
    pub(super) fn remove(&mut self, index: BlockIndex, record: &Record) {
        let ranges = self.streams.iter_mut().find(|(stream, _)| *stream == record.stream);
        let removed = ranges.is_some_and(|(_, ranges)| ranges.remove(&FreeKey::of(index, record)));
        assert!(removed, "{index:?} is free but not in the list");
    }

    /// Returns the stream's smallest range of at least `bytes`; `None` if there is none.
    #[inline]
    pub(super) fn best_fit(&self, stream: StreamId, bytes: u64) -> Option<FreeKey> {
        self.ranges(stream)?.first_of(bytes)
    }

    /// Returns the range that follows another of the same stream; `None` after the last one.
    pub(super) fn after(&self, stream: StreamId, key: FreeKey) -> Option<FreeKey> {
        self.ranges(stream)?.after(key)
    }

    /// Returns the stream's ranges of less than `bytes`, largest first.
    pub(super) fn smaller(&self, stream: StreamId, bytes: u64) -> Vec<BlockIndex> {
        let keys = self.ranges(stream).map(StreamRanges::sorted).unwrap_or_default();
        keys.iter().rev().filter(|key| key.bytes < bytes).map(|key| key.index).collect()
    }

    /// Returns every range, stream by stream, smallest first.
    pub(super) fn all(&self) -> Vec<BlockIndex> {
        self.streams.iter().flat_map(|(_, ranges)| ranges.sorted()).map(|key| key.index).collect()
    }

    pub(super) fn insert_unmapped(&mut self, index: BlockIndex, record: &Record) {
        let inserted = self.unmapped.insert((record.stream, record.address, index));
        assert!(inserted, "{index:?} is in the list more than once");
    }

    pub(super) fn remove_unmapped(&mut self, index: BlockIndex, record: &Record) {
        let removed = self.unmapped.remove(&(record.stream, record.address, index));
        assert!(removed, "{index:?} is unmapped but not in the list");
    }

    /// Returns the stream's unmapped ranges, lowest address first.
    pub(super) fn unmapped(&self, stream: StreamId) -> impl Iterator<Item = BlockIndex> {
        let (first, last) = ((stream, 0, BlockIndex::FIRST), (stream, u64::MAX, BlockIndex::NONE));
        self.unmapped.range((Included(first), Included(last))).map(|entry| entry.2)
    }

    pub(super) fn all_unmapped(&self) -> impl Iterator<Item = BlockIndex> {
        self.unmapped.iter().map(|entry| entry.2)
    }

    /// Returns whether the range is in one of the lists, under the key of its record.
    pub(super) fn contains(&self, index: BlockIndex, record: &Record) -> bool {
        let key = FreeKey::of(index, record);
        self.unmapped.contains(&(record.stream, record.address, index))
            || self.ranges(record.stream).is_some_and(|ranges| ranges.latest == Some(key) || ranges.tree.contains(&key))
    }

    #[inline]
    fn ranges(&self, stream: StreamId) -> Option<&StreamRanges> {
        self.streams.iter().find(|(known, _)| *known == stream).map(|(_, ranges)| ranges)
    }

    #[cold]
    fn add_stream(&mut self, stream: StreamId) -> usize {
        let place = self.streams.partition_point(|(known, _)| *known < stream);
        self.streams.insert(place, (stream, StreamRanges::default()));
        place
    }
}
