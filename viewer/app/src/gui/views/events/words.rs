//! The texts of an event in the list of events.

use highwater_snapshots::event::EventKind;
use highwater_snapshots::trace::{Annotation, Subject};
use highwater_snapshots::units::format_bytes;
use highwater_snapshots::{BlockId, Category, EventId, OpId, ScopeId, SegmentId, StackId, Trace};

/// Groups of event kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Group {
    /// Allocations of blocks.
    Allocs,
    /// Frees of blocks: requested and completed.
    Frees,
    /// Blocks read or written.
    Uses,
    /// Segments allocated from the driver and freed to it.
    Segments,
    /// Requests that failed.
    Ooms,
    /// Steps, phases and notes of the program.
    Marks,
    /// Categories assigned later, and samples of the memory in use on the device.
    Others,
}

impl Group {
    /// Every group, in the order of the buttons.
    pub(super) const ALL: [Self; 7] =
        [Self::Allocs, Self::Frees, Self::Uses, Self::Segments, Self::Ooms, Self::Marks, Self::Others];

    /// The group of a kind.
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

    /// The text of its button.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Allocs => "Allocations",
            Self::Frees => "Frees",
            Self::Uses => "Uses",
            Self::Segments => "Segments",
            Self::Ooms => "Out of memory",
            Self::Marks => "Marks",
            Self::Others => "Other events",
        }
    }

    /// Its tooltip.
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

/// The display name of a kind.
pub(super) fn kind_name(kind: EventKind) -> String {
    match kind {
        EventKind::Tag => "category".to_owned(),
        EventKind::Oom => "out of memory".to_owned(),
        _ => kind.name().replace('_', " "),
    }
}

/// The facts about an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Facts {
    /// Its kind.
    pub kind: EventKind,
    /// Its size in bytes.
    pub size: Option<u64>,
    /// The block it refers to.
    pub block: Option<BlockId>,
    /// The segment or mapping it refers to.
    pub segment: Option<SegmentId>,
    /// The category of the block.
    pub category: Option<Category>,
    /// The operation.
    pub op: OpId,
    /// The module.
    pub scope: ScopeId,
    /// The stack that caused it.
    pub stack: StackId,
}

impl Facts {
    /// Builds the facts of event `id`; `None` if there is no such event.
    pub(super) fn of(trace: &Trace, id: EventId) -> Option<Self> {
        let row = id.index()?;
        let kind = *trace.events.kind.get(row)?;
        let stack = trace.events.stack.get(row).copied().unwrap_or(StackId::NONE);
        let none = Self {
            kind,
            size: None,
            block: None,
            segment: None,
            category: None,
            op: OpId::NONE,
            scope: ScopeId::NONE,
            stack,
        };
        let of_block = |id: BlockId| {
            if id.index().is_none_or(|row| row >= trace.blocks.len()) {
                return none;
            }
            let block = trace.blocks.get(id);
            let (op, scope, category) = (block.op, block.scope, Some(block.category));
            Self { size: Some(block.requested), block: Some(id), category, op, scope, ..none }
        };
        Some(match trace.subject(id) {
            Subject::Block(block) => of_block(block),
            Subject::Tag(block, category) => Self { category: Some(category), ..of_block(block) },
            Subject::Segment(segment) => {
                let size = Some(trace.segments.get(segment).range.bytes);
                Self { segment: Some(segment), size, ..none }
            }
            Subject::Oom(row) => trace.ooms.get(row).map_or(none, |oom| Self {
                size: Some(oom.requested),
                op: oom.op,
                scope: oom.scope,
                ..none
            }),
            Subject::DeviceUsed(bytes) => Self { size: Some(bytes), ..none },
            Subject::Step(_) | Subject::Phase(_) | Subject::Mark(_) | Subject::Unmatched => none,
        })
    }

    /// The address of the block or segment.
    pub(super) fn address(&self, trace: &Trace) -> Option<u64> {
        let of_segment = || Some(trace.segments.get(self.segment?).range.address);
        self.block.map(|block| trace.blocks.get(block).address).or_else(of_segment)
    }
}

/// The annotations that begin with event `id`.
pub(super) fn begins_with(trace: &Trace, id: EventId) -> &[Annotation] {
    let first = trace.annotations.partition_point(|annotation| annotation.first < id);
    let count = trace.annotations[first..].partition_point(|annotation| annotation.first == id);
    &trace.annotations[first..first + count]
}

/// The text of an event besides its facts: text of a mark, missing facts, annotations that begin with it.
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

/// A time in seconds, to the microsecond: neighbours in the list can be distinguished.
pub(super) fn seconds(nanos: u64) -> String {
    format!("{}.{:06}", nanos / 1_000_000_000, nanos % 1_000_000_000 / 1_000)
}
