//! The effect of each step and phase on a total.

use highwater_snapshots::event::EventKind;
use highwater_snapshots::ids::{DeviceId, EventId};
use highwater_snapshots::stage::Stage;
use highwater_snapshots::trace::{Annotation, Span, Trace};
use highwater_snapshots::{Category, Phase};

use super::peak::{Moment, counts_instead};
use crate::index::device_spans::{ActiveSpan, Activity, StepActivity, activity_in};
use crate::index::replay::{Effect, Replay, baseline_effects};
use crate::metric::{Metric, Totals};

/// A phase of a step. Event indices are those in the whole recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PhaseRow {
    /// The step; `None` outside of steps.
    pub step: Option<u32>,
    /// The phase of the step, such as forward.
    pub phase: Phase,
    /// The index of the first event.
    pub first: u64,
    /// The index of the last event; less than `first` for a phase without events.
    pub last: u64,
    /// The total before the first event.
    pub start_bytes: u64,
    /// The largest total from start to end.
    pub peak_bytes: u64,
    /// The first event that reaches the peak; `None` if the start is never exceeded.
    pub peak_event: Option<u64>,
    /// The total after the last event.
    pub end_bytes: u64,
    /// Bytes by category at the peak. Only blocks count, so the sum may be less than the peak for `reserved` and
    /// `device_used`.
    pub at_peak: CategoryBytes,
}

impl PhaseRow {
    /// Creates a phase of a step in which the total and the categories do not change.
    fn unchanged(
        (step, phase): (Option<u32>, Phase),
        (first, last): (u64, u64),
        bytes: u64,
        at_peak: CategoryBytes,
    ) -> Self {
        let (start_bytes, peak_bytes, end_bytes) = (bytes, bytes, bytes);
        Self { step, phase, first, last, start_bytes, peak_bytes, peak_event: None, end_bytes, at_peak }
    }

    pub(crate) fn stage(&self) -> (Option<u32>, Phase) {
        (self.step, self.phase)
    }

    /// Replaces the peak by a larger total.
    fn raise(&mut self, bytes: u64, event: Option<u64>, at_peak: &CategoryBytes) {
        if bytes > self.peak_bytes {
            (self.peak_bytes, self.peak_event, self.at_peak) = (bytes, event, *at_peak);
        }
    }
}

/// Bytes of each category.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CategoryBytes([u64; Category::ALL.len()]);

impl CategoryBytes {
    /// The bytes of one category.
    pub fn get(&self, category: Category) -> u64 {
        self.0[category as usize]
    }

    /// The categories that have bytes, largest first.
    pub fn ranked(&self) -> Vec<(Category, u64)> {
        let rows = Category::ALL.iter().map(|&category| (category, self.get(category)));
        let mut rows: Vec<(Category, u64)> = rows.filter(|(_, bytes)| *bytes > 0).collect();
        rows.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
        rows
    }

    #[inline]
    fn take(&mut self, trace: &Trace, metric: Metric, effect: Effect) {
        let Some((row, begins)) = effect.of_block(metric) else { return };
        let bytes = trace.blocks.sizes(metric)[row];
        let sum = &mut self.0[trace.blocks.category[row] as usize];
        *sum = if begins { *sum + bytes } else { *sum - bytes };
    }
}

/// A range of consecutive events in one step and phase, or part of one, with the values of one device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageRow {
    phase: PhaseRow,
    /// The index of the event at which the step or the phase began.
    since: u64,
    /// Whether this device, and whether any other device, allocates or frees memory in the range.
    activity: Activity,
    /// Whether no event changes the device's memory or is a failed request on the device.
    is_idle: bool,
}

/// The ranges of events in one step and phase, in order, with the values of `device`.
pub(crate) fn stage_rows(trace: &Trace, device: DeviceId, metric: Metric) -> Vec<StageRow> {
    let number = |event: EventId| trace.start.events + u64::from(event.0);
    let mut live = CategoryTotals::new(trace, device, metric);
    let row = |span: &Span| {
        let Stage { step, phase, since } = trace.stage_at(span.first).unwrap_or_default();
        let (first, last) = (number(span.first), number(span.end) - 1);
        let mut row = PhaseRow::unchanged((step, phase), (first, last), live.total(), live.bytes);
        let mut is_idle = true;
        while live.position() < span.end.0 as usize {
            let Some((id, has_effect)) = live.step() else { break };
            if !has_effect {
                continue;
            }
            is_idle = false;
            row.raise(live.total(), Some(number(id)), &live.bytes);
        }
        row.end_bytes = live.total();
        StageRow { phase: row, since, activity: activity_in(trace, device, span), is_idle }
    };
    trace.spans.rows().iter().map(row).collect()
}

/// Appends the rows of the following events, merging a range that continues the last one.
pub(crate) fn append_rows(rows: &mut Vec<StageRow>, more: Vec<StageRow>) {
    for next in more {
        match rows.last_mut().filter(|last| last.stage() == next.stage()) {
            Some(last) => last.join(next),
            None => rows.push(next),
        }
    }
}

