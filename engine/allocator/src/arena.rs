//! Records of all address ranges of an allocator, each linked to its neighbours in memory.

use highwater_recorder::context::Context;
use highwater_recorder::{Pool, StreamId};

/// The index of a record in the arena, reused once the record is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct BlockIndex(u32);

impl BlockIndex {
    /// The index that refers to no record.
    pub(super) const NONE: Self = Self(u32::MAX);
    /// The index that sorts first.
    pub(super) const FIRST: Self = Self(0);

    #[inline]
    pub(super) fn is_some(self) -> bool {
        self != Self::NONE
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// The record is vacant and can be reused for another range.
    Vacant,
    /// Addresses of an expandable segment without mapped memory.
    Unmapped,
    /// The range is free, and in the free list of its pool.
    Free,
    Allocated,
    /// Freed, but work on other streams may still use it.
    Waiting,
}

/// A range of addresses. Ranges split from one segment or reservation form a chain without gaps.
#[derive(Clone, Debug)]
pub(super) struct Record {
    pub(super) address: u64,
    pub(super) bytes: u64,
    /// The first address of its segment or reservation.
    pub(super) base: u64,
    /// Requested bytes of the block, or of a previous block if the range is free.
    pub(super) requested: u64,
    /// The key of the block, or of a previous block if the range is free.
    pub(super) key: u64,
    /// Sequence number of the segment or reservation, lower for older ones; always 0 if the lowest address breaks ties.
    pub(super) registration: u64,
    /// The pool's search count when this range was last put into the free list; the range's age is counted from it.
    pub(super) listed_at: u64,
    pub(super) stream: StreamId,
    pub(super) pool: Pool,
    pub(super) used: Use,
    pub(super) expandable: bool,
    /// Events that must complete before the range is free.
    pub(super) events: u32,
    pub(super) previous: BlockIndex,
    pub(super) next: BlockIndex,
    /// The context in which the block was allocated, for recordings that start later. For a free range, the context of
    /// a previous block.
    pub(super) context: Context,
    pub(super) other_streams: Option<Box<OtherStreams>>,
}

/// Streams other than a block's own. Stored in a box, since few blocks have any.
#[derive(Clone, Debug, Default)]
pub(super) struct OtherStreams(pub(super) Vec<StreamId>);

impl Record {
    /// Returns whether the range was split from a larger range, and thus has a neighbour.
    #[inline]
    pub(super) fn is_split(&self) -> bool {
        self.previous.is_some() || self.next.is_some()
    }

    /// Returns the end of its addresses, exclusive.
    pub(super) fn end(&self) -> u64 {
        self.address + self.bytes
    }
}

/// All records. Looking up the index of a removed record returns a vacant record or one of another range. Indices are
/// stored only in the records, the free lists, the event queues and the handles.
#[derive(Debug)]
pub(super) struct Arena {
    records: Vec<Record>,
    /// Head of the list of vacant records, which are linked by `next`.
    first_vacant: BlockIndex,
}

impl Arena {
    pub(super) fn new() -> Self {
        Self { records: Vec::new(), first_vacant: BlockIndex::NONE }
    }

    #[inline]
    pub(super) fn insert(&mut self, record: Record) -> BlockIndex {
        if !self.first_vacant.is_some() {
            return self.push(record);
        }
        let index = self.first_vacant;
        let place = &mut self[index];
        let next_vacant = place.next;
        *place = record;
        self.first_vacant = next_vacant;
        index
    }

    #[cold]
    fn push(&mut self, record: Record) -> BlockIndex {
        let index = u32::try_from(self.records.len()).ok().filter(|&index| index != u32::MAX);
        let index = index.expect("an allocator holds more than 2^32 - 1 ranges");
        self.records.push(record);
        BlockIndex(index)
    }

    /// Removes a record and links its neighbours to each other. Returns its address and size in bytes.
    #[inline]
    pub(super) fn remove(&mut self, index: BlockIndex) -> (u64, u64) {
        let first_vacant = self.first_vacant;
        let record = &mut self[index];
        let (range, previous, next) = ((record.address, record.bytes), record.previous, record.next);
        record.used = Use::Vacant;
        record.next = first_vacant;
        self.first_vacant = index;
        if previous.is_some() {
            self[previous].next = next;
        }
        if next.is_some() {
            self[next].previous = previous;
        }
        range
    }

    /// Splits off the first `bytes` of a record. The new record covers these bytes and precedes the old record, which
    /// keeps its index and the remaining bytes.
    pub(super) fn cut_front(&mut self, index: BlockIndex, bytes: u64) -> BlockIndex {
        let rest = &mut self[index];
        assert!(bytes < rest.bytes, "cannot cut {bytes} bytes off a range of {}", rest.bytes);
        let mut front = Record { other_streams: None, bytes, next: index, ..*rest };
        rest.address += bytes;
        rest.bytes -= bytes;
        front.events = 0;
        let previous = front.previous;
        let front = self.insert(front);
        self[index].previous = front;
        if previous.is_some() {
            self[previous].next = front;
        }
        front
    }

    /// Splits off all but the first `bytes` of a record. The old record keeps its index and its first `bytes`. The new
    /// record covers the remaining bytes and follows the old record.
    pub(super) fn cut_back(&mut self, index: BlockIndex, bytes: u64) -> BlockIndex {
        let front = &mut self[index];
        assert!(bytes < front.bytes, "cannot keep {bytes} bytes of a range of {}", front.bytes);
        let back = Record {
            context: Context::NOTHING,
            other_streams: None,
            address: front.address + bytes,
            bytes: front.bytes - bytes,
            previous: index,
            ..*front
        };
        front.bytes = bytes;
        let next = back.next;
        let back = self.insert(back);
        self[index].next = back;
        if next.is_some() {
            self[next].previous = back;
        }
        back
    }

    #[inline]
    pub(super) fn get(&self, index: BlockIndex) -> Option<&Record> {
        self.records.get(index.0 as usize)
    }

    /// Returns every record that is not vacant, in no particular order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (BlockIndex, &Record)> {
        let named = self.records.iter().enumerate().map(|(index, record)| (BlockIndex(index as u32), record));
        named.filter(|(_, record)| record.used != Use::Vacant)
    }
}

impl std::ops::Index<BlockIndex> for Arena {
    type Output = Record;

    #[inline]
    fn index(&self, index: BlockIndex) -> &Record {
        &self.records[index.0 as usize]
    }
}

impl std::ops::IndexMut<BlockIndex> for Arena {
    #[inline]
    fn index_mut(&mut self, index: BlockIndex) -> &mut Record {
        &mut self.records[index.0 as usize]
    }
}
