//! Collects the facts that an explanation needs from all events of a recording.

use std::ops::Range;

use hashbrown::HashMap;

use super::cause::{CategoryAndPhase, causes, sums_by_cause};
use super::frontier::Frontier;
use super::in_backward::{accumulates_gradients, is_step_in_backward, kept_gradients};
use super::segment_churn::SegmentChurn;
use super::selection::{PeaksWithout, Selection};
use crate::grouping::key_encoder::Code;
use crate::index::counterfactual::{Counterfactual, Grouped, peaks_without};
use crate::index::device_spans::{ActiveSpan, active_spans, append_spans};
use crate::index::together::Together;
use crate::metric::{Metric, Totals};
use crate::question::growth::Leaks;
use crate::question::peak::Moment;
use crate::question::source::{Source, Watch};
use highwater_snapshots::event::EventKind;
use highwater_snapshots::ids::{BlockId, DeviceId};
use highwater_snapshots::trace::Trace;
use highwater_snapshots::{Phase, Result};

/// The peak without the blocks of some causes.
pub(super) struct Left {
    pub(super) peak: Moment,
    /// The bytes of each cause at that peak, by index of the cause.
    pub(super) by_cause: Vec<u64>,
    /// The bytes of the peak without one further cause, for each requested cause.
    pub(super) further: Vec<u64>,
}

/// A recording, one of its devices, and the data collected about that device.
pub(crate) struct Recorded<'a, 'w> {
    pub(super) source: &'a Source<'a>,
    device: DeviceId,
    metric: Metric,
    watch: Watch<'w>,
    /// The failed request at the end of the recording, and its device; `None` if there is none.
    pub(super) failed: Option<(u64, DeviceId)>,
    /// The steps and phases; complete once all windows have been read.
    spans: Vec<ActiveSpan>,
    /// Number of gradients that backward allocates and that outlive backward. Complete after all windows have been
    /// read.
    kept_gradients: u64,
    /// The events of each window, and the frontier of the window; `None` if the frontier has too many points.
    frontiers: Vec<(Range<u64>, Option<Frontier>)>,
}

struct PartFound {
    events: Range<u64>,
    peak: Moment,
    /// For each selection, the largest total without each group.
    without: Vec<HashMap<Vec<Code>, Moment>>,
    /// The frontier of this window, if causes are selected. The inner `None` means too many points.
    frontier: Option<Option<Frontier>>,
    spans: Vec<ActiveSpan>,
    kept_gradients: u64,
}

