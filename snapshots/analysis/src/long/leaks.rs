//! Finds the leaks of a recording that is read in parts.

use std::ops::Range;

use highwater_snapshots::Result;
use highwater_snapshots::format::Windows;
use highwater_snapshots::ids::DeviceId;

use super::between::Ends;
use crate::device_spans::ActiveSpan;
use crate::filter::Filter;
use crate::growth::{Leaks, StepFacts, StepRange, StepWindow, Steps};
use crate::metric::Metric;

/// Events that are read at once.
pub(super) const EVENTS: u64 = 1 << 20;

/// The leaks over the steps by which growth is measured, if any of them is whole; `spans` are all of the recording.
///
/// # Errors
///
/// Fails if a window cannot be read.
pub(super) fn leaks(
    windows: &Windows,
    (device, metric): (DeviceId, Metric),
    spans: &[ActiveSpan],
) -> Result<Option<Leaks>> {
    let (steps, facts) = steps(windows, device, spans)?;
    let window = StepWindow::among(steps, &facts, StepRange::default());
    let Some(window) = window.ok().filter(StepWindow::is_whole) else { return Ok(None) };
    let events = window.events().start as u64..window.events().end as u64;
    let ends = Ends::of(windows, (device, metric), &Filter::default(), &events)?;
    Ok(Some(Leaks::among(metric, &window, [(&ends.after, &ends.born), (&ends.before, &ends.freed)])))
}

/// The steps of `device`, and the facts of the last two; `spans` are all of the recording.
///
/// # Errors
///
/// Fails if a window cannot be read.
pub(super) fn steps(windows: &Windows, device: DeviceId, spans: &[ActiveSpan]) -> Result<(Steps, Vec<StepFacts>)> {
    let steps = Steps::of(spans, windows.events(), windows.base());
    let facts = steps.last().into_iter().map(|events| facts(windows, device, events)).collect::<Result<_>>()?;
    Ok((steps, facts))
}

/// What `device` does in `events`.
fn facts(windows: &Windows, device: DeviceId, events: Range<usize>) -> Result<StepFacts> {
    let (mut next, end) = (events.start as u64, events.end as u64);
    let mut facts = StepFacts::default();
    while next < end {
        let part = windows.window(next..end.min(next + EVENTS))?;
        facts = facts.and(StepFacts::of(&part, device, 0..part.events.len()));
        next += EVENTS;
    }
    Ok(facts)
}
