//! What an explanation asks of all events of a recording, which may be in memory or be read in parts.

use std::convert::Infallible;
use std::ops::Range;

use hashbrown::HashMap;

use super::cause::{Cause, causes, sums_by_cause};
use super::in_backward::{is_step_in_backward, kept_gradients};
use super::segment_churn::SegmentChurn;
use super::selection::{PeaksWithout, Selection};
use crate::coder::Code;
use crate::counterfactual::{Counterfactual, Grouped, absences};
use crate::final_oom::final_oom;
use crate::growth::Leaks;
use crate::live::LiveIndex;
use crate::metric::{Metric, Totals};
use crate::peak::Moment;
use crate::series::Series;
use crate::together::Together;
use highwater_snapshots::Phase;
use highwater_snapshots::ids::{BlockId, DeviceId, EventId, ScopeId};
use highwater_snapshots::trace::Trace;

/// The request with which a recording ends, because memory ran out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FinalOom {
    /// The number of its event in the recording.
    pub event: u64,
    /// The device.
    pub device: DeviceId,
}

/// A peak, and the bytes by cause there.
pub(crate) struct PeakByCause {
    /// The peak.
    pub peak: Moment,
    /// The bytes of each cause, by number.
    pub bytes: Vec<u64>,
}

/// All of a recording, on one device.
pub(crate) trait Recorded {
    /// Why it could not be read.
    type Error;

    /// The peak without each group of each selection.
    fn without(&mut self, selections: &[Selection<'_>]) -> Result<Vec<PeaksWithout>, Self::Error>;

    /// The peak without all blocks of these causes, and those that `further` causes each leave then.
    fn without_causes(&mut self, gone: &[Cause], further: &[Cause]) -> Result<(PeakByCause, Vec<u64>), Self::Error>;

    /// Whether a phase occurs.
    fn has_phase(&self, phase: Phase) -> bool;

    /// Whether the optimizer updates each parameter in backward; asked after [`Recorded::without`].
    fn steps_in_backward(&self) -> bool;

    /// The totals at the peak of active memory.
    fn at_active_peak(&mut self) -> Result<Totals, Self::Error>;

    /// The failed request with which the recording ends.
    fn final_oom(&self) -> Option<FinalOom>;

    /// Number of failed requests on the device.
    fn failed_requests(&self) -> u64;

    /// The events of the optimizer phase that is cut short by the failed request or the end of the recording.
    fn unfinished_optimizer(&mut self) -> Result<Option<Range<u64>>, Self::Error>;

    /// The leaks over the steps by which growth is measured, if any of them is whole.
    fn leaks(&mut self) -> Result<Option<Leaks>, Self::Error>;

    /// What the device allocates from the driver and frees to it.
    fn churn(&mut self) -> Result<SegmentChurn, Self::Error>;

    /// Which pools are in use at the same time.
    fn pools(&mut self) -> Result<Together, Self::Error>;

    /// The number of operations of each module; of none, those outside all modules.
    fn operations(&mut self) -> Result<HashMap<ScopeId, u64>, Self::Error>;
}

/// A recording that is in memory.
pub(super) struct InMemory<'a> {
    pub(super) trace: &'a Trace,
    pub(super) series: &'a Series,
    pub(super) live: &'a LiveIndex,
    pub(super) metric: Metric,
    /// The cause of each block; found when first needed.
    causes: Option<Grouped>,
    failed: Option<EventId>,
}

impl<'a> InMemory<'a> {
    pub(super) fn new(trace: &'a Trace, series: &'a Series, live: &'a LiveIndex, metric: Metric) -> Self {
        Self { trace, series, live, metric, causes: None, failed: final_oom(trace) }
    }

    fn moment(&self, absence: &Counterfactual) -> Moment {
        Moment::of(self.trace, self.series.device(), self.metric, absence.bytes, absence.event)
    }
}

impl Recorded for InMemory<'_> {
    type Error = Infallible;

