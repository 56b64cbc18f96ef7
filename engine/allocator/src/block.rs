//! Block: the handle of one allocation.

use highwater_recorder::{Pool, StreamId};

use super::arena::BlockIndex;

/// One allocation: the program's handle, given back to [`free`](super::CachingAllocator::free) exactly once.
///
/// Not `Clone`: a block has one owner. Dropping it without freeing leaks its memory until the allocator ends, which is
/// safe. A request of zero bytes gives an empty block, which holds nothing and appears nowhere.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a block that is dropped without being freed leaks its memory"]
pub struct Block {
    pub(super) index: BlockIndex,
    /// The heap that handed it out; 0 for an empty block, which belongs to none.
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

    /// Whether this is the block of a request of zero bytes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.index == BlockIndex::NONE
    }

    /// The number by which recordings name the block: counted up from 0 by each allocator and never used again;
    /// `u64::MAX` for an empty block.
    #[inline]
    pub fn key(&self) -> u64 {
        self.key
    }

    /// Its first byte; 0 for an empty block.
    #[inline]
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Bytes asked for.
    #[inline]
    pub fn requested(&self) -> u64 {
        self.requested
    }

    /// Bytes after rounding. A block that was not worth splitting may be larger than its request's rounded size.
    #[inline]
    pub fn allocated(&self) -> u64 {
        self.allocated
    }

    /// The stream whose work may use it without further ado; others are named with
    /// [`record_stream`](super::CachingAllocator::record_stream).
    #[inline]
    pub fn stream(&self) -> StreamId {
        self.stream
    }

    /// The pool that it came from.
    #[inline]
    pub fn pool(&self) -> Pool {
        self.pool
    }
}