impl StageRow {
    fn stage(&self) -> (Option<u32>, Phase, u64) {
        (self.phase.step, self.phase.phase, self.since)
    }

    fn join(&mut self, next: Self) {
        self.activity = self.activity.and(next.activity);
        self.is_idle &= next.is_idle;
        let (all, next) = (&mut self.phase, next.phase);
        all.raise(next.peak_bytes, next.peak_event, &next.at_peak);
        (all.last, all.end_bytes) = (next.last, next.end_bytes);
    }

    pub(crate) fn span(&self) -> ActiveSpan {
        let PhaseRow { step, phase, first, last, .. } = self.phase;
        ActiveSpan { step, phase, events: first..last + 1, activity: self.activity }
    }

    /// Returns whether this is a phase of a step in which the device is active, or no device is. Such a phase is listed
    /// even
    /// if memory is unchanged, since that is itself a result.
    fn is_answer(&self) -> bool {
        let is_training = !matches!(self.phase.phase, Phase::Setup | Phase::Other);
        is_training && self.phase.step.is_some() && self.activity.is_of_device()
    }
}

/// Returns the step numbers of a device without duplicates, in order of appearance; `rows` contains all of its rows.
pub fn steps_of(rows: &[StageRow]) -> Vec<u32> {
    let steps = StepActivity::of(rows.iter().map(|row| (row.phase.step, row.activity)));
    let mut seen = std::collections::HashSet::new();
    let of_device = rows.iter().filter_map(|row| row.phase.step).filter(|step| steps.is_of_device(Some(*step)));
    of_device.filter(|step| seen.insert(*step)).collect()
}

/// The phases of a device in a trace.
pub fn phases_of(trace: &Trace, device: DeviceId, metric: Metric) -> Vec<PhaseRow> {
    phases(trace, device, metric, stage_rows(trace, device, metric))
}

/// Returns the phases of `device` in order. `rows` must be all rows of the device, and `facts` the facts of the
/// recording. Lists phases outside of steps only if memory is allocated or freed in them. Omits phases in which only
/// other devices are active.
pub fn phases(facts: &Trace, device: DeviceId, metric: Metric, rows: Vec<StageRow>) -> Vec<PhaseRow> {
    let mut rows = phase_rows(rows);
    // Only recordings in memory have annotations.
    for row in eventless(facts, device, metric) {
        let is_known = |known: &PhaseRow| (known.step, known.phase) == (row.step, row.phase);
        if row.step.is_some() && !rows.iter().any(is_known) {
            // After other phases without events at the same position.
            let is_before =
                |known: &PhaseRow| known.first < row.first || (known.first == row.first && known.last < known.first);
            let after = rows.partition_point(is_before);
            rows.insert(after, row);
        }
    }
    rows
}

/// Returns the phases that, according to the program's annotations, contain no event, such as an optimizer step without
/// allocations. The total does not change in them. Each is placed before the next event.
fn eventless(trace: &Trace, device: DeviceId, metric: Metric) -> Vec<PhaseRow> {
    let mut found: Vec<(usize, Phase, Option<u32>)> = Vec::new();
    let zeroes_first = zeroes_first(trace);
    for annotation in trace.annotations.iter().filter(|annotation| annotation.first == annotation.end) {
        let phase = trace.phase_named(annotation.name).filter(|_| !annotation.is_guessed);
        let position = (annotation.first.0 as usize).min(trace.events.len());
        let step = |phase: Phase| step_between(trace, annotation, phase == Phase::ZeroGrad && zeroes_first);
        found.extend(phase.map(|phase| (position, phase, step(phase))));
    }
    if found.is_empty() {
        return Vec::new();
    }
    found.sort_unstable();
    found.dedup();
    let steps = StepActivity::of(trace.spans.rows().iter().map(|span| (span.step, activity_in(trace, device, span))));
    let mut live = CategoryTotals::new(trace, device, metric);
    let row = |(position, phase, step): (usize, Phase, Option<u32>)| {
        while live.position() < position && live.step().is_some() {}
        let last = EventId::from_index(position.checked_sub(1)?);
        let events = (trace.start.events + position as u64, trace.number(last));
        let row = PhaseRow::unchanged((step, phase), events, live.total(), live.bytes);
        steps.is_of_device(step).then_some(row)
    };
    found.into_iter().filter_map(row).collect()
}

/// Returns whether each step of `trace` starts by zeroing the gradients, which is assumed if the first step did so
/// before forward.
fn zeroes_first(trace: &Trace) -> bool {
    let is_zero_grad = |annotation: &&Annotation| trace.phase_named(annotation.name) == Some(Phase::ZeroGrad);
    let first = trace.annotations.iter().filter(is_zero_grad).map(|annotation| annotation.first).min();
    let forward = trace.spans.rows().iter().find(|span| span.phase == Phase::Forward).map(|span| span.first);
    first.zip(forward).is_some_and(|(first, forward)| first <= forward)
}

