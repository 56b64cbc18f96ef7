//! Events in the form in which they are recorded.

use serde::{Deserialize, Serialize};

use crate::category::{Category, Phase, Pool};
use crate::ids::{DeviceId, OpId, ScopeId, StackId, StreamId, StringId};

crate::vocabulary!(
    /// The kind of an event, under PyTorch's name where PyTorch has one.
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
        /// The block is free for reuse.
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
    /// Whether an event of this kind means that its device is in use: true except for step and phase markers and
    /// samples of the memory in use.
    pub const fn is_activity(self) -> bool {
        !matches!(self, Self::Step | Self::Phase | Self::DeviceUsed)
    }
}

/// One event as it is recorded and stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Nanoseconds since the recording's origin (see [`Header::started_unix_us`](crate::trace::Header)).
    pub time_ns: u64,
    /// The device. Steps and phases concern every device and carry device 0, and so do the marks of our own recorder;
    /// marks of imported recordings carry the device that they were recorded on. See
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
    /// See [`EventKind::DeviceUsed`]: bytes.
    DeviceUsed(u64),
    /// See [`EventKind::Step`]: its number, from 0.
    Step(u32),
    /// See [`EventKind::Phase`].
    Phase(Phase),
    /// See [`EventKind::Mark`]: its text.
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

/// The number that identifies a block in a recording: chosen by the allocator, never reused on the same device. Files
/// are smallest if the allocator counts its blocks from 0.
pub type BlockKey = u64;

/// A block at its allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alloc {
    /// The key of the block.
    pub block: BlockKey,
    /// Address of its first byte on the device.
    pub address: u64,
    /// Requested bytes.
    pub requested: u64,
    /// Bytes after the allocator's rounding; at least `requested`.
    pub allocated: u64,
    /// The stream that it was allocated for.
    pub stream: StreamId,
    /// The pool that it came from.
    pub pool: Pool,
    /// The category.
    pub category: Category,
    /// The operation that requested it.
    pub op: OpId,
    /// The module in which that operation ran.
    pub scope: ScopeId,
}

/// A range of device memory: a segment, or mapped pages of an expandable one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Range {
    /// Address of its first byte.
    pub address: u64,
    /// The length in bytes.
    pub bytes: u64,
    /// The stream whose allocations it serves.
    pub stream: StreamId,
    /// The pool whose allocations it serves.
    pub pool: Pool,
}

/// A request for memory that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Oom {
    /// Requested bytes.
    pub requested: u64,
    /// Free bytes on the device, as the driver reported them.
    pub device_free: u64,
    /// The stream of the request; `None` if it was not recorded.
    pub stream: Option<StreamId>,
    /// The operation that made the request.
    pub op: OpId,
    /// The module of that operation.
    pub scope: ScopeId,
}
