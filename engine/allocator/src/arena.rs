//! Arena: the records of all ranges the allocator knows, each linked to its neighbours in memory.

use highwater_recorder::context::Context;
use highwater_recorder::{Pool, StreamId};

/// Names a record: its place in the arena, reused once the record is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct BlockIndex(u32);

impl BlockIndex {
    /// Names no record.
    pub(super) const NONE: Self = Self(u32::MAX);
    /// Sorts before every other name.
    pub(super) const FIRST: Self = Self(0);

    #[inline]
    pub(super) fn is_some(self) -> bool {
        self != Self::NONE
    }
}

/// What a range is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// Nothing: the record's place in the arena waits for another range.
    Vacant,
    /// Addresses of an expandable segment without memory behind them.
    Unmapped,
    /// In its pool's free list.
    Free,
    /// Handed out.
    Allocated,
    /// Given back, but work on other streams may still use it.
    Waiting,
}

/// A range of addresses. Ranges that were cut from one segment or reservation form a chain without gaps.
#[derive(Clone, Debug)]
pub(super) struct Record {
    pub(super) address: u64,
    pub(super) bytes: u64,
    /// The first address of its segment or reservation.
    pub(super) base: u64,
    /// Bytes asked for; of a past tenant where the range is free.
    pub(super) requested: u64,
    /// The tenant's name; of a past one where the range is free.
    pub(super) key: u64,
    /// Counts the segments and reservations of the allocator: older ones have lower numbers.
    pub(super) registration: u64,
    /// The pool's searches when this range was last put into the free list: its age counts from here.
    pub(super) listed_at: u64,
    pub(super) stream: StreamId,
    pub(super) pool: Pool,
    pub(super) used: Use,
    /// Part of an expandable segment.
    pub(super) expandable: bool,
    /// Events that must pass before the range is free.
    pub(super) events: u32,
    pub(super) previous: BlockIndex,
    pub(super) next: BlockIndex,
    /// What the tenant was allocated for, so that a recording that begins later knows it; of a past one where the range is free.
    pub(super) context: Context,
    /// Other streams that work with the block.
    pub(super) other_streams: Option<Box<OtherStreams>>,
}

/// Streams other than a block's own. Stands behind a pointer, since few blocks have any.
#[derive(Clone, Debug, Default)]
pub(super) struct OtherStreams(pub(super) Vec<StreamId>);

impl Record {
    /// Cut from something larger: it has a neighbour.
    #[inline]
    pub(super) fn is_split(&self) -> bool {
        self.previous.is_some() || self.next.is_some()
    }

    /// The first address behind it.
    pub(super) fn end(&self) -> u64 {
        self.address + self.bytes
    }
}

/// All records. Indexing with the name of a record that is gone gives a vacant record, or another range's; names are kept
/// only in the records themselves, in the free lists, in the event queues and in handles.
#[derive(Debug)]
pub(super) struct Arena {
    records: Vec<Record>,
    /// Vacant records form a list by `next`.
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
        let index = index.expect("an allocator holds at most 2^32 - 1 ranges");
        self.records.push(record);
        BlockIndex(index)
    }

    /// Takes a record out and links its neighbours to each other. Gives its range.
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

    /// Cuts the first `bytes` off a record: the new record holds them and stands before the old one, which keeps its
    /// name and shrinks to the rest.
    pub(super) fn cut_front(&mut self, index: BlockIndex, bytes: u64) -> BlockIndex {
        let rest = &mut self[index];
        assert!(bytes < rest.bytes, "cutting {bytes} bytes off a range of {}", rest.bytes);
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

    /// Cuts all but the first `bytes` off a record: the old record keeps its name and its first `bytes`, the new one
    /// holds the rest and stands behind it.
    pub(super) fn cut_back(&mut self, index: BlockIndex, bytes: u64) -> BlockIndex {
        let front = &mut self[index];
        assert!(bytes < front.bytes, "keeping {bytes} bytes of a range of {}", front.bytes);
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

    /// The record of that name, if there is one.
    #[inline]
    pub(super) fn get(&self, index: BlockIndex) -> Option<&Record> {
        self.records.get(index.0 as usize)
    }

    /// Every record of a range, in no order.
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
