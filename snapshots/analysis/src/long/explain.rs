//! Explains the peak of a recording that is read in parts.

use std::ops::Range;

use hashbrown::HashMap;
use highwater_snapshots::event::EventKind;
use highwater_snapshots::format::Windows;
use highwater_snapshots::ids::{BlockId, DeviceId, EventId, ScopeId};
use highwater_snapshots::trace::Trace;
use highwater_snapshots::{Phase, Result};

use super::failed_requests::final_oom;
use super::frontier::Frontier;
use super::leaks::leaks;
use super::spans::{append, spans_of};
use super::{Parts, Watch, WindowedMoment, check_count, each_part, peak};
use crate::coder::Code;
use crate::counterfactual::{Counterfactual, Grouped, absences};
use crate::device_spans::ActiveSpan;
use crate::explain::{
    Cause, ExplainQuery, Explanation, FinalOom, PeakByCause, PeaksWithout, Recorded, Scene, SegmentChurn, Selection,
    causes, is_step_in_backward, kept_gradients, sums_by_cause,
};
use crate::growth::Leaks;
use crate::live::LiveIndex;
use crate::metric::{Metric, Totals};
use crate::peak::Moment;
use crate::series::Series;
use crate::together::Together;

/// Events that are read from the peak on: more than an optimizer step has.
const EVENTS_FROM_PEAK: u64 = 1 << 19;

/// The explanation of a peak, and the window of events that begins with it.
#[derive(Debug)]
pub struct WindowedExplanation {
    /// The explanation; its events are numbered over the whole recording. It has no idle blocks.
    pub explanation: Explanation,
    /// The window.
    pub window: Trace,
    /// Whether the recording has uses of blocks, from which idle blocks could be found.
    pub has_uses: bool,
}

/// Explains the peak of `device`, as [`Explanation::of`] does, except for idle blocks.
///
/// # Errors
///
/// Fails if a window cannot be read, or with [`Error::Cancelled`](highwater_snapshots::Error::Cancelled) if `watch`
/// breaks.
///
/// # Panics
///
/// If the metric is not a sum over blocks.
pub fn explain(
    parts: Parts<'_>,
    device: DeviceId,
    query: &ExplainQuery<'_>,
    watch: Watch<'_>,
) -> Result<WindowedExplanation> {
    check_count(parts.windows)?;
    let windows = parts.windows;
    let peak = peak(windows, device, query.metric)?;
    let start = peak.number().unwrap_or(0);
    let window = windows.window(start..start + EVENTS_FROM_PEAK)?;
    let (series, live) = (Series::build(&window, device), LiveIndex::build(&window, device));
    let local = Moment { event: peak.event.map(|_| EventId(0)), events_before: start, ..peak };
    let at_peak = live.before_position(&window, query.metric, local.position());
    let scene = Scene { trace: &window, series: &series, live: &live, peak: local, at_peak };
    let mut recorded = InParts {
        parts,
        device,
        metric: query.metric,
        watch,
        failed: final_oom(windows)?,
        spans: Vec::new(),
        kept_gradients: 0,
        frontiers: Vec::new(),
    };
    let mut explanation = Explanation::of_scene(&mut recorded, scene, None, query)?;
    explanation.peak = peak;
    let has_uses = count(windows, device, EventKind::Used) > 0;
    Ok(WindowedExplanation { explanation, window, has_uses })
}

/// The number of events of a kind on `device`.
fn count(windows: &Windows, device: DeviceId, kind: EventKind) -> u64 {
    let rows = windows.summaries().iter().flat_map(|row| &row.devices).filter(|row| row.device == device);
    rows.map(|row| u64::from(row.counts[kind as usize])).sum()
}

/// A recording that is read in parts.
struct InParts<'a, 'w> {
    parts: Parts<'a>,
    device: DeviceId,
    metric: Metric,
    watch: Watch<'w>,
    failed: Option<(u64, DeviceId)>,
    /// The steps and phases, once all parts were read.
    spans: Vec<ActiveSpan>,
    /// The number of gradients that backward allocates and that outlive it, once all parts were read.
    kept_gradients: u64,
    /// The events of each part, and its moments that matter; `None` if these are too many.
    frontiers: Vec<(Range<u64>, Option<Frontier>)>,
}

