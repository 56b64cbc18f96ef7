//! The allocator's current state, with every segment and its blocks.

use highwater_recorder::{Pool, StreamId};

use super::arena::Use;
use super::heap::Heap;

/// A range reserved from the driver, either a segment or a run of mapped pages of an expandable segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentState {
    /// The address of its first byte.
    pub address: u64,
    /// The size in bytes.
    pub bytes: u64,
    /// The stream that uses the segment.
    pub stream: StreamId,
    /// The pool that uses the segment.
    pub pool: Pool,
    /// Whether the segment is part of an expandable segment.
    pub expandable: bool,
    /// The ranges in address order, without gaps.
    pub blocks: Vec<BlockState>,
}

impl SegmentState {
    /// Returns the bytes of allocated blocks.
    pub fn allocated(&self) -> u64 {
        self.sum(|block| block.usage == BlockUsage::Allocated, |block| block.bytes)
    }

    /// Returns the bytes of blocks that are allocated or awaiting free.
    pub fn active(&self) -> u64 {
        self.sum(|block| block.usage != BlockUsage::Free, |block| block.bytes)
    }

    /// Returns the requested bytes of the active blocks.
    pub fn requested(&self) -> u64 {
        self.sum(|block| block.usage != BlockUsage::Free, |block| block.requested)
    }

    fn sum(&self, counts: impl Fn(&BlockState) -> bool, figure: impl Fn(&BlockState) -> u64) -> u64 {
        self.blocks.iter().filter(|block| counts(block)).map(figure).sum()
    }
}

/// A range of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockState {
    /// The address of its first byte.
    pub address: u64,
    /// The size in bytes.
    pub bytes: u64,
    /// Requested bytes; 0 if free.
    pub requested: u64,
    /// The key of the block; `None` if free.
    pub key: Option<u64>,
    /// The use of the range.
    pub usage: BlockUsage,
}

/// The use of a range of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockUsage {
    /// Allocated by the program.
    Allocated,
    /// Freed, but work on other streams may still use it.
    Waiting,
    /// Free.
    Free,
}

impl BlockUsage {
    /// Returns PyTorch's name for this use.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Allocated => "active_allocated",
            Self::Waiting => "active_pending_free",
            Self::Free => "inactive",
        }
    }
}

impl Heap {
    /// Returns all segments, by address.
    pub(super) fn state(&self) -> Vec<SegmentState> {
        let mut segments = Vec::new();
        for (index, record) in self.arena.iter() {
            let continues = record.previous.is_some() && self.arena[record.previous].used != Use::Unmapped;
            if record.used == Use::Unmapped || continues {
                continue;
            }
            let mut segment = SegmentState {
                address: record.address,
                bytes: 0,
                stream: record.stream,
                pool: record.pool,
                expandable: record.expandable,
                blocks: Vec::new(),
            };
            let mut at = index;
            while at.is_some() {
                let record = &self.arena[at];
                let usage = match record.used {
                    Use::Vacant | Use::Unmapped => break,
                    Use::Free => BlockUsage::Free,
                    Use::Allocated => BlockUsage::Allocated,
                    Use::Waiting => BlockUsage::Waiting,
                };
                let (requested, key) = match usage {
                    BlockUsage::Free => (0, None),
                    _ => (record.requested, Some(record.key)),
                };
                segment.bytes += record.bytes;
                segment.blocks.push(BlockState { address: record.address, bytes: record.bytes, requested, key, usage });
                at = record.next;
            }
            segments.push(segment);
        }
        segments.sort_by_key(|segment| segment.address);
        segments
    }
}
