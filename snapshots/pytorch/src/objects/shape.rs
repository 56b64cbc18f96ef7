//! Detects the kind of a dict in a snapshot from its keys.

use std::fmt::{Display, Formatter};

use super::value::Value;
use crate::Intake;

macro_rules! keys {
    ($($name:ident = $text:literal,)+) => {
        /// A key with a known meaning in the dicts of snapshots.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub(crate) enum Key { $($name,)+ }

        impl Key {
            const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// Whether this is a key of the whole snapshot. Such keys are declared last.
            pub(crate) fn is_part_of_snapshot(self) -> bool {
                self as u8 >= Self::Segments as u8
            }

            pub(crate) fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)+ }
            }
        }
    };
}

keys! {
    // Events, and keys shared by several dicts.
    Action = "action",
    Addr = "addr",
    Size = "size",
    Stream = "stream",
    TimeUs = "time_us",
    Frames = "frames",
    ForwardFrames = "forward_frames",
    CompileContext = "compile_context",
    UserMetadata = "user_metadata",
    InternalMetadata = "internal_metadata",
    PoolId = "pool_id",
    Category = "category",
    DeviceFree = "device_free",
    // Frames.
    Name = "name",
    Filename = "filename",
    Line = "line",
    FxNodeOp = "fx_node_op",
    FxNodeName = "fx_node_name",
    FxNodeTarget = "fx_node_target",
    FxOriginalTrace = "fx_original_trace",
    // Segments and blocks.
    Device = "device",
    Address = "address",
    TotalSize = "total_size",
    AllocatedSize = "allocated_size",
    ActiveSize = "active_size",
    RequestedSize = "requested_size",
    SegmentType = "segment_type",
    SegmentPoolId = "segment_pool_id",
    IsExpandable = "is_expandable",
    Blocks = "blocks",
    State = "state",
    History = "history",
    RealSize = "real_size",
    // Annotations.
    Stage = "stage",
    // The whole snapshot: the last ones.
    Segments = "segments",
    DeviceTraces = "device_traces",
    AllocatorSettings = "allocator_settings",
    ExternalAnnotations = "external_annotations",
    HostSegments = "host_segments",
    HostTraces = "host_traces",
    Highwater = "highwater",
    HighwaterRun = "highwater_run",
    // Added by torch-snapkit.
    ShapeData = "shape_data",
    SourceCode = "source_code",
}

/// String ids of the known keys, which are consecutive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keys {
    first: u32,
}

impl Keys {
    /// Interns the known keys. `intake` must not contain any of these keys yet.
    pub(crate) fn new(intake: &mut Intake) -> Self {
        let ids: Vec<u32> = Key::ALL.iter().map(|key| intake.text(key.name()).0).collect();
        let first = ids[0];
        debug_assert!(ids.iter().zip(first..).all(|(id, expected)| *id == expected), "a key was seen before");
        Self { first }
    }

    /// Returns `value` as a known key; `None` for other values.
    #[inline]
    pub(crate) fn of(self, value: Value) -> Option<Key> {
        let Value::Text(id) = value else { return None };
        Key::ALL.get(id.0.wrapping_sub(self.first) as usize).copied()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    Event,
    Frame,
    Segment,
    Block,
    History,
    Annotation,
    /// The whole snapshot, its settings, or a dict with unknown keys.
    Other,
}

impl Display for Shape {
    /// Writes the plural noun for such dicts, for messages.
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Event => "events",
            Self::Frame => "frames",
            Self::Segment => "segments",
            Self::Block => "blocks",
            Self::History => "the history of a block",
            Self::Annotation => "annotations",
            Self::Other => "dicts",
        })
    }
}

impl Shape {
    #[inline]
    pub(crate) fn of(keys: impl Iterator<Item = Option<Key>>) -> Self {
        let mut seen = 0_u64;
        for key in keys.flatten() {
            seen |= 1 << key as u8;
        }
        let has = |key: Key| seen & (1 << key as u8) != 0;
        if has(Key::Action) {
            Self::Event
        } else if has(Key::Filename) && has(Key::Name) {
            Self::Frame
        } else if has(Key::Blocks) && has(Key::TotalSize) {
            Self::Segment
        } else if has(Key::State) && has(Key::Size) {
            Self::Block
        } else if has(Key::RealSize) {
            Self::History
        } else if has(Key::Stage) && has(Key::Name) {
            Self::Annotation
        } else {
            Self::Other
        }
    }
}

#[cfg(test)]
mod tests {
    use highwater_snapshots::ids::StringId;

    use super::*;

    #[test]
    fn keys_are_found_by_their_texts_and_show_the_dict() {
        let mut intake = Intake::default();
        let before = intake.text("elsewhere");
        let keys = Keys::new(&mut intake);
        let id = intake.text("total_size");
        assert_eq!(keys.of(Value::Text(id)), Some(Key::TotalSize));
        assert_eq!((keys.of(Value::Text(before)), keys.of(Value::Text(StringId::NONE))), (None, None));
        let shape = |names: &[&str]| {
            let mut intake = intake.clone();
            let ids: Vec<StringId> = names.iter().map(|name| intake.text(name)).collect();
            Shape::of(ids.into_iter().map(|id| keys.of(Value::Text(id))))
        };
        assert_eq!(shape(&["size", "new", "action"]), Shape::Event);
        assert_eq!(shape(&["line", "name", "filename"]), Shape::Frame);
        assert_eq!(shape(&["stage", "name", "device", "time_us"]), Shape::Annotation);
        assert_eq!(shape(&["name"]), Shape::Other);
        assert!(Key::ALL.len() <= 64, "a shape is told from 64 bits");
    }
}
