//! Events as recorded.

use serde::{Deserialize, Serialize};

use crate::category::{Category, Phase, Pool};
use crate::ids::{DeviceId, OpId, ScopeId, StackId, StreamId, StringId};

crate::vocabulary!(
    /// The kind of an event, with the name that PyTorch gives to such events, if any.
    EventKind {
        /// A segment was reserved from the driver.
        SegmentAlloc = "segment_alloc",
        /// A segment was released to the driver.
        SegmentFree = "segment_free",
        /// Pages of an expandable segment were mapped.
        SegmentMap = "segment_map",
        /// Pages of an expandable segment were unmapped.
        SegmentUnmap = "segment_unmap",
        /// A block was allocated.
        Alloc = "alloc",
        /// The program freed a block; another stream may still use it.
        FreeRequested = "free_requested",
        /// The free of a block is completed, so that its memory can be reused.
        FreeCompleted = "free_completed",
        /// The category of a block was set or changed.
        Tag = "tag",
        /// An allocation request failed for lack of memory.
        Oom = "oom",
        /// Bytes in use on the whole device, as the driver reports them.
        DeviceUsed = "device_used",
        /// A training step begins.
        Step = "step",
        /// A phase of the training step begins.
        Phase = "phase",
        /// A text that the program added to the recording.
        Mark = "mark",
        /// A kernel, a copy or the host used a block; recorded when the work is submitted or when it runs.
        Used = "used",
    }
);

impl EventKind {
    /// Returns whether an event of this kind shows that its device is in use: all except steps, phases and memory
    /// samples.
    pub const fn is_activity(self) -> bool {
        !matches!(self, Self::Step | Self::Phase | Self::DeviceUsed)
    }
}

/// One event as it is recorded and stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Nanoseconds since the recording's origin (see [`Header::started_unix_us`](crate::trace::Header)).
    pub time_ns: u64,
    /// The device. Steps, phases and the marks of this project's recorder concern every device and have device 0; marks
    /// of imported recordings have the device on which they were recorded. See
    /// [`Trace::is_everywhere`](crate::trace::Trace::is_everywhere).
    pub device: DeviceId,
    /// The call stack of the call that caused the event.
    pub stack: StackId,
    /// The kind of the event, and its facts.
    pub what: What,
}

/// The kind of an event with the facts of that kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// See [`EventKind::SegmentAlloc`].
    SegmentAlloc(Range),
    /// See [`EventKind::SegmentFree`].
    SegmentFree(Range),
    /// See [`EventKind::SegmentMap`].
    SegmentMap(Range),
    /// See [`EventKind::SegmentUnmap`].
    SegmentUnmap(Range),
    /// See [`EventKind::Alloc`].
    Alloc(Alloc),
    /// See [`EventKind::FreeRequested`].
    FreeRequested(BlockKey),
    /// See [`EventKind::FreeCompleted`].
    FreeCompleted(BlockKey),
    /// See [`EventKind::Tag`].
    Tag(BlockKey, Category),
    /// See [`EventKind::Oom`].
    Oom(Oom),
    /// See [`EventKind::DeviceUsed`]; the value is in bytes.
    DeviceUsed(u64),
    /// See [`EventKind::Step`]; the value is the step number, from 0.
    Step(u32),
    /// See [`EventKind::Phase`].
    Phase(Phase),
    /// See [`EventKind::Mark`]; the value is the text.
    Mark(StringId),
    /// See [`EventKind::Used`].
    Used(BlockKey),
}

impl What {
    /// The key of the block that the event concerns; `None` if it concerns no block.
    #[inline]
    pub fn block(&self) -> Option<BlockKey> {
        match *self {
            Self::Alloc(Alloc { block, .. }) => Some(block),
            Self::FreeRequested(key) | Self::FreeCompleted(key) | Self::Tag(key, _) | Self::Used(key) => Some(key),
            _ => None,
        }
    }

    /// The kind without its facts.
    #[inline]
    pub fn kind(&self) -> EventKind {
        match self {
            Self::SegmentAlloc(_) => EventKind::SegmentAlloc,
            Self::SegmentFree(_) => EventKind::SegmentFree,
            Self::SegmentMap(_) => EventKind::SegmentMap,
            Self::SegmentUnmap(_) => EventKind::SegmentUnmap,
            Self::Alloc(_) => EventKind::Alloc,
            Self::FreeRequested(_) => EventKind::FreeRequested,
            Self::FreeCompleted(_) => EventKind::FreeCompleted,
            Self::Tag(..) => EventKind::Tag,
            Self::Oom(_) => EventKind::Oom,
            Self::DeviceUsed(_) => EventKind::DeviceUsed,
            Self::Step(_) => EventKind::Step,
            Self::Phase(_) => EventKind::Phase,
            Self::Mark(_) => EventKind::Mark,
            Self::Used(_) => EventKind::Used,
        }
    }
}

/// The key that identifies a block in a recording. It is chosen by the allocator, and never reused on the same device.
/// Files are smallest if the allocator counts its blocks from 0.
pub type BlockKey = u64;

/// A block at its allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alloc {
    /// The key of the block.
    pub block: BlockKey,
    /// Address of its first byte.
    pub address: u64,
    /// Requested bytes.
    pub requested: u64,
    /// Bytes after the allocator's rounding; at least `requested`.
    pub allocated: u64,
    /// The stream for which the block was allocated.
    pub stream: StreamId,
    /// The pool from which the block was allocated.
    pub pool: Pool,
    /// The category, if known at the allocation.
    pub category: Category,
    /// The operation that requested the block.
    pub op: OpId,
    /// The module in which that operation ran.
    pub scope: ScopeId,
}

/// An address range: a segment, or pages that are mapped into or unmapped from an expandable segment. The memory is on
/// the device, or pinned on the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Range {
    /// Address of its first byte.
    pub address: u64,
    /// The length in bytes.
    pub bytes: u64,
    /// The stream served by the range.
    pub stream: StreamId,
    /// The pool served by the range.
    pub pool: Pool,
}

/// A failed request for memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Oom {
    /// Requested bytes.
    pub requested: u64,
    /// Free bytes on the device as reported by the driver.
    pub device_free: u64,
    /// The stream of the request; `None` if it was not recorded.
    pub stream: Option<StreamId>,
    /// The operation that made the request.
    pub op: OpId,
    /// The module of that operation.
    pub scope: ScopeId,
}
