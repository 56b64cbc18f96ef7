//! Raw: a snapshot as its file has it, in rows of fixed size, before anything is concluded from it.

use highwater_snapshots::error::Problem;
use highwater_snapshots::ids::StringId;

use super::sequences::Sequences;

/// What a snapshot file says. Texts are named by [`StringId`], frames by their row; stacks and lists of texts by their
/// number in [`Sequences`], innermost frame first.
#[derive(Clone, Debug, Default)]
pub struct RawSnapshot {
    /// Every distinct text.
    pub strings: Vec<String>,
    /// Every distinct frame.
    pub frames: Vec<RawFrame>,
    /// Every distinct stack: rows of `frames`.
    pub stacks: Sequences,
    /// Every distinct list of texts (`forward_frames`): string ids.
    pub texts: Sequences,
    /// Rare facts of events, each combination once; row 0 is "none of them".
    pub extras: Vec<Extras>,
    /// The events of each device, by ordinal, oldest first: `device_traces`.
    pub traces: Vec<Vec<RawEvent>>,
    /// Events of pinned host memory: `host_traces`.
    pub host_trace: Vec<RawEvent>,
    /// Segments when the snapshot was taken, in the file's order.
    pub segments: Vec<RawSegment>,
    /// Pinned host memory when the snapshot was taken: `host_segments`.
    pub host_segments: Vec<RawSegment>,
    /// Blocks of all segments; each segment names a range of them.
    pub blocks: Vec<RawBlock>,
    /// `external_annotations`, in the file's order.
    pub annotations: Vec<RawAnnotation>,
    /// `allocator_settings`, nested keys joined by dots.
    pub settings: Vec<(String, String)>,
    /// What this program put into the file when it wrote it: the key `highwater`, with its text.
    pub highwater: Option<String>,
    /// What was not understood, or cannot be.
    pub problems: Vec<Problem>,
}

/// A frame as the file has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RawFrame {
    /// Function.
    pub name: StringId,
    /// Source file, or shared library.
    pub file: StringId,
    /// Line, 0 if unknown.
    pub line: u32,
    /// Where the frame is code that torch.fx generated: the node and the line of the model that it stands for.
    pub fx: StringId,
}

/// What an event reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Action {
    /// `alloc`: a block was handed out; `size` is what was asked for.
    Alloc,
    /// `free_requested`.
    FreeRequested,
    /// `free_completed`.
    FreeCompleted,
    /// `free`: both at once.
    Free,
    /// `segment_alloc`.
    SegmentAlloc,
    /// `segment_free`.
    SegmentFree,
    /// `segment_map`.
    SegmentMap,
    /// `segment_unmap`.
    SegmentUnmap,
    /// `snapshot`: `size` is the active bytes of the device.
    Snapshot,
    /// `oom`: `address` is `device_free`.
    Oom,
    /// `annotate`: `user_metadata` says what of the block at `address`.
    Annotate,
    /// `user_defined`: the innermost frame holds START or END, and the annotation's name as its file.
    UserDefined,
    /// Any other; [`Extras::action`] has its name.
    #[default]
    Unknown,
}

impl Action {
    /// The actions that have a name in the format, with it.
    pub const NAMED: [(&'static str, Self); 12] = [
        ("alloc", Self::Alloc),
        ("free_requested", Self::FreeRequested),
        ("free_completed", Self::FreeCompleted),
        ("free", Self::Free),
        ("segment_alloc", Self::SegmentAlloc),
        ("segment_free", Self::SegmentFree),
        ("segment_map", Self::SegmentMap),
        ("segment_unmap", Self::SegmentUnmap),
        ("snapshot", Self::Snapshot),
        ("oom", Self::Oom),
        ("annotate", Self::Annotate),
        ("user_defined", Self::UserDefined),
    ];

    /// The action's name in the format.
    pub fn name(self) -> &'static str {
        Self::NAMED.iter().find(|(_, action)| *action == self).map_or("unknown", |(name, _)| name)
    }
}

