//! The effect of each step and phase on a total.

use highwater_snapshots::event::EventKind;
use highwater_snapshots::ids::{DeviceId, EventId};
use highwater_snapshots::trace::Trace;
use highwater_snapshots::{Category, Phase};

use super::device_spans::{device_spans, is_of_device};
use super::metric::Metric;
use super::peak::Moment;
use super::replay::{Effect, Replay, baseline_effects, effects};

/// One phase of one step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PhaseRow {
    /// The step; `None` before the first.
    pub step: Option<u32>,
    /// The phase.
    pub phase: Phase,
    /// Its first event.
    pub first: EventId,
    /// Its last event.
    pub last: EventId,
    /// The total before the first event.
    pub start_bytes: u64,
    /// The largest total from start to end.
    pub peak_bytes: u64,
    /// The first event that reaches the peak; `None` if the start is never exceeded.
    pub peak_event: Option<EventId>,
    /// The total after the last event.
    pub end_bytes: u64,
    /// Bytes by category at the peak, largest first: of blocks only, so less than the peak for `reserved` and
    /// `device_used`.
    pub at_peak: Vec<(Category, u64)>,
}

/// The phases of `device`, in order. Phases without allocations or frees are left out, except optimizer phases of its
/// steps, where no memory is a result, unless another device works in them.
pub fn phases(trace: &Trace, device: DeviceId, metric: Metric) -> Vec<PhaseRow> {
    let mut rows = Vec::new();
    let mut replay = Replay::new(trace, device);
    let mut held = Held::new(trace, device, metric);
    for span in device_spans(trace, device) {
        let start_bytes = replay.totals().get(metric);
        let mut peak = (start_bytes, None, held.clone());
        let mut is_idle = true;
        while replay.position() < span.end.0 as usize {
            let Some(id) = replay.step() else { break };
            if !held.apply(trace, id) {
                continue;
            }
            is_idle = false;
            let bytes = replay.totals().get(metric);
            if bytes > peak.0 {
                peak = (bytes, Some(id), held.clone());
            }
        }
        let is_answer = || span.phase == Phase::Optimizer && span.step.is_some() && is_of_device(trace, device, &span);
        if is_idle && !is_answer() {
            continue;
        }
        rows.push(PhaseRow {
            step: span.step,
            phase: span.phase,
            first: span.first,
            last: EventId(span.end.0 - 1),
            start_bytes,
            peak_bytes: peak.0,
            peak_event: peak.1,
            end_bytes: replay.totals().get(metric),
            at_peak: peak.2.ranked(),
        });
    }
    rows
}

/// The other phases that reach the same peak: the first moment of each. Steps that repeat exactly all have the same
/// peak.
pub fn reached_elsewhere(trace: &Trace, peak: &Moment) -> Vec<Moment> {
    let rows = phases(trace, peak.device, peak.metric).into_iter();
    rows.filter(|row| row.peak_bytes == peak.bytes && row.peak_event != peak.event)
        .filter_map(|row| {
            let event = row.peak_event?;
            let time_ns = trace.events.time_of(event);
            Some(Moment { event: Some(event), time_ns, step: row.step, phase: row.phase, ..*peak })
        })
        .collect()
}

/// Running sums of bytes by category.
#[derive(Clone)]
struct Held {
    device: DeviceId,
    metric: Metric,
    bytes: [u64; Category::ALL.len()],
}

impl Held {
    fn new(trace: &Trace, device: DeviceId, metric: Metric) -> Self {
        let mut held = Self { device, metric, bytes: [0; Category::ALL.len()] };
        baseline_effects(trace, device, |effect| held.take(trace, effect));
        held
    }

    fn take(&mut self, trace: &Trace, effect: Effect) {
        let ends_at_request = matches!(self.metric, Metric::Requested | Metric::Allocated);
        let size = |row: usize| match self.metric {
            Metric::Requested => trace.blocks.requested[row],
            _ => trace.blocks.allocated[row],
        };
        let category = |row: usize| trace.blocks.category[row] as usize;
        match effect {
            Effect::Begins(row) => self.bytes[category(row)] += size(row),
            Effect::EndsLive(row) if ends_at_request => self.bytes[category(row)] -= size(row),
            Effect::EndsActive(row) if !ends_at_request => self.bytes[category(row)] -= size(row),
            _ => {}
        }
    }

    /// Applies event `id`; returns whether it affected memory of this device.
    fn apply(&mut self, trace: &Trace, id: EventId) -> bool {
        let index = id.0 as usize;
        if trace.events.device[index] != self.device {
            return false;
        }
        let mut has_effect = trace.events.kind[index] == EventKind::Oom;
        effects(trace, index, |effect| {
            // The driver's figure is read at the bounds of phases, even of phases that do nothing.
            has_effect |= self.metric == Metric::DeviceUsed || !matches!(effect, Effect::Samples(_));
            self.take(trace, effect);
        });
        has_effect
    }

    fn ranked(&self) -> Vec<(Category, u64)> {
        let mut rows: Vec<(Category, u64)> =
            Category::ALL.iter().map(|&category| (category, self.bytes[category as usize])).collect();
        rows.retain(|(_, bytes)| *bytes > 0);
        rows.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
        rows
    }
}
