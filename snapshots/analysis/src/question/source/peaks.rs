//! Finds points of a recording, and the largest totals. In a file, the summaries locate them, so few windows are read.

use std::ops::{ControlFlow, Range};

use highwater_snapshots::Result;
use highwater_snapshots::format::{Extreme, Summary};
use highwater_snapshots::ids::{DeviceId, EventId};

use super::{Kind, Source, Watch, Window};
use crate::index::device_spans::{StepActivity, activity_in, device_steps};
use crate::metric::{Metric, Totals};
use crate::question::peak::{Moment, counts_instead};
use crate::question::phases::{StageRow, append_rows, peak_of, stage_rows};

/// Number of events read first when the end of a step is searched.
const STEP_EVENTS: u64 = 1 << 16;

impl Window<'_> {
    /// Returns the state at the end of the window. It has no event if no event of [`Self::trace`](Window::trace) is
    /// before
    /// that point.
    pub fn moment(&self, device: DeviceId, metric: Metric) -> Moment {
        let event = self.events.end.checked_sub(1).map(EventId::from_index);
        Moment::at(&self.trace, &self.index(device).series, metric, event)
    }

    /// The totals after the window's events.
    pub fn totals(&self, device: DeviceId) -> Totals {
        self.index(device).series.before_position(&self.trace, self.events.end)
    }
}