/// Returns the step of an annotation without events. An annotation between two steps belongs to the earlier step,
/// unless it `begins_step` or is inside a range that begins with the later step.
fn step_between(trace: &Trace, annotation: &Annotation, begins_step: bool) -> Option<u32> {
    let step_at = |event: EventId| trace.spans.at(event).and_then(|span| span.step);
    let before = annotation.first.0.checked_sub(1).and_then(|last| step_at(EventId(last)));
    let after = step_at(annotation.first);
    let is_around = |other: &Annotation| {
        let is_range = other.first == annotation.first && other.end > other.first && !trace.is_tag(other.name);
        let times = other.start_ns.zip(annotation.start_ns);
        is_range && trace.phase_named(other.name).is_none() && times.is_some_and(|(start, own)| start <= own)
    };
    let is_later = || begins_step || trace.annotations.iter().any(is_around);
    if after.is_some() && after != before && is_later() { after } else { before }
}

/// Returns the phases that have events; `rows` contains all rows of a recording.
fn phase_rows(rows: Vec<StageRow>) -> Vec<PhaseRow> {
    let steps = StepActivity::of(rows.iter().map(|row| (row.phase.step, row.activity)));
    let is_phase = |row: &StageRow| steps.is_of_device(row.phase.step) && (!row.is_idle || row.is_answer());
    rows.into_iter().filter(is_phase).map(|row| row.phase).collect()
}

/// Returns the event at which the total is largest, and its row, chosen like
/// [`Source::peak`](super::source::Source::peak); `rows` contains all rows of a recording. `None` if the total never
/// exceeds its value before the first event.
pub fn peak_of(rows: &[StageRow]) -> Option<(u64, &StageRow)> {
    let most = rows.iter().map(|row| row.phase.peak_bytes).max()?;
    let first = rows.iter().find(|row| row.phase.peak_bytes == most)?;
    let event = first.phase.peak_event?;
    let repeated = first.phase.step.and_then(|step| {
        let last = rows.iter().rposition(|row| row.phase.step == Some(step))?;
        let again = rows[last + 1..].iter().find(|row| row.phase.peak_bytes == most)?;
        let first_step = steps_of(rows).first().copied();
        // A total that only stays as high into the next step is not reached there.
        let counts =
            rows[last].phase.end_bytes < most && counts_instead(first.phase.stage(), first_step, again.phase.stage());
        Some((again.phase.peak_event.filter(|_| counts)?, again))
    });
    Some(repeated.unwrap_or((event, first)))
}

/// Returns the first point (without its time) of each other phase that reaches the same peak. Steps that repeat exactly
/// all have the same peak.
pub fn reached_elsewhere(phases: &[PhaseRow], peak: &Moment) -> Vec<Moment> {
    let others = phases.iter().filter(|row| row.peak_bytes == peak.bytes && row.peak_event != peak.number());
    let moment = |row: &PhaseRow| {
        let events_before = row.peak_event?;
        let event = Some(EventId(0));
        Some(Moment { event, events_before, time_ns: None, step: row.step, phase: row.phase, ..*peak })
    };
    others.filter_map(moment).collect()
}

/// A replay that tracks the bytes of each category.
pub(crate) struct CategoryTotals<'a> {
    trace: &'a Trace,
    metric: Metric,
    replay: Replay<'a>,
    bytes: CategoryBytes,
}

impl<'a> CategoryTotals<'a> {
    /// Starts before the first event.
    pub(crate) fn new(trace: &'a Trace, device: DeviceId, metric: Metric) -> Self {
        let mut bytes = CategoryBytes::default();
        baseline_effects(trace, device, |effect| bytes.take(trace, metric, effect));
        Self { trace, metric, replay: Replay::new(trace, device), bytes }
    }

    /// The live bytes of a category.
    pub(crate) fn of(&self, category: Category) -> u64 {
        self.bytes.get(category)
    }

    pub(crate) fn totals(&self) -> Totals {
        self.replay.totals()
    }

    fn total(&self) -> u64 {
        self.totals().get(self.metric)
    }

    /// The index of the next event.
    fn position(&self) -> usize {
        self.replay.position()
    }

    /// Applies the next event, of any device. Returns its id, and whether it changed the memory of the device or is a
    /// failed request on it.
    pub(crate) fn step(&mut self) -> Option<(EventId, bool)> {
        let Self { trace, metric, replay, bytes } = self;
        let mut has_effect = false;
        let event = replay.step_each(|effect| {
            // The driver's figure is read at the bounds of phases, even of phases that do nothing.
            has_effect |= *metric == Metric::DeviceUsed || !matches!(effect, Effect::Sampled(_));
            bytes.take(trace, *metric, effect);
        })?;
        let is_failure = || trace.events.kind[event.0 as usize] == EventKind::Oom;
        let is_here = || trace.events.device[event.0 as usize] == replay.device();
        Some((event, has_effect || is_failure() && is_here()))
    }
}
