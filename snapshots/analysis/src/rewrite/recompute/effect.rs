//! The effect of recomputing one call of a module.

use std::ops::Range;

use highwater_snapshots::event::EventKind;
use highwater_snapshots::trace::Subject;
use highwater_snapshots::{BlockId, DeviceId, EventId, Trace};

/// The effect of recomputing one call of a module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effect {
    /// The index of the module in its [`Members`](super::Members).
    pub module: usize,
    /// Blocks that are freed immediately after an event, earlier than recorded.
    pub ends: Vec<(BlockId, EventId)>,
    /// Inputs of the call, which stay live at least until the recomputation has ended.
    pub kept: Vec<BlockId>,
    /// The event after which these inputs are freed; [`EventId::NONE`] for immediately after the recomputation.
    pub kept_until: EventId,
    /// The event before which the call is recomputed; [`EventId::NONE`] if the recording ends earlier.
    pub at: EventId,
    /// The allocations and frees of the recomputation, in order, starting with inputs that are recomputed as well.
    /// Blocks that the recomputation does not free are freed where the original was freed.
    pub repeats: Vec<Repeat>,
    /// Repeated blocks that backward frees immediately after an event, earlier than the original.
    pub repeat_ends: Vec<(BlockId, EventId)>,
}

/// A step of a recomputation: the original block of the first forward that is allocated or freed again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeat {
    /// The block is allocated again.
    Alloc(BlockId),
    /// The recomputed block is freed, within the recomputation.
    Free(BlockId),
}

/// Returns the events among `events` that concern blocks on `device`, each with its kind and its block.
pub(super) fn block_events(
    trace: &Trace,
    device: DeviceId,
    events: Range<EventId>,
) -> impl DoubleEndedIterator<Item = (EventId, EventKind, BlockId)> {
    let rows = (events.start.0..events.end.0).map(EventId);
    rows.filter(move |event| trace.events.device[event.0 as usize] == device).filter_map(|event| {
        match trace.subject(event) {
            Subject::Block(block) => Some((event, trace.events.kind[event.0 as usize], block)),
            _ => None,
        }
    })
}

/// Returns the allocations and frees of a recomputation that repeats `events` of `device`. `is_saved` returns whether a
/// block is saved for backward, or `None` for blocks that are not recomputed. Blocks that are not saved are freed at
/// the end of the recomputation at the latest.
pub(super) fn repeats(
    trace: &Trace,
    device: DeviceId,
    events: Range<EventId>,
    is_saved: impl Fn(BlockId) -> Option<bool>,
) -> Vec<Repeat> {
    let mut repeats = Vec::new();
    let mut open: Vec<BlockId> = Vec::new();
    for (_, kind, block) in block_events(trace, device, events) {
        match (kind, is_saved(block)) {
            (EventKind::Alloc, Some(is_saved)) => {
                repeats.push(Repeat::Alloc(block));
                if !is_saved {
                    open.push(block);
                }
            }
            (EventKind::FreeRequested, Some(_)) => {
                if let Some(index) = open.iter().position(|other| *other == block) {
                    open.remove(index);
                    repeats.push(Repeat::Free(block));
                }
            }
            _ => {}
        }
    }
    repeats.extend(open.into_iter().map(Repeat::Free));
    repeats
}
