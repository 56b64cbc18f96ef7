//! Named ranges of time that the program marked, and further facts of single events, blocks and segments.

use serde::{Deserialize, Serialize};

use crate::ids::{BlockId, DeviceId, EventId, SegmentId, StringId};

/// A named range: a training step, a phase, a region of the program's own. Ranges may nest and overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Annotation {
    /// Its name, as the program gave it.
    pub name: StringId,
    /// The device that was current.
    pub device: DeviceId,
    /// Start time, in nanoseconds since the recording's origin; none if it was not recorded.
    pub start_ns: Option<u64>,
    /// End time; none if it was not recorded.
    pub end_ns: Option<u64>,
    /// The first event within it.
    pub first: EventId,
    /// One past the last event within it.
    pub end: EventId,
    /// Guessed from stacks, not marked by the program.
    pub is_guessed: bool,
}

/// What an attribute is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Owner {
    /// An event.
    Event(EventId),
    /// A block of the baseline; other blocks have the attributes of their alloc event.
    Block(BlockId),
    /// A segment or mapping of the baseline; others have the attributes of the event that reserved them.
    Segment(SegmentId),
}

/// A fact for which this program has no column, as name and value: PyTorch's `user_metadata`, `compile_context` …
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attribute {
    /// What the attribute is about.
    pub owner: Owner,
    /// The attribute's name.
    pub name: StringId,
    /// The attribute's value, as text.
    pub value: StringId,
}
