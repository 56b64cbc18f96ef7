//! Named time ranges marked by the program, and extra facts about individual events, blocks and segments.

use serde::{Deserialize, Serialize};

use crate::ids::{BlockId, DeviceId, EventId, SegmentId, StringId};

/// A named range of events: a training step, a phase, or a region marked by the program. Ranges may nest and overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Annotation {
    /// The name, as the program set it.
    pub name: StringId,
    /// The current device at the start of the range.
    pub device: DeviceId,
    /// Start time, in nanoseconds since the recording's origin; `None` if it was not recorded.
    pub start_ns: Option<u64>,
    /// End time, in the same unit; `None` if it was not recorded.
    pub end_ns: Option<u64>,
    /// The first event within the range.
    pub first: EventId,
    /// One past the last event within the range.
    pub end: EventId,
    /// Whether the annotation was guessed from stacks rather than marked by the program.
    pub is_guessed: bool,
}

/// The subject of an attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Owner {
    /// An event.
    Event(EventId),
    /// A block of the baseline; other blocks have the attributes of their alloc event.
    Block(BlockId),
    /// A segment or mapping of the baseline; others have the attributes of the event that reserved them.
    Segment(SegmentId),
}

/// A fact that has no column, as a name and a value, such as PyTorch's `user_metadata` or `compile_context`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attribute {
    /// The event, block or segment that the attribute describes.
    pub owner: Owner,
    /// The attribute's name.
    pub name: StringId,
    /// The attribute's value, as text.
    pub value: StringId,
}
