//! Detects whether the optimizer state was complete at a peak, so that it can be compared with the parameters.

use crate::peak::Moment;
use highwater_snapshots::ids::{BlockId, EventId};
use highwater_snapshots::trace::Trace;
use highwater_snapshots::{Category, Phase};

/// Whether optimizer state was still being created at `peak`, where the blocks `at_peak` are live: the optimizer step
/// of the peak creates more of it later, or a step that creates some is cut short, by the failed request with which the
/// recording ends or by the end of an unfinished recording.
pub(super) fn is_being_created(trace: &Trace, peak: &Moment, at_peak: &[BlockId], failed: Option<EventId>) -> bool {
    let Trace { blocks, spans, events, trust, .. } = trace;
    let is_state = |id: &BlockId| {
        let row = id.0 as usize;
        blocks.category[row] == Category::OptimizerState && blocks.device[row] == peak.device
    };
    let made = |id: BlockId| blocks.alloc[id.0 as usize].0;
    let optimizer_at = |event: EventId| spans.at(event).filter(|span| span.phase == Phase::Optimizer);
    let is_made_later = peak.event.is_some_and(|event| {
        let later = optimizer_at(event).map(|span| event.0 + 1..span.end.0);
        later.is_some_and(|later| blocks.ids().filter(is_state).any(|id| later.contains(&made(id))))
    });
    let last = || events.len().checked_sub(1).filter(|_| trust.unfinished).map(EventId::from_index);
    let cut_short = failed.or_else(last).and_then(optimizer_at);
    is_made_later
        || cut_short.is_some_and(|span| {
            let in_step = span.first.0..span.end.0;
            at_peak.iter().filter(|id| is_state(id)).any(|id| in_step.contains(&made(*id)))
        })
}