    fn without(&mut self, selections: &[Selection<'_>]) -> Result<Vec<PeaksWithout>, Infallible> {
        let (trace, device) = (self.trace, self.series.device());
        let grouped: Vec<(Grouped, Vec<Vec<Code>>)> =
            selections.iter().map(|selection| selection.group(trace, device)).collect();
        let none = Grouped { group_of: Vec::new(), groups: 1 };
        let columns: Vec<&Grouped> = grouped.iter().map(|(grouped, _)| grouped).chain([&none]).collect();
        let mut found = absences(trace, device, self.metric, &columns, |_| false);
        let of_none = found.pop().and_then(|none| none.first().copied()).unwrap_or_default();
        let of_none = self.moment(&of_none);
        let peaks = grouped.into_iter().zip(found).map(|((_, codes), found)| {
            let by_group = codes.into_iter().zip(found.iter().map(|absence| self.moment(absence))).collect();
            PeaksWithout::new(by_group, of_none)
        });
        Ok(peaks.collect())
    }

    fn without_causes(&mut self, gone: &[Cause], further: &[Cause]) -> Result<(PeakByCause, Vec<u64>), Infallible> {
        let (trace, device, metric) = (self.trace, self.series.device(), self.metric);
        let grouped =
            self.causes.get_or_insert_with(|| Grouped { group_of: causes(trace, device), groups: Cause::COUNT });
        let numbers: Vec<u32> = gone.iter().map(|cause| cause.number() as u32).collect();
        let is_gone = |id: BlockId| numbers.contains(&grouped.group_of[id.0 as usize]);
        let none = Grouped { group_of: Vec::new(), groups: 1 };
        let found = absences(trace, device, metric, &[grouped, &none], is_gone);
        let peak = self.moment(&found[1][0]);
        let at_peak = self.live.before_position(trace, metric, peak.position());
        let left = further.iter().map(|cause| found[0][cause.number()].bytes).collect();
        Ok((PeakByCause { bytes: sums_by_cause(trace, metric, &at_peak), peak }, left))
    }

    fn has_phase(&self, phase: Phase) -> bool {
        self.trace.spans.rows().iter().any(|span| span.phase == phase)
    }

    fn steps_in_backward(&self) -> bool {
        let spans = self.trace.spans.rows().iter().map(|span| (span.step, span.phase));
        is_step_in_backward(spans, kept_gradients(self.trace, self.series.device()))
    }

    fn at_active_peak(&mut self) -> Result<Totals, Infallible> {
        let peak = Moment::peak(self.trace, self.series, Metric::Active);
        Ok(self.series.before_position(self.trace, peak.position()))
    }

    fn final_oom(&self) -> Option<FinalOom> {
        self.failed.map(|event| FinalOom {
            event: self.trace.number(event),
            device: self.trace.events.device[event.0 as usize],
        })
    }

    fn failed_requests(&self) -> u64 {
        self.trace.failed_requests(self.series.device())
    }

    fn unfinished_optimizer(&mut self) -> Result<Option<Range<u64>>, Infallible> {
        let Trace { events, spans, trust, .. } = self.trace;
        let last = || events.len().checked_sub(1).filter(|_| trust.unfinished).map(EventId::from_index);
        let span = self.failed.or_else(last).and_then(|event| spans.at(event));
        let span = span.filter(|span| span.phase == Phase::Optimizer);
        Ok(span.map(|span| self.trace.number(span.first)..self.trace.number(span.end)))
    }

    fn leaks(&mut self) -> Result<Option<Leaks>, Infallible> {
        Ok(Leaks::of_recording(self.trace, self.series.device(), self.live, self.metric))
    }

    fn churn(&mut self) -> Result<SegmentChurn, Infallible> {
        Ok(SegmentChurn::of(self.trace, self.series.device()))
    }

    fn pools(&mut self) -> Result<Together, Infallible> {
        Ok(Together::of_pools(self.trace, self.series.device()))
    }

    fn operations(&mut self) -> Result<HashMap<ScopeId, u64>, Infallible> {
        let mut counts = HashMap::new();
        self.trace.tables.ops.iter().for_each(|op| *counts.entry(op.scope).or_default() += 1);
        Ok(counts)
    }
}