impl Source<'_> {
    /// Returns the state after event `event`, or before the first event if `None`.
    ///
    /// # Errors
    /// Fails like [`Source::window_at`].
    pub fn moment(&self, device: DeviceId, metric: Metric, event: Option<u64>) -> Result<Moment> {
        Ok(self.window_at(event)?.moment(device, metric))
    }

    /// The steps and phases, with the values of `device`.
    ///
    /// # Errors
    /// Fails like [`Source::each_window`].
    pub fn stages(&self, device: DeviceId, metric: Metric, watch: Watch<'_>) -> Result<Vec<StageRow>> {
        let mut rows = Vec::new();
        self.each_window(|window| stage_rows(window, device, metric), |more| append_rows(&mut rows, more), watch)?;
        Ok(rows)
    }

    /// The point at which `metric` is largest: the first one, unless a later one [counts instead](counts_instead).
    ///
    /// # Errors
    /// Fails if a window cannot be read.
    pub fn peak(&self, device: DeviceId, metric: Metric) -> Result<Moment> {
        if let Kind::File(file) = &self.kind
            && !file.filter.is_empty()
        {
            // Summaries count all blocks.
            let rows = self.stages(device, metric, &mut |_| ControlFlow::Continue(()))?;
            return self.moment(device, metric, peak_of(&rows).map(|(event, _)| event));
        }
        let baseline = self.window_at(None)?.totals(device).get(metric);
        let found = self.largest(device, metric, self.events())?.filter(|(bytes, _)| *bytes > baseline);
        let first = self.moment(device, metric, found.map(|(_, event)| event))?;
        let Some((bytes, event)) = found else { return Ok(first) };
        let again = match first.step.filter(|_| first.bytes == bytes) {
            Some(step) if self.is_first_step(device, step, event)? => self.repeated(&first, step, event)?,
            _ => None,
        };
        Ok(again.unwrap_or(first))
    }

    /// Returns the maximum of `metric` in each of `count` parts of about equal length, from the device's first event to
    /// its last. For a file, the parts divide all events, have the resolution of the summaries, and include all blocks.
    ///
    /// # Errors
    /// Fails if a window cannot be read.
    pub fn samples(&self, device: DeviceId, metric: Metric, count: usize) -> Result<Vec<u64>> {
        let file = match &self.kind {
            Kind::InMemory(memory) => {
                let (trace, series) = (&memory.trace, &self.index(device).series);
                let is_ours = |at: &DeviceId| *at == device;
                let first = trace.events.device.iter().position(is_ours).unwrap_or(0);
                let last = trace.events.device.iter().rposition(is_ours).map_or(0, |last| last + 1);
                return Ok(series.samples(trace, metric, first..last + 1, count));
            }
            Kind::File(file) => file,
        };
        let events = self.count_events();
        let mut samples = vec![0; count];
        for row in file.windows.summaries() {
            if let Some(found) = extreme(row, device, metric) {
                let event = row.first + u64::from(found.after.saturating_sub(1));
                let at = (u128::from(event) * count as u128 / u128::from(events.max(1))) as usize;
                samples[at.min(count - 1)] = found.bytes.max(samples[at.min(count - 1)]);
            }
        }
        Ok(samples)
    }

    /// Returns the maximum of `metric` after any event of `range`, and the first event that reaches it; `None` if
    /// `range` is empty.
    ///
    /// # Errors
    /// Fails if a window cannot be read.
    pub fn largest(&self, device: DeviceId, metric: Metric, range: Range<u64>) -> Result<Option<(u64, u64)>> {
        let in_window = |range: Range<u64>| -> Result<Option<(u64, u64)>> {
            let window = self.window(range)?;
            let found = window.index(device).series.largest(&window.trace, metric, window.events.clone());
            Ok(found.map(|(bytes, event)| (bytes, window.trace.number(event))))
        };
        let file = match &self.kind {
            Kind::File(file) if file.filter.is_empty() => file,
            _ => return in_window(range),
        };
        let rows = file.windows.summaries();
        let end = |row: &Summary| row.first + u64::from(row.events);
        let first = rows.partition_point(|row| end(row) <= range.start);
        let mut best: Option<(u64, u64)> = None;
        for row in rows[first..].iter().take_while(|row| row.first < range.end) {
            let Some(Extreme { bytes, after }) = extreme(row, device, metric) else { continue };
            if best.is_some_and(|(most, _)| bytes <= most) {
                continue;
            }
            let is_whole = range.start <= row.first && end(row) <= range.end;
            // Otherwise it may be reached outside of the range.
            best = if is_whole && after > 0 {
                Some((bytes, row.first + u64::from(after) - 1))
            } else {
                let found = in_window(row.first.max(range.start)..end(row).min(range.end))?;
                found.filter(|(bytes, _)| best.is_none_or(|(most, _)| *bytes > most)).or(best)
            };
        }
        Ok(best)
    }

    /// Returns whether the device is active in no step before `step`, which is the step at `event`.
    fn is_first_step(&self, device: DeviceId, step: u32, event: u64) -> Result<bool> {
        if let Kind::InMemory(memory) = &self.kind {
            return Ok(device_steps(&memory.trace, device).first() == Some(&step));
        }
        let (mut start, mut rows) = (0, Vec::new());
        while start < event {
            let end = (start + STEP_EVENTS).min(event);
            let part = self.window(start..end)?.trace;
            let spans = part.spans.rows().iter();
            rows.extend(spans.map(|span| (span.step, activity_in(&part, device, span))));
            let steps = StepActivity::of(rows.iter().copied());
            // A step in which only other devices are active up to now may still become a step of this device.
            let others = rows.iter().filter_map(|(of, activity)| Some(((*of)?, activity)));
            let mut others = others.filter(|(of, _)| *of != step);
            if others.any(|(of, activity)| activity.is_own() || steps.is_idle(of) && end == event) {
                return Ok(false);
            }
            start = end;
        }
        Ok(true)
    }

    /// Returns a point in a later step and the same phase with exactly the value of `first`, the peak of the first
    /// step.
    fn repeated(&self, first: &Moment, step: u32, event: u64) -> Result<Option<Moment>> {
        let Some(after) = self.end_of_step(step, event)? else { return Ok(None) };
        let (device, metric) = (first.device, first.metric);
        // A total that only stays as high into the next step is not reached there.
        if self.window(after..after)?.totals(device).get(metric) >= first.bytes {
            return Ok(None);
        }
        let again = self.largest(device, metric, after..self.events().end)?;
        let Some((_, event)) = again.filter(|(bytes, _)| *bytes == first.bytes) else { return Ok(None) };
        let again = self.moment(device, metric, Some(event))?;
        Ok(counts_instead(first.stage(), Some(step), again.stage()).then_some(again))
    }

    /// Returns the index of the first event after step `step`, which is the step at `event`; `None` if the step lasts
    /// to the end.
    fn end_of_step(&self, step: u32, event: u64) -> Result<Option<u64>> {
        let Kind::File(file) = &self.kind else { return Ok(self.step_range(step)?.map(|events| events.end)) };
        let (mut start, mut last) = (event, event);
        // Where step numbers repeat, the step may occur again.
        let repeats = file.windows.summaries().iter().filter(|row| row.repeated_steps > 0);
        let mut until = repeats.map(|row| row.first + u64::from(row.events)).max().unwrap_or(0);
        let events = self.events().end;
        while start < events {
            let part = self.window(start..start + STEP_EVENTS)?.trace;
            for span in part.spans.rows() {
                if span.step == Some(step) {
                    last = part.number(span.end);
                } else if part.number(span.end) > until {
                    return Ok(Some(last));
                }
            }
            start += STEP_EVENTS;
            until = until.max(event);
        }
        Ok((last < events).then_some(last))
    }
}

fn extreme(row: &Summary, device: DeviceId, metric: Metric) -> Option<Extreme> {
    row.devices.iter().find(|summary| summary.device == device).map(|summary| summary.largest(metric))
}
