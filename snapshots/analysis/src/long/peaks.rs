//! Finds peaks by the summaries of a recording, and reads the few windows that they leave open.

use highwater_snapshots::Result;
use highwater_snapshots::format::{Summary, Windows};
use highwater_snapshots::ids::{DeviceId, EventId};
use highwater_snapshots::trace::Trace;

use super::WindowedMoment;
use crate::device_spans::{StepActivity, activity_in};
use crate::metric::Metric;
use crate::peak::Moment;
use crate::replay::Replay;

/// Events that are read at first to find the end of a step.
const STEP_EVENTS: u64 = 1 << 16;

/// The moment at which `metric` is largest, as [`Moment::peak`] chooses it.
///
/// # Errors
///
/// Fails if a window cannot be read.
pub fn peak(windows: &Windows, device: DeviceId, metric: Metric) -> Result<Moment> {
    let event = match largest(windows.summaries(), device, metric) {
        None => None,
        Some((bytes, event)) => {
            let first = WindowedMoment::at(windows, device, metric, Some(event))?.moment;
            let step = first.step.filter(|_| first.bytes == bytes);
            Some(match step {
                Some(step) if is_first_step(windows, device, step, event)? => {
                    repeated(windows, &first, step, event)?.unwrap_or(event)
                }
                _ => event,
            })
        }
    };
    Ok(WindowedMoment::at(windows, device, metric, event)?.moment)
}

/// The largest value of a total, and the first event that reaches it; `None` if the first state is never exceeded.
fn largest(rows: &[Summary], device: DeviceId, metric: Metric) -> Option<(u64, u64)> {
    let extremes = || rows.iter().filter_map(|row| Some((row.first, extreme(row, device, metric)?)));
    let most = extremes().map(|(_, found)| found.bytes).max()?;
    let (first, found) = extremes().find(|(_, found)| found.bytes == most)?;
    // Reached before the first event of the row: no row before this has the device.
    let event = (first + u64::from(found.after)).checked_sub(1)?;
    (found.after > 0).then_some((most, event))
}

fn extreme(row: &Summary, device: DeviceId, metric: Metric) -> Option<highwater_snapshots::format::Extreme> {
    row.devices.iter().find(|summary| summary.device == device).map(|summary| summary.largest(metric))
}

/// Whether no step before `step`, which is running at `event`, is one of the device.
fn is_first_step(windows: &Windows, device: DeviceId, step: u32, event: u64) -> Result<bool> {
    let (mut start, mut rows) = (0, Vec::new());
    while start < event {
        let end = (start + STEP_EVENTS).min(event);
        let part = windows.window(start..end)?;
        let spans = part.spans.rows().iter();
        rows.extend(spans.map(|span| (span.step, activity_in(&part, device, span))));
        let steps = StepActivity::of(rows.iter().copied());
        // A step that other devices alone work in may still become one of this device.
        let others = rows.iter().filter_map(|(of, activity)| Some(((*of)?, activity))).filter(|(of, _)| *of != step);
        if others.into_iter().any(|(of, activity)| activity.is_own() || steps.is_idle(of) && end == event) {
            return Ok(false);
        }
        start = end;
    }
    Ok(true)
}

/// The event of a later step that reaches exactly the peak `first` of the first step, in the same phase.
fn repeated(windows: &Windows, first: &Moment, step: u32, event: u64) -> Result<Option<u64>> {
    let Some(after) = end_of_step(windows, step, event)? else { return Ok(None) };
    let (device, metric) = (first.device, first.metric);
    if total_before(&windows.window(after..after)?, device, metric) >= first.bytes {
        return Ok(None);
    }
    let rows = windows.summaries();
    let at = rows.partition_point(|row| row.first + u64::from(row.events) <= after);
    let reached = |row: &&Summary| extreme(row, device, metric).is_some_and(|found| found.bytes == first.bytes);
    let mut found = None;
    for row in rows[at..].iter().filter(reached) {
        let end = row.first + u64::from(row.events);
        found = first_at(&windows.window(row.first.max(after)..end)?, device, metric, first.bytes);
        if found.is_some() {
            break;
        }
    }
    let Some(event) = found else { return Ok(None) };
    let again = WindowedMoment::at(windows, device, metric, Some(event))?.moment;
    Ok((again.phase == first.phase).then_some(event))
}

/// The number of the first event after step `step`, which is running at `event`; `None` if it lasts to the end.
fn end_of_step(windows: &Windows, step: u32, event: u64) -> Result<Option<u64>> {
    let (mut start, mut last) = (event, event);
    // Where numbers of steps come again, the step may be among them.
    let repeats = windows.summaries().iter().filter(|row| row.repeated_steps > 0);
    let mut until = repeats.map(|row| row.first + u64::from(row.events)).max().unwrap_or(0);
    while start < windows.events() {
        let part = windows.window(start..start + STEP_EVENTS)?;
        let number = |event: EventId| start + u64::from(event.0);
        for span in part.spans.rows() {
            if span.step == Some(step) {
                last = number(span.end);
            } else if number(span.end) > until {
                return Ok(Some(last));
            }
        }
        start += STEP_EVENTS;
        until = until.max(event);
    }
    Ok((last < windows.events()).then_some(last))
}

fn total_before(window: &Trace, device: DeviceId, metric: Metric) -> u64 {
    Replay::new(window, device).totals().get(metric)
}

/// The number of the first event of `window` after which the total is `bytes`.
fn first_at(window: &Trace, device: DeviceId, metric: Metric, bytes: u64) -> Option<u64> {
    let mut replay = Replay::new(window, device);
    while let Some(id) = replay.step() {
        if replay.totals().get(metric) == bytes {
            return Some(window.start.events + u64::from(id.0));
        }
    }
    None
}
