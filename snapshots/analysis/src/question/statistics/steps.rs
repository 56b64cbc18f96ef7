//! The effect of each step on the totals.

use std::ops::Range;

use crate::grouping::matches::Matches;
use crate::index::device_spans::device_spans;
use crate::index::replay::{Effect, baseline_effects, effects};
use crate::metric::{Metric, Totals};
use highwater_snapshots::ids::{BlockId, DeviceId, EventId};
use highwater_snapshots::trace::Trace;

use crate::question::between::Sum;

/// A step, or a range of events outside of steps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StepRow {
    /// The step number; `None` outside of steps.
    pub step: Option<u32>,
    /// The indices of the events of the step, including those of other devices.
    pub range: Range<u32>,
    /// Number of events of this device in the range, including those that concern every device.
    pub events: u64,
    /// Times of the first and the last of these events, in nanoseconds since the recording's origin.
    pub times_ns: Option<(u64, u64)>,
    /// Number of blocks allocated in the range.
    pub allocations: u64,
    /// Requested bytes of these blocks.
    pub requested: u64,
    /// Rounded bytes of these blocks.
    pub allocated: u64,
    /// Number of blocks whose free was requested in the range.
    pub frees: u64,
    /// The totals before the range.
    pub start: Totals,
    /// The maximum of each total from the start to the end of the range.
    pub peak: Totals,
    /// The totals after the range.
    pub end: Totals,
    /// The blocks allocated in the range that are never freed.
    pub kept: Sum,
}

impl StepRow {
    /// The increase of a total over the step, in bytes.
    pub fn growth(&self, metric: Metric) -> i64 {
        difference(self.end.get(metric), self.start.get(metric))
    }

    /// The increase of the peak compared with row `before`, in bytes.
    pub fn peak_growth(&self, before: &Self, metric: Metric) -> i64 {
        difference(self.peak.get(metric), before.peak.get(metric))
    }
}

fn difference(after: u64, before: u64) -> i64 {
    let size = i64::try_from(after.abs_diff(before)).unwrap_or(i64::MAX);
    if after < before { -size } else { size }
}

/// The rows in order; `kept` is filled in later.
pub(super) fn steps(trace: &Trace, device: DeviceId, matches: &Matches) -> Vec<StepRow> {
    let mut totals = Totals::default();
    baseline_effects(trace, device, |effect| {
        apply(trace, matches, &mut totals, effect);
    });
    let mut rows = runs(trace, device);
    for row in &mut rows {
        (row.start, row.peak) = (totals, totals);
        for index in row.range.start as usize..row.range.end as usize {
            let is_ours = trace.events.device.get(index) == Some(&device);
            if !is_ours && !trace.is_everywhere(EventId(index as u32)) {
                continue;
            }
            row.events += 1;
            if let Some(time) = trace.time_of(EventId(index as u32)) {
                let widened = |(first, last): (u64, u64)| (first.min(time), last.max(time));
                row.times_ns = Some(row.times_ns.map_or((time, time), widened));
            }
            if !is_ours {
                continue;
            }
            effects(trace, index, |effect| {
                if apply(trace, matches, &mut totals, effect) {
                    row.count(trace, effect);
                }
            });
            row.peak = row.peak.max(&totals);
        }
        row.end = totals;
    }
    rows
}

impl StepRow {
    fn count(&mut self, trace: &Trace, effect: Effect) {
        match effect {
            Effect::Allocated(row) => {
                self.allocations += 1;
                self.requested = self.requested.saturating_add(trace.blocks.requested[row]);
                self.allocated = self.allocated.saturating_add(trace.blocks.allocated[row]);
            }
            Effect::FreeRequested(_) => self.frees += 1,
            _ => {}
        }
    }
}

/// Applies an effect to the totals unless its block is not counted. Returns whether it was applied.
fn apply(trace: &Trace, matches: &Matches, totals: &mut Totals, effect: Effect) -> bool {
    let counts = match effect {
        Effect::Allocated(row) | Effect::FreeRequested(row) | Effect::FreeCompleted(row) => {
            matches.contains(BlockId(row as u32))
        }
        _ => true,
    };
    if counts {
        effect.apply(trace, totals);
    }
    counts
}

/// The ranges of events in the same step, as rows without sums.
fn runs(trace: &Trace, device: DeviceId) -> Vec<StepRow> {
    let mut rows: Vec<StepRow> = Vec::new();
    for span in device_spans(trace, device) {
        match rows.last_mut().filter(|last| last.step == span.step) {
            Some(last) => last.range.end = span.end.0,
            None => {
                rows.push(StepRow { step: span.step, range: span.first.0..span.end.0, ..StepRow::default() });
            }
        }
    }
    rows
}
