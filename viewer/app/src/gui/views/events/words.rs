//! The texts of an event in the list of events.

use highwater_snapshots::trace::Annotation;
use highwater_snapshots::{EventId, EventKind, Subject, Trace, format_bytes};

highwater_snapshots::vocabulary!(
    /// Groups of event kinds, in the order of their buttons.
    Group {
        /// Allocations of blocks.
        Allocs = "Allocations",
        /// Requested and completed frees of blocks.
        Frees = "Frees",
        /// Use events of blocks.
        Uses = "Uses",
        /// Segments allocated from the driver and freed to it.
        Segments = "Segments",
        /// Requests that failed.
        Ooms = "Out of memory",
        /// Steps, phases and marks of the program.
        Marks = "Marks",
        /// Changes of category, and samples of the memory in use on the device.
        Others = "Other events",
    }
);

impl Group {
    pub(super) const fn of(kind: EventKind) -> Self {
        match kind {
            EventKind::Alloc => Self::Allocs,
            EventKind::FreeRequested | EventKind::FreeCompleted => Self::Frees,
            EventKind::Used => Self::Uses,
            EventKind::SegmentAlloc | EventKind::SegmentFree | EventKind::SegmentMap | EventKind::SegmentUnmap => {
                Self::Segments
            }
            EventKind::Oom => Self::Ooms,
            EventKind::Step | EventKind::Phase | EventKind::Mark => Self::Marks,
            EventKind::Tag | EventKind::DeviceUsed => Self::Others,
        }
    }

    pub(super) const fn tooltip(self) -> &'static str {
        match self {
            Self::Allocs => "Allocations of blocks.",
            Self::Frees => "Frees of blocks: requested, and completed.",
            Self::Uses => "Uses of blocks by kernels, copies or the host, if recorded.",
            Self::Segments => "Segments allocated from the driver or mapped, and freed to it.",
            Self::Ooms => "Requests that failed.",
            Self::Marks => "Starts of steps and phases, and marks set by the program.",
            Self::Others => "Categories assigned after the allocation, and samples of the memory in use on the device.",
        }
    }
}

pub(super) fn kind_name(kind: EventKind) -> String {
    match kind {
        EventKind::Tag => "category".to_owned(),
        EventKind::Oom => "out of memory".to_owned(),
        _ => kind.name().replace('_', " "),
    }
}

pub(super) fn begins_with(trace: &Trace, id: EventId) -> &[Annotation] {
    let first = trace.annotations.partition_point(|annotation| annotation.first < id);
    let count = trace.annotations[first..].partition_point(|annotation| annotation.first == id);
    &trace.annotations[first..first + count]
}

/// Returns additional text of an event: that of a mark, the step or phase that begins, a missing block, the free memory
/// at a failed request, and the annotations that begin at the event.
pub(super) fn note(trace: &Trace, id: EventId) -> String {
    let mut parts = match trace.subject(id) {
        Subject::Mark(text) => vec![trace.tables.string(text).to_owned()],
        Subject::Step(step) => vec![format!("step {step} begins")],
        Subject::Phase(phase) => vec![format!("{phase} begins")],
        Subject::Unmatched if trace.events.kind[id.0 as usize] == EventKind::Used => {
            vec!["of a block that is not live".to_owned()]
        }
        Subject::Unmatched => vec!["of an unknown block".to_owned()],
        Subject::Oom(row) => trace
            .ooms
            .get(row)
            .map(|oom| format!("with {} free on the device", format_bytes(oom.device_free)))
            .into_iter()
            .collect(),
        _ => Vec::new(),
    };
    let names = begins_with(trace, id).iter().map(|annotation| trace.tables.string(annotation.name));
    parts.extend(names.map(|name| format!("{name} begins")));
    parts.join(", ")
}

/// Formats a time in seconds with microseconds, so that neighbouring events can be distinguished.
pub(super) fn seconds(nanos: u64) -> String {
    format!("{}.{:06}", nanos / 1_000_000_000, nanos % 1_000_000_000 / 1_000)
}