/// The figures of one part of the recording.
struct PartFound {
    events: Range<u64>,
    /// The largest total.
    peak: Moment,
    /// By selection: the largest total without each group.
    without: Vec<HashMap<Vec<Code>, Moment>>,
    /// The moments that matter without some causes, if they are a selection, and not too many.
    frontier: Option<Option<Frontier>>,
    spans: Vec<ActiveSpan>,
    kept_gradients: u64,
}

impl PartFound {
    fn of(trace: &Trace, device: DeviceId, metric: Metric, selections: &[Selection<'_>]) -> Self {
        let grouped: Vec<(Grouped, Vec<Vec<Code>>)> =
            selections.iter().map(|selection| selection.group(trace, device)).collect();
        let none = Grouped { group_of: Vec::new(), groups: 1 };
        let columns: Vec<&Grouped> = grouped.iter().map(|(grouped, _)| grouped).chain([&none]).collect();
        let mut found = absences(trace, device, metric, &columns, |_| false);
        let of_none = found.pop().and_then(|none| none.first().copied()).unwrap_or_default();
        let is_by_cause = |(selection, _): &(&Selection<'_>, _)| matches!(selection, Selection::Causes);
        let by_cause = selections.iter().zip(&grouped).find(is_by_cause).map(|(_, (grouped, _))| &grouped.group_of);
        let moment = |absence: &Counterfactual| moment(trace, device, metric, absence);
        let peaks = |((_, codes), found): (&(Grouped, Vec<Vec<Code>>), Vec<Counterfactual>)| {
            codes.iter().cloned().zip(found.iter().map(moment)).collect()
        };
        let start = trace.start.events;
        Self {
            events: start..start + trace.events.len() as u64,
            peak: moment(&of_none),
            without: grouped.iter().zip(found).map(peaks).collect(),
            frontier: by_cause.map(|causes| Frontier::of(trace, device, metric, causes)),
            spans: spans_of(trace, device),
            kept_gradients: kept_gradients(trace, device),
        }
    }
}

/// The moment of an absence, its event numbered over the whole recording.
fn moment(trace: &Trace, device: DeviceId, metric: Metric, absence: &Counterfactual) -> Moment {
    let number = |event: EventId| EventId::from_index(trace.number(event) as usize);
    let local = Moment::of(trace, device, metric, absence.bytes, absence.event);
    Moment { event: absence.event.map(number), events_before: 0, ..local }
}

/// The largest totals of all parts so far.
#[derive(Default)]
struct Merged {
    without: Vec<HashMap<Vec<Code>, Moment>>,
    peak: Option<Moment>,
}

impl Merged {
    /// Adds the part that follows. A group that a part does not have leaves its whole total.
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

impl InParts<'_, '_> {
    fn windows(&self) -> &Windows {
        self.parts.windows
    }
}

impl Recorded for InParts<'_, '_> {
    type Error = highwater_snapshots::Error;

    fn without(&mut self, selections: &[Selection<'_>]) -> Result<Vec<PeaksWithout>> {
        let (device, metric) = (self.device, self.metric);
        let mut merged = Merged::default();
        let (spans, kept, frontiers) = (&mut self.spans, &mut self.kept_gradients, &mut self.frontiers);
        let map = |trace: Trace| PartFound::of(&trace, device, metric, selections);
        let take = |part: PartFound| {
            merged.take(&part);
            if let Some(frontier) = part.frontier {
                frontiers.push((part.events, frontier));
                append(spans, part.spans);
                *kept += part.kept_gradients;
            }
        };
        each_part(self.parts, map, take, self.watch)?;
        let none = Moment::of(self.windows().base(), device, metric, 0, None);
        let peak = merged.peak.unwrap_or(none);
        merged.without.resize_with(selections.len(), HashMap::new);
        Ok(merged.without.into_iter().map(|found| PeaksWithout::new(found, peak)).collect())
    }

    fn without_causes(&mut self, gone: &[Cause], further: &[Cause]) -> Result<(PeakByCause, Vec<u64>)> {
        let (device, metric) = (self.device, self.metric);
        // By part: the largest total without `gone`, and without each further cause as well.
        let mut by_part: Vec<Largest> = Vec::with_capacity(self.frontiers.len());
        for (events, frontier) in &self.frontiers {
            by_part.push(match frontier {
                Some(frontier) => {
                    let with = |cause: &Cause| gone.iter().chain([cause]).copied().collect::<Vec<Cause>>();
                    let further = further.iter().map(|cause| frontier.largest_without(&with(cause)));
                    (frontier.largest_without(gone), further.collect())
                }
                None => {
                    let trace = self.windows().window(events.clone())?;
                    let grouped = Grouped { group_of: causes(&trace, device), groups: Cause::COUNT };
                    let is_gone = |id: BlockId| is_of(gone, grouped.group_of[id.0 as usize]);
                    let none = Grouped { group_of: Vec::new(), groups: 1 };
                    let found = absences(&trace, device, metric, &[&grouped, &none], is_gone);
                    let further = further.iter().map(|cause| found[0][cause.number()].bytes);
                    (found[1][0].bytes, further.collect())
                }
            });
        }
        let largest = |of: &dyn Fn(&Largest) -> u64| by_part.iter().map(of).max().unwrap_or(0);
        let left = (0..further.len()).map(|row| largest(&|part| part.1[row])).collect();
        let most = largest(&|part| part.0);
        let first = by_part.iter().position(|part| part.0 == most);
        let events = first.map_or(0..0, |row| self.frontiers[row].0.clone());
        let trace = self.windows().window(events)?;
        let group_of = causes(&trace, device);
        let is_gone = |id: BlockId| is_of(gone, group_of[id.0 as usize]);
        let none = Grouped { group_of: Vec::new(), groups: 1 };
        let found = absences(&trace, device, metric, &[&none], is_gone)[0][0];
        let position = found.event.map_or(0, |event| event.0 as usize + 1);
        let at_peak = LiveIndex::build(&trace, device).before_position(&trace, metric, position);
        let peak = moment(&trace, device, metric, &found);
        Ok((PeakByCause { peak, bytes: sums_by_cause(&trace, metric, &at_peak) }, left))
    }

    fn has_phase(&self, phase: Phase) -> bool {
        self.spans.iter().any(|span| span.phase == phase)
    }

    fn steps_in_backward(&self) -> bool {
        is_step_in_backward(self.spans.iter().map(|span| (span.step, span.phase)), self.kept_gradients)
    }

    fn at_active_peak(&mut self) -> Result<Totals> {
        let peak = peak(self.windows(), self.device, Metric::Active)?;
        let found = WindowedMoment::at(self.windows(), self.device, Metric::Active, peak.number())?;
        let series = Series::build(&found.window, self.device);
        Ok(series.before_position(&found.window, usize::from(peak.event.is_some())))
    }

    fn final_oom(&self) -> Option<FinalOom> {
        self.failed.map(|(event, device)| FinalOom { event, device })
    }

    fn failed_requests(&self) -> u64 {
        count(self.windows(), self.device, EventKind::Oom)
    }

    fn unfinished_optimizer(&mut self) -> Result<Option<Range<u64>>> {
        let windows = self.windows();
        let last = || windows.events().checked_sub(1).filter(|_| windows.base().trust.unfinished);
        let Some(event) = self.failed.map(|(event, _)| event).or_else(last) else { return Ok(None) };
        let window = windows.window(event..event + 1)?;
        let stage = window.stage_at(EventId(0)).filter(|stage| stage.phase == Phase::Optimizer);
        Ok(stage.map(|stage| {
            let later = self.spans.iter().find(|span| span.events.contains(&event));
            stage.since..later.map_or(event + 1, |span| span.events.end)
        }))
    }

    fn leaks(&mut self) -> Result<Option<Leaks>> {
        leaks(self.parts.windows, (self.device, self.metric), &self.spans)
    }

    fn churn(&mut self) -> Result<SegmentChurn> {
        let freed = [EventKind::SegmentFree, EventKind::SegmentUnmap];
        if freed.into_iter().all(|kind| count(self.windows(), self.device, kind) == 0) {
            return Ok(SegmentChurn::default());
        }
        let (device, mut churn) = (self.device, SegmentChurn::default());
        let take = |part: SegmentChurn| churn = std::mem::take(&mut churn).followed_by(part);
        each_part(self.parts, |trace: Trace| SegmentChurn::of(&trace, device), take, self.watch)?;
        Ok(churn)
    }

    /// Private pools are attributes, with which a recording is not read in parts.
    fn pools(&mut self) -> Result<Together> {
        Ok(Together::default())
    }

    fn operations(&mut self) -> Result<HashMap<ScopeId, u64>> {
        self.windows().count_operations()
    }
}

/// The largest total of a part without some causes, and without each further cause as well.
type Largest = (u64, Vec<u64>);

/// Whether a block whose cause has this number is of one of `causes`.
fn is_of(causes: &[Cause], number: u32) -> bool {
    causes.iter().any(|cause| cause.number() as u32 == number)
}