impl PartFound {
    fn of(trace: &Trace, device: DeviceId, metric: Metric, selections: &[Selection<'_>]) -> Self {
        let grouped: Vec<(Grouped, Vec<Vec<Code>>)> =
            selections.iter().map(|selection| selection.group(trace, device)).collect();
        let columns: Vec<&Grouped> = grouped.iter().map(|(grouped, _)| grouped).collect();
        let is_by_cause = |(selection, _): &(&Selection<'_>, _)| matches!(selection, Selection::Causes);
        let by_cause = selections.iter().zip(&grouped).find(is_by_cause).map(|(_, (grouped, _))| &grouped.group_of);
        let ((peak, found), (frontier, (spans, kept_gradients))) = rayon::join(
            || peaks_without(trace, device, metric, &columns, |_| false),
            || {
                rayon::join(
                    || by_cause.map(|causes| Frontier::of(trace, device, metric, causes)),
                    || (active_spans(trace, device), kept_gradients(trace, device)),
                )
            },
        );
        let moment = |absence: &Counterfactual| Moment::of(trace, device, metric, absence.bytes, absence.after);
        let peaks = |((_, codes), found): (&(Grouped, Vec<Vec<Code>>), Vec<Counterfactual>)| {
            codes.iter().cloned().zip(found.iter().map(moment)).collect()
        };
        let start = trace.start.events;
        Self {
            events: start..start + trace.events.len() as u64,
            peak: moment(&peak),
            without: grouped.iter().zip(found).map(peaks).collect(),
            frontier,
            spans,
            kept_gradients,
        }
    }
}

#[derive(Default)]
struct Merged {
    without: Vec<HashMap<Vec<Code>, Moment>>,
    peak: Option<Moment>,
}

impl Merged {
    /// Adds the figures of the following part. Groups that do not occur in the part get the figures of the total.
    fn take(&mut self, part: &PartFound) {
        self.without.resize_with(part.without.len(), HashMap::new);
        for (all, found) in self.without.iter_mut().zip(&part.without) {
            for (key, best) in all.iter_mut() {
                let next = found.get(key).unwrap_or(&part.peak);
                if next.bytes > best.bytes {
                    *best = *next;
                }
            }
            for (key, next) in found {
                let earlier = self.peak.filter(|earlier| earlier.bytes >= next.bytes);
                all.entry_ref(key.as_slice()).or_insert_with(|| earlier.unwrap_or(*next));
            }
        }
        if self.peak.is_none_or(|peak| part.peak.bytes > peak.bytes) {
            self.peak = Some(part.peak);
        }
    }
}

impl<'a, 'w> Recorded<'a, 'w> {
    pub(super) fn new(source: &'a Source<'a>, device: DeviceId, metric: Metric, watch: Watch<'w>) -> Result<Self> {
        let failed = source.final_oom()?;
        let (spans, frontiers) = Default::default();
        Ok(Self { source, device, metric, watch, failed, spans, kept_gradients: 0, frontiers })
    }

    /// Computes the peak without each group of each selection. Must be called with [`Selection::Causes`] exactly once,
    /// which also collects the spans, the kept gradients and the frontiers.
    pub(super) fn without(&mut self, selections: &[Selection<'_>]) -> Result<Vec<PeaksWithout>> {
        let (device, metric) = (self.device, self.metric);
        let mut merged = Merged::default();
        let (spans, kept, frontiers) = (&mut self.spans, &mut self.kept_gradients, &mut self.frontiers);
        let take = |part: PartFound| {
            merged.take(&part);
            if let Some(frontier) = part.frontier {
                frontiers.push((part.events, frontier));
                append_spans(spans, part.spans);
                *kept += part.kept_gradients;
            }
        };
        self.source.each_window(|trace| PartFound::of(trace, device, metric, selections), take, self.watch)?;
        let none = Moment::of(self.source.facts(), device, metric, 0, None);
        let peak = merged.peak.unwrap_or(none);
        merged.without.resize_with(selections.len(), HashMap::new);
        Ok(merged.without.into_iter().map(|found| PeaksWithout::new(found, peak)).collect())
    }

    /// Computes the peak without all blocks of the causes `gone`, and the peaks that additionally exclude each of the
    /// `others`.
    pub(super) fn without_causes(&self, gone: &[CategoryAndPhase], others: &[CategoryAndPhase]) -> Result<Left> {
        let (device, metric) = (self.device, self.metric);
        let is_gone = |number: u32| gone.iter().any(|cause| cause.number() as u32 == number);
        let (mut largest, mut further): (Option<(u64, &Range<u64>)>, _) = (None, vec![0; others.len()]);
        for (events, frontier) in &self.frontiers {
            let (most, found): (u64, Vec<u64>) = match frontier {
                Some(frontier) => {
                    let with = |cause: &CategoryAndPhase| {
                        gone.iter().chain([cause]).copied().collect::<Vec<CategoryAndPhase>>()
                    };
                    let found = others.iter().map(|cause| frontier.largest_without(&with(cause)));
                    (frontier.largest_without(gone), found.collect())
                }
                None => {
                    let trace = &self.source.window(events.clone())?.trace;
                    let grouped = Grouped { group_of: causes(trace, device), groups: CategoryAndPhase::COUNT };
                    let is_gone = |id: BlockId| is_gone(grouped.group_of[id.0 as usize]);
                    let (peak, found) = peaks_without(trace, device, metric, &[&grouped], is_gone);
                    (peak.bytes, others.iter().map(|cause| found[0][cause.number()].bytes).collect())
                }
            };
            further.iter_mut().zip(found).for_each(|(all, own): (&mut u64, u64)| *all = own.max(*all));
            if largest.is_none_or(|(bytes, _)| most > bytes) {
                largest = Some((most, events));
            }
        }
        let window = self.source.window(largest.map_or(0..0, |(_, events)| events.clone()))?;
        let trace = &window.trace;
        let group_of = causes(trace, device);
        let (Counterfactual { bytes, after: event }, _) =
            peaks_without(trace, device, metric, &[], |id| is_gone(group_of[id.0 as usize]));
        let peak = Moment::of(trace, device, metric, bytes, event);
        let at_peak = window.index(device).live.before_position(trace, metric, peak.position());
        Ok(Left { by_cause: sums_by_cause(trace, metric, &at_peak), peak, further })
    }

    /// Returns whether a phase occurs in the recording. Call after [`Self::without`].
    pub(super) fn has_phase(&self, phase: Phase) -> bool {
        self.spans.iter().any(|span| span.phase == phase)
    }

    /// Returns whether the optimizer could update each parameter during backward, but does not. Call after
    /// [`Self::without`].
    pub(super) fn could_step_in_backward(&self) -> bool {
        let spans = || self.spans.iter().map(|span| (span.step, span.phase));
        self.has_phase(Phase::Optimizer)
            && !is_step_in_backward(spans(), self.kept_gradients)
            && !accumulates_gradients(spans())
    }

    pub(super) fn at_active_peak(&self) -> Result<Totals> {
        let peak = self.source.peak(self.device, Metric::Active)?;
        Ok(self.source.window_at(peak.number())?.totals(self.device))
    }

    /// Returns the events of an optimizer phase that is incomplete because of a failed request or the end of the
    /// recording. Call after [`Self::without`].
    pub(super) fn unfinished_optimizer(&self) -> Result<Option<Range<u64>>> {
        let last = || self.source.events().next_back().filter(|_| self.source.facts().trust.unfinished);
        let Some(event) = self.failed.map(|(event, _)| event).or_else(last) else { return Ok(None) };
        let window = self.source.window_at(Some(event))?;
        let stage = window.last().and_then(|event| window.trace.stage_at(event));
        Ok(stage.filter(|stage| stage.phase == Phase::Optimizer).map(|stage| {
            let later = self.spans.iter().find(|span| span.events.contains(&event));
            stage.since..later.map_or(event + 1, |span| span.events.end)
        }))
    }

    /// Returns the leaks over the steps for which growth is measured; `None` if no step is complete. Call after
    /// [`Self::without`].
    pub(super) fn leaks(&self) -> Result<Option<Leaks>> {
        Leaks::of_spans(self.source, self.device, self.metric, &self.spans)
    }

    pub(super) fn churn(&mut self) -> Result<SegmentChurn> {
        let freed = [EventKind::SegmentFree, EventKind::SegmentUnmap];
        if freed.into_iter().all(|kind| self.source.count(self.device, kind) == 0) {
            return Ok(SegmentChurn::default());
        }
        let (device, mut churn) = (self.device, SegmentChurn::default());
        let take = |part: SegmentChurn| churn = std::mem::take(&mut churn).followed_by(part);
        self.source.each_window(|trace| SegmentChurn::of(trace, device), take, self.watch)?;
        Ok(churn)
    }

    /// Returns the pools that are in use at the same time.
    pub(super) fn pools(&mut self) -> Result<Together> {
        let (device, mut together) = (self.device, Together::default());
        let take = |part: Together| together.append(part);
        self.source.each_window(|trace| Together::of_pools(trace, device), take, self.watch)?;
        Ok(together)
    }
}
