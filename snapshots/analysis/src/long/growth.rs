//! Measures growth per step in a recording that is read in parts.

use std::collections::BTreeSet;
use std::ops::Range;

use highwater_snapshots::Result;
use highwater_snapshots::format::Windows;
use highwater_snapshots::ids::{BlockId, DeviceId};
use highwater_snapshots::trace::Trace;

use super::between::Ends;
use super::leaks::{EVENTS, steps};
use super::spans::{append, spans_of};
use super::{Parts, Watch, WindowedMoment, check_count, each_part};
use crate::between::{Balance, Sum, bytes_of};
use crate::device_spans::ActiveSpan;
use crate::growth::{
    Change, Growth, GrowthQuery, Measured, NoWindow, SegmentHistory, StepFacts, StepRange, StepWindow, Steps,
    WindowEnd, streams_in,
};
use crate::live::LiveIndex;
use crate::matches::Matches;
use crate::metric::Metric;
use crate::peak::Moment;
use crate::replay::{baseline_effects, effects};
use crate::series::Series;

/// What was found on each device.
pub type OfDevices = Vec<Result<Growth, NoWindow>>;

/// Measures the growth of each of `devices` over the requested steps, or over the whole recording if it has no steps
/// and none are requested, as [`Growth::of`] does over a [`StepWindow::of_any`]. Returns the answers to each of
/// `queries`, for which the recording is read once.
///
/// # Errors
///
/// Fails if a window cannot be read, or with [`Error::Cancelled`](highwater_snapshots::Error::Cancelled) if `watch`
/// breaks.
///
/// # Panics
///
/// If a metric is `device_used`, which consists neither of blocks nor of segments.
pub fn growth(
    parts: Parts<'_>,
    devices: &[DeviceId],
    range: StepRange,
    queries: &[GrowthQuery<'_>],
    watch: Watch<'_>,
) -> Result<Vec<OfDevices>> {
    assert!(queries.iter().all(|query| query.metric != Metric::DeviceUsed), "only blocks and segments grow");
    check_count(parts.windows)?;
    let asked: Vec<(&GrowthQuery<'_>, DeviceId)> =
        queries.iter().flat_map(|query| devices.iter().map(move |device| (query, *device))).collect();
    let mut whole: Vec<History> = asked.iter().map(|_| History::default()).collect();
    let map = |trace: Trace| {
        let matches: Vec<Matches> = queries.iter().map(|query| Matches::of(&trace, query.filter)).collect();
        let history = |(row, (query, device)): (usize, &(&GrowthQuery<'_>, DeviceId))| {
            History::of(&trace, *device, query.metric, &matches[row / devices.len()])
        };
        asked.iter().enumerate().map(history).collect::<Vec<_>>()
    };
    let take = |part: Vec<History>| whole.iter_mut().zip(part).for_each(|(whole, part)| whole.append(part));
    each_part(parts, map, take, watch)?;
    let of_device = |((query, device), history): (&(&GrowthQuery<'_>, DeviceId), History)| {
        let (steps, facts) = history.steps(parts.windows, *device)?;
        let window = StepWindow::among_any(steps, &facts, range);
        window.map_or_else(|no| Ok(Err(no)), |window| history.growth(parts.windows, *device, window, query).map(Ok))
    };
    let mut found = asked.iter().zip(whole).map(of_device).collect::<Result<OfDevices>>()?.into_iter();
    Ok(queries.iter().map(|_| found.by_ref().take(devices.len()).collect()).collect())
}

/// What a device does in a recording, or in a part of one.
#[derive(Debug, Default)]
pub(crate) struct History {
    /// The steps and phases.
    pub(crate) spans: Vec<ActiveSpan>,
    /// The states at the bounds of spans and parts, in order.
    states: Vec<State>,
    /// The segments, if reserved memory is measured.
    segments: SegmentHistory,
}

/// The counted blocks at a moment.
#[derive(Clone, Copy, Debug)]
struct State {
    /// The number of events so far.
    events: u64,
    /// The bytes that are live.
    live_bytes: u64,
    /// All that was allocated so far.
    born: Sum,
}

impl History {
    /// What `device` does in a window, of which `metric` is measured: blocks that pass a filter, or for reserved memory,
    /// segments.
    pub(crate) fn of(trace: &Trace, device: DeviceId, metric: Metric, matches: &Matches) -> Self {
        if metric == Metric::Reserved {
            let (spans, segments) = (spans_of(trace, device), SegmentHistory::of(trace, device));
            return Self { spans, states: Vec::new(), segments };
        }
        let start = trace.start.events;
        let spans = spans_of(trace, device);
        let mut bounds: Vec<u64> = spans.iter().flat_map(|span| [span.events.start, span.events.end]).collect();
        bounds.extend([start, start + trace.events.len() as u64]);
        bounds.sort_unstable();
        bounds.dedup();
        let size = |row: usize| {
            let id = BlockId(row as u32);
            matches.contains(id).then(|| bytes_of(trace, metric, id))
        };
        let mut now = State { events: start, live_bytes: 0, born: Sum::default() };
        baseline_effects(trace, device, |effect| match effect.of_block(metric) {
            Some((row, true)) => now.live_bytes += size(row).unwrap_or(0),
            Some((row, false)) => now.live_bytes -= size(row).unwrap_or(0),
            None => {}
        });
        let mut states = Vec::with_capacity(bounds.len());
        for bound in bounds {
            for index in (now.events - start) as usize..(bound - start) as usize {
                if trace.events.device[index] != device {
                    continue;
                }
                effects(trace, index, |effect| {
                    let Some((row, begins)) = effect.of_block(metric) else { return };
                    let Some(bytes) = size(row) else { return };
                    if begins {
                        now.live_bytes += bytes;
                        now.born.add(bytes);
                    } else {
                        now.live_bytes -= bytes;
                    }
                });
            }
            now.events = bound;
            states.push(now);
        }
        Self { spans, states, segments: SegmentHistory::default() }
    }

    /// Adds the part that follows.
    pub(crate) fn append(&mut self, part: Self) {
        append(&mut self.spans, part.spans);
        self.segments.append(part.segments);
        let born = self.states.last().map_or(Sum::default(), |last| last.born);
        let is_first = self.states.is_empty();
        // A part begins with the state in which the one before it ends.
        let states = part.states.into_iter().skip(usize::from(!is_first));
        self.states.extend(states.map(|state| State { born: born.plus(state.born), ..state }));
    }

    /// The state once `events` events have happened, which is a bound of spans.
    fn state(&self, events: u64) -> State {
        let after = self.states.partition_point(|state| state.events <= events);
        let none = State { events, live_bytes: 0, born: Sum::default() };
        after.checked_sub(1).map_or(none, |row| self.states[row])
    }

    /// The steps of `device`, and the facts of the last two.
    ///
    /// # Errors
    ///
    /// Fails if a window cannot be read.
    pub(crate) fn steps(&self, windows: &Windows, device: DeviceId) -> Result<(Steps, Vec<StepFacts>)> {
        steps(windows, device, &self.spans)
    }

    /// Measures the growth over `window`. The history must be of the blocks that pass the filter.
    ///
    /// # Errors
    ///
    /// Fails if a window cannot be read.
    pub(crate) fn growth(
        &self,
        windows: &Windows,
        device: DeviceId,
        window: StepWindow,
        query: &GrowthQuery<'_>,
    ) -> Result<Growth> {
        let metric = query.metric;
        let numbers = |events: &Range<usize>| events.start as u64..events.end as u64;
        let events = numbers(&window.events());
        let at = |number: u64| {
            let found = WindowedMoment::at(windows, device, metric, number.checked_sub(1));
            found.map(|found| found.moment)
        };
        let last = numbers(&window.last_events());
        let measured = Measured {
            start: at(events.start)?,
            end: at(events.end)?,
            last_peak: largest(windows, (device, metric), at(last.start)?, last.clone())?,
        };
        if metric == Metric::Reserved {
            let streams = streams(windows, device, last)?;
            let end = windows.window(events.end..events.end)?;
            let (series, live) = (Series::build(&end, device), LiveIndex::build(&end, device));
            let end = WindowEnd::at(&end, (&series, &live), 0, streams);
            return Ok(self.segments.growth(&window, measured, &end, query));
        }
        let Ends { before, freed, kept, after, born } = Ends::of(windows, (device, metric), query.filter, &events)?;
        let sum = |trace: &Trace, blocks: &[BlockId]| {
            let bytes = blocks.iter().map(|id| bytes_of(trace, metric, *id)).sum();
            Sum { bytes, blocks: blocks.len() as u64 }
        };
        let (survivors, allocated) = (sum(&after, &born), self.born(&events));
        let short_lived = Sum { bytes: allocated.bytes - survivors.bytes, blocks: allocated.blocks - survivors.blocks };
        let balance = Balance { kept: sum(&before, &kept), born: survivors, freed: sum(&before, &freed), short_lived };
        let mut until = events.start;
        let end_bytes = window.steps.iter().map(|(_, step)| {
            until = until.max(step.end as u64);
            self.state(until).live_bytes
        });
        let change = Change {
            survivors: (&after, &born),
            freed: (&before, &freed),
            balance,
            end_bytes: end_bytes.collect(),
            measured,
        };
        Ok(Growth::of_change(change, window, query))
    }

    /// All that was allocated by `events`.
    fn born(&self, events: &Range<u64>) -> Sum {
        let [before, after] = [events.start, events.end].map(|events| self.state(events).born);
        Sum { bytes: after.bytes - before.bytes, blocks: after.blocks - before.blocks }
    }
}

/// The streams on which `device` allocates in `events`.
fn streams(windows: &Windows, device: DeviceId, events: Range<u64>) -> Result<BTreeSet<u64>> {
    let (mut streams, mut next) = (BTreeSet::new(), events.start);
    while next < events.end {
        let trace = windows.window(next..events.end.min(next + EVENTS))?;
        streams.extend(streams_in(&trace, device, 0..trace.events.len()));
        next += EVENTS;
    }
    Ok(streams)
}

/// The moment of `events` at which the total is largest, unless it is larger at `start`, before them.
fn largest(
    windows: &Windows,
    (device, metric): (DeviceId, Metric),
    start: Moment,
    events: Range<u64>,
) -> Result<Moment> {
    let mut best: Option<(u64, u64)> = None;
    let mut next = events.start;
    while next < events.end {
        let trace = windows.window(next..events.end.min(next + EVENTS))?;
        let found = Series::build(&trace, device).largest(&trace, metric, 0..trace.events.len());
        if let Some((bytes, event)) = found.filter(|(bytes, _)| best.is_none_or(|(most, _)| *bytes > most)) {
            best = Some((bytes, next + u64::from(event.0)));
        }
        next += EVENTS;
    }
    match best.filter(|(bytes, _)| *bytes >= start.bytes) {
        Some((_, event)) => Ok(WindowedMoment::at(windows, device, metric, Some(event))?.moment),
        None => Ok(start),
    }
}
