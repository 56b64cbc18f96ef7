//! The handle of one allocation.

use highwater_recorder::{Pool, StreamId};

use super::arena::BlockIndex;

/// The handle of one allocation, to be passed to [`free`](super::CachingAllocator::free) exactly once.
///
/// Not `Clone`, since a block has one owner. Dropping the handle without freeing the block leaks its memory until the
/// allocator is dropped, which is safe. A request of zero bytes returns an empty block, which has no memory and is not
/// recorded.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a block that is dropped without being freed leaks its memory"]
pub struct Block {
    pub(super) index: BlockIndex,
    /// The id of the heap that allocated the block; 0 for an empty block, which has no heap.
    pub(super) owner: u64,
    pub(super) key: u64,
    pub(super) address: u64,
    pub(super) requested: u64,
    pub(super) allocated: u64,
    pub(super) stream: StreamId,
    pub(super) pool: Pool,
}

impl Block {
    pub(super) fn empty(stream: StreamId) -> Self {
        Self {
            index: BlockIndex::NONE,
            owner: 0,
            key: u64::MAX,
            address: 0,
            requested: 0,
            allocated: 0,
            stream,
            pool: Pool::Small,
        }
    }

    /// Returns whether this is the block of a request of zero bytes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.index == BlockIndex::NONE
    }

    /// Returns the id of the block in recordings. Each allocator counts up from 0 and never reuses an id. An empty
    /// block has `u64::MAX`.
    #[inline]
    pub fn key(&self) -> u64 {
        self.key
    }

    /// Returns the address of its first byte, or 0 for an empty block.
    #[inline]
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Returns the requested bytes.
    #[inline]
    pub fn requested(&self) -> u64 {
        self.requested
    }

    /// Returns the allocated bytes after rounding. They may exceed the rounded request if the block was not worth
    /// splitting.
    #[inline]
    pub fn allocated(&self) -> u64 {
        self.allocated
    }

    /// Returns the stream that the block was allocated for. Declare its use on other streams with
    /// [`record_stream`](super::CachingAllocator::record_stream).
    #[inline]
    pub fn stream(&self) -> StreamId {
        self.stream
    }

    /// Returns the pool that the block was allocated from.
    #[inline]
    pub fn pool(&self) -> Pool {
        self.pool
    }
}
