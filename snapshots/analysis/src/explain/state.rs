//! Detects whether the optimizer state was complete at a peak, so that it can be compared with the parameters.

use std::ops::Range;

use crate::peak::Moment;
use highwater_snapshots::ids::{BlockId, EventId};
use highwater_snapshots::trace::Trace;
use highwater_snapshots::{Category, Phase};

/// Whether optimizer state was still being created at `peak`, where the blocks `at_peak` are live: the optimizer step
/// of the peak creates more of it later, or an `unfinished` one creates some, which is cut short by the failed request
/// with which the recording ends or by the end of an unfinished recording.
pub(super) fn is_being_created(
    trace: &Trace,
    peak: &Moment,
    at_peak: &[BlockId],
    unfinished: Option<&Range<u64>>,
) -> bool {
    let Trace { blocks, spans, .. } = trace;
    let is_state = |id: &BlockId| {
        let row = id.0 as usize;
        blocks.category[row] == Category::OptimizerState && blocks.device[row] == peak.device
    };
    let optimizer_at = |event: EventId| spans.at(event).filter(|span| span.phase == Phase::Optimizer);
    let is_made_later = peak.event.is_some_and(|event| {
        let later = optimizer_at(event).map(|span| event.0 + 1..span.end.0);
        later
            .is_some_and(|later| blocks.ids().filter(is_state).any(|id| later.contains(&blocks.alloc[id.0 as usize].0)))
    });
    let is_made_in = |events: &Range<u64>| {
        let mut made = at_peak.iter().filter(|id| is_state(id)).filter_map(|id| trace.alloc_number(*id));
        made.any(|event| events.contains(&event))
    };
    is_made_later || unfinished.is_some_and(is_made_in)
}
