//! Points in a recording, such as the peak of a total, and the memory in use at them.

use highwater_snapshots::ids::{DeviceId, EventId};
use highwater_snapshots::trace::Trace;
use highwater_snapshots::{BlockId, Phase};
use serde::{Deserialize, Serialize};

use crate::grouping::breakdown::{Breakdown, Grouping};
use crate::grouping::dimension::GroupKey;
use crate::grouping::filter::Filter;
use crate::grouping::siblings::Siblings;
use crate::index::beside::{Beside, non_block_bytes};
use crate::index::live::LiveIndex;
use crate::index::series::Series;
use crate::metric::Metric;

/// A point in a recording: the state right after an event, or before the first one.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Moment {
    /// The device whose total was measured.
    pub device: DeviceId,
    /// The total that was measured.
    pub metric: Metric,
    /// The total at this point, in bytes.
    pub bytes: u64,
    /// The event, as its id in the trace or window that contains it; `None` for the state before the first event.
    pub event: Option<EventId>,
    /// Number of events of the recording before the trace or window that contains `event`.
    pub events_before: u64,
    /// The event's time, in nanoseconds since the recording's origin.
    pub time_ns: Option<u64>,
    /// The step at this point; `None` outside of steps.
    pub step: Option<u32>,
    /// The phase at this point.
    pub phase: Phase,
    /// Whether the recording has steps or phases. If not, the phase is always setup and has no meaning.
    pub has_phase: bool,
    /// Whether the recording consists of this state, without events.
    pub is_state: bool,
}

/// Moments are equal if they are at the same event of the recording, even if they were found in different windows.
impl PartialEq for Moment {
    fn eq(&self, other: &Self) -> bool {
        let total = |moment: &Self| (moment.device, moment.metric, moment.bytes, moment.is_state);
        let when = |moment: &Self| (moment.number(), moment.time_ns, moment.step, moment.phase, moment.has_phase);
        total(self) == total(other) && when(self) == when(other)
    }
}

impl Eq for Moment {}

impl Moment {
    /// The state right after `event`, or before the first event if `None`.
    pub fn at(trace: &Trace, series: &Series, metric: Metric, event: Option<EventId>) -> Self {
        let totals = event.map_or_else(|| series.baseline(), |id| series.after(trace, id));
        Self::of(trace, series.device(), metric, totals.get(metric), event)
    }

    /// The state right after `event`, or before the first event if `None`, with a total of `bytes`.
    pub(crate) fn of(trace: &Trace, device: DeviceId, metric: Metric, bytes: u64, event: Option<EventId>) -> Self {
        let span = event.and_then(|id| trace.spans.at(id));
        Self {
            device,
            metric,
            bytes,
            event,
            events_before: trace.start.events,
            time_ns: event.and_then(|id| trace.time_of(id)),
            step: span.and_then(|span| span.step),
            phase: span.map_or(Phase::Setup, |span| span.phase),
            has_phase: !trace.spans.is_all_setup(),
            is_state: trace.is_state(),
        }
    }

    pub(crate) fn stage(&self) -> (Option<u32>, Phase) {
        (self.step, self.phase)
    }

    /// The phase at this point; `None` if the recording has no phases.
    pub fn known_phase(&self) -> Option<Phase> {
        self.has_phase.then_some(self.phase)
    }

    /// Returns the index of the event in the recording; `None` for the state before the first event.
    pub fn number(&self) -> Option<u64> {
        self.event.map(|event| self.events_before + u64::from(event.0))
    }

    /// Number of events of the trace up to this point.
    pub fn position(&self) -> usize {
        self.event.map_or(0, |id| id.0 as usize + 1)
    }
}

/// Whether a later point that reaches the largest total anew counts as the peak instead of the first point that reaches
/// it, each given by step and phase: if the first is in `first_step`, the first step of the device, and the later one
/// in
/// the same phase of another step.
///
/// The first step allocates state that later steps reuse, such as an optimizer's. If steps repeat exactly, a later step
/// is more representative. [`reached_elsewhere`](super::phases::reached_elsewhere) lists the other points.
pub fn counts_instead(first: (Option<u32>, Phase), first_step: Option<u32>, later: (Option<u32>, Phase)) -> bool {
    first.0.is_some() && first.0 == first_step && later.0 != first_step && later.1 == first.1
}

/// The memory at some point, and its breakdown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peak {
    /// The point and its bytes.
    pub moment: Moment,
    /// The breakdown. Its total is the bytes of `moment`, unless a filter excludes blocks.
    pub breakdown: Breakdown,
}

impl Peak {
    /// Breaks down the memory at `moment` by `keys`, counting the blocks that pass `filter`.
    ///
    /// For `reserved` and `device_used`, which are not sums over blocks, bytes outside of blocks are in the groups of
    /// their segments, or in separate groups, so that the groups add up to the total. A filter excludes these bytes.
    pub fn at(trace: &Trace, live: &LiveIndex, series: &Series, moment: Moment, query: &Query<'_>) -> Self {
        let Found { blocks, beside } = Found::at(trace, live, series, &moment, query.filter);
        let grouping = Grouping { keys: query.keys, beside: &beside, top: query.top, siblings: query.siblings };
        Self { moment, breakdown: Breakdown::of(trace, moment.metric, &blocks, &grouping) }
    }
}

pub(crate) struct Found {
    /// The blocks that pass the filter.
    pub(crate) blocks: Vec<BlockId>,
    /// Bytes outside of blocks; empty if there is a filter.
    pub(crate) beside: Vec<(Beside, u64)>,
}

impl Found {
    pub(crate) fn at(trace: &Trace, live: &LiveIndex, series: &Series, moment: &Moment, filter: &Filter) -> Self {
        let mut blocks = live.before_position(trace, moment.metric, moment.position());
        if !filter.is_empty() {
            let mut matcher = filter.on(trace);
            blocks.retain(|&id| matcher.matches(id));
            return Self { blocks, beside: Vec::new() };
        }
        let (is_split, beside) = non_block_bytes(trace, (series, live), moment.metric, moment.position());
        if !is_split {
            blocks.clear();
        }
        Self { blocks, beside }
    }
}

/// The options of a breakdown.
#[derive(Clone, Copy, Debug)]
pub struct Query<'a> {
    /// The keys to group by.
    pub keys: &'a [GroupKey],
    /// Number of groups to list.
    pub top: usize,
    /// The blocks to count.
    pub filter: &'a Filter,
    /// Whether identical modules are combined into one group.
    pub siblings: Siblings,
}