/// An event as the file has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RawEvent {
    /// `addr`; for `oom`, `device_free`.
    pub address: u64,
    /// `size`.
    pub size: u64,
    /// `time_us`, since 1970; 0 in files before PyTorch 2.2.
    pub time_us: u64,
    /// `stream`.
    pub stream: u64,
    /// `frames`, in [`RawSnapshot::stacks`].
    pub stack: u32,
    /// Row of [`RawSnapshot::extras`].
    pub extras: u32,
    /// `action`.
    pub action: Action,
}

/// Rare facts of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Extras {
    /// `pool_id`; (0, 0) is the default pool.
    pub pool_id: (u64, u64),
    /// `compile_context`, where it is not "N/A".
    pub compile_context: StringId,
    /// `user_metadata`, where it is not empty.
    pub user_metadata: StringId,
    /// `internal_metadata`.
    pub internal_metadata: StringId,
    /// `category`, which the torch.profiler bridge writes.
    pub category: StringId,
    /// `forward_frames`, in [`RawSnapshot::texts`].
    pub forward: u32,
    /// The name of an action that this program does not know.
    pub action: StringId,
}

impl Default for Extras {
    fn default() -> Self {
        Self {
            pool_id: (0, 0),
            compile_context: StringId::NONE,
            user_metadata: StringId::NONE,
            internal_metadata: StringId::NONE,
            category: StringId::NONE,
            forward: Sequences::NONE,
            action: StringId::NONE,
        }
    }
}

/// A segment as the file has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawSegment {
    /// `device`; -1 for pinned host memory.
    pub device: i64,
    /// `address`.
    pub address: u64,
    /// `total_size`.
    pub total_size: u64,
    /// `allocated_size`, if it is there.
    pub allocated_size: Option<u64>,
    /// `active_size`, if it is there.
    pub active_size: Option<u64>,
    /// `requested_size`, if it is there.
    pub requested_size: Option<u64>,
    /// `stream`.
    pub stream: u64,
    /// `segment_type` is "small".
    pub is_small: bool,
    /// `segment_pool_id`; (0, 0) is the default pool.
    pub pool_id: (u64, u64),
    /// `is_expandable`.
    pub is_expandable: bool,
    /// `frames`, in [`RawSnapshot::stacks`].
    pub stack: u32,
    /// Its blocks, in [`RawSnapshot::blocks`].
    pub blocks: std::ops::Range<usize>,
}

/// What a block of a segment is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BlockState {
    /// `active_allocated`.
    Allocated,
    /// `active_pending_free`, or `active_awaiting_free`: freed, and still waiting for another stream.
    PendingFree,
    /// `inactive`, and anything else.
    #[default]
    Inactive,
}

impl BlockState {
    /// The state that the format spells `name`, if there is one.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "active_allocated" => Some(Self::Allocated),
            "active_pending_free" | "active_awaiting_free" => Some(Self::PendingFree),
            "inactive" => Some(Self::Inactive),
            _ => None,
        }
    }
}

/// A block of a segment as the file has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawBlock {
    /// `address`, or the sum of the segment's address and the sizes before it.
    pub address: u64,
    /// `size`, rounded.
    pub size: u64,
    /// `requested_size`; `size` where it is not said. Means something only while the block is active.
    pub requested_size: u64,
    /// `state`.
    pub state: BlockState,
    /// `frames`, or those of the newest `history`, in [`RawSnapshot::stacks`].
    pub stack: u32,
    /// `forward_frames`, in [`RawSnapshot::texts`].
    pub forward: u32,
}

/// One end of an annotation as the file has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawAnnotation {
    /// `name`.
    pub name: StringId,
    /// `stage` is "START"; else "END".
    pub is_start: bool,
    /// `device`.
    pub device: i64,
    /// `time_us`, since 1970.
    pub time_us: u64,
}
