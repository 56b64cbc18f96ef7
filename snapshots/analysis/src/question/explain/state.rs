//! Detects whether the optimizer state was complete at a peak, which is required to compare it with the parameters.

use std::ops::Range;

use crate::question::peak::Moment;
use highwater_snapshots::ids::{BlockId, DeviceId, EventId};
use highwater_snapshots::trace::Trace;
use highwater_snapshots::{Category, Phase};

/// Returns whether optimizer state was still being created at `peak`, at which the blocks `at_peak` are live. True if
/// the optimizer phase of the peak creates more state later, or if the `unfinished` optimizer phase at the end of the
/// recording had created some of the state, but not for every gradient.
pub(super) fn is_being_created(
    trace: &Trace,
    peak: &Moment,
    at_peak: &[BlockId],
    unfinished: Option<&Range<u64>>,
) -> bool {
    let (blocks, spans) = (&trace.blocks, &trace.spans);
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
    is_made_later || unfinished.is_some_and(is_made_in) && !has_state_for_gradients(trace, peak.device, at_peak)
}

/// Maximum size in bytes of optimizer state that is considered a counter, such as a step number.
const MAX_COUNTER: u64 = 8;

/// Returns whether the optimizer state among `live` is the same multiple of the gradients in number and in size. If
/// gradients have equal sizes, the state of some of them may be mistaken for that of all.
fn has_state_for_gradients(trace: &Trace, device: DeviceId, live: &[BlockId]) -> bool {
    let blocks = &trace.blocks;
    let sizes_of = |category: Category, least: u64| {
        let rows = live.iter().map(|id| id.0 as usize);
        let rows = rows.filter(|row| blocks.category[*row] == category && blocks.device[*row] == device);
        let mut sizes: Vec<u64> = rows.map(|row| blocks.requested[row]).filter(|bytes| *bytes >= least).collect();
        sizes.sort_unstable();
        sizes
    };
    let (gradients, state) = (sizes_of(Category::Gradient, 1), sizes_of(Category::OptimizerState, MAX_COUNTER + 1));
    let Some(each) = state.len().checked_div(gradients.len()).filter(|each| *each > 0) else { return false };
    let product = |one: u64, other: u64| u128::from(one) * u128::from(other);
    let fits = |bytes: &u64, gradient: &u64| product(*bytes, gradients[0]) == product(state[0], *gradient);
    let mut pairs = state.chunks(each).zip(&gradients);
    state.len() == each * gradients.len()
        && pairs.all(|(state, gradient)| state.iter().all(|bytes| fits(bytes, gradient)))
}
