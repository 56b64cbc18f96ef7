//! The history of a device in a recording: its steps, and the memory at their ends, from which growth is computed.

use std::collections::BTreeSet;
use std::ops::{ControlFlow, Range};

use highwater_snapshots::Result;
use highwater_snapshots::ids::{BlockId, DeviceId};
use highwater_snapshots::trace::Trace;

use super::ends::Ends;
use super::idle::bursts;
use super::reserved::{Layout, SegmentHistory, streams_in};
use super::steps::Steps;
use super::window::{Between, StepRange, StepWindow};
use super::{Growth, GrowthQuery, Measured, NoWindow};
use crate::grouping::matches::Matches;
use crate::index::device_spans::{ActiveSpan, active_spans, append_spans};
use crate::index::replay::{baseline_effects, effects};
use crate::metric::Metric;
use crate::question::between::{Balance, Sum, bytes_of};
use crate::question::source::{Source, Watch, Window};

/// Number of events read at a time.
const EVENTS: u64 = 1 << 20;

/// The growth on each device, or the reason it cannot be measured, in the order of the requested devices.
pub type OfDevices = Vec<Result<Growth, NoWindow>>;

/// Measures the growth of each of `devices` over the requested steps or bursts, for each of `queries`. If the recording
/// has no steps and none are requested, measures the whole recording. All queries share one pass, after another one
/// that
/// finds the bursts.
///
/// # Errors
/// Fails like [`Source::each_window`].
///
/// # Panics
/// Panics if a metric is `device_used`, which consists neither of blocks nor of segments.
pub fn growth(
    source: &Source<'_>,
    devices: &[DeviceId],
    range: StepRange,
    queries: &[GrowthQuery<'_>],
    watch: Watch<'_>,
) -> Result<Vec<OfDevices>> {
    assert!(queries.iter().all(|query| query.metric != Metric::DeviceUsed), "the metric has no blocks or segments");
    let asked: Vec<(&GrowthQuery<'_>, DeviceId)> =
        queries.iter().flat_map(|query| devices.iter().map(move |device| (query, *device))).collect();
    let bursts: Option<Vec<Steps>> = match range.between {
        Between::Steps => None,
        Between::Idle => {
            // Reserved memory does not fall to a low level.
            let metric =
                |query: &GrowthQuery<'_>| if query.metric.is_of_blocks() { query.metric } else { Metric::Requested };
            let totals: Vec<_> = asked.iter().map(|(query, device)| (*device, metric(query))).collect();
            Some(bursts(source, &totals, &mut *watch)?)
        }
    };
    let bounds_of = |row: usize| bursts.iter().flat_map(|bursts| bursts[row].bounds()).collect::<Vec<u64>>();
    let bounds: Vec<Vec<u64>> = (0..asked.len()).map(bounds_of).collect();
    let mut whole: Vec<History> = asked.iter().map(|_| History::default()).collect();
    let map = |trace: &Trace| {
        let matches: Vec<Matches> = queries.iter().map(|query| Matches::of(trace, query.filter)).collect();
        let history = |(row, (query, device)): (usize, &(&GrowthQuery<'_>, DeviceId))| {
            History::of(trace, *device, query.metric, (&matches[row / devices.len()], &bounds[row]))
        };
        asked.iter().enumerate().map(history).collect::<Vec<_>>()
    };
    let take = |part: Vec<History>| whole.iter_mut().zip(part).for_each(|(whole, part)| whole.append(part));
    source.each_window(map, take, watch)?;
    let of_device = |(row, history): (usize, History)| {
        let (query, device) = &asked[row];
        let window = match &bursts {
            Some(bursts) => StepWindow::among_bursts(bursts[row].clone(), range),
            None => StepWindow::among_any(Steps::of(source, *device, &history.spans)?, range),
        };
        window.map_or_else(|no| Ok(Err(no)), |window| history.growth(source, *device, window, query).map(Ok))
    };
    let mut found = whole.into_iter().enumerate().map(of_device).collect::<Result<OfDevices>>()?.into_iter();
    Ok(queries.iter().map(|_| found.by_ref().take(devices.len()).collect()).collect())
}

/// Returns the default window of `device`: steps, or bursts between idle moments if the window would have fewer than
/// two steps. `None` if there are neither, or if reading fails.
pub fn steps_or_bursts(source: &Source<'_>, device: DeviceId) -> Option<StepWindow> {
    let steps = StepWindow::of(source, device, StepRange::default()).ok()?.ok();
    if steps.as_ref().is_some_and(|window| window.steps.len() > 1) {
        return steps;
    }
    let totals = [(device, Metric::Requested)];
    let bursts = bursts(source, &totals, &mut |_| ControlFlow::Continue(())).ok()?.pop()?;
    StepWindow::among_bursts(bursts, StepRange { between: Between::Idle, ..StepRange::default() }).ok().or(steps)
}

/// The history of a device in a recording, or in a part of one.
#[derive(Debug, Default)]
pub(crate) struct History {
    /// The ranges of events in one step and phase, in order.
    pub(crate) spans: Vec<ActiveSpan>,
    /// The states at the ends of spans and windows, in order.
    states: Vec<State>,
    /// The segments, if reserved memory is measured.
    segments: SegmentHistory,
}

#[derive(Clone, Copy, Debug)]
struct State {
    /// Number of events before this point.
    events: u64,
    live_bytes: u64,
    /// The sum of all allocations so far.
    born: Sum,
}

impl History {
    /// Returns the history of `device` in a window for `metric`. Covers the blocks that pass the filter, or for
    /// reserved memory, the segments. Also records the states at the event indices `more`.
    pub(crate) fn of(trace: &Trace, device: DeviceId, metric: Metric, (matches, more): (&Matches, &[u64])) -> Self {
        let spans = active_spans(trace, device);
        if metric == Metric::Reserved {
            return Self { spans, states: Vec::new(), segments: SegmentHistory::of(trace, device) };
        }
        let start = trace.start.events;
        let mut bounds: Vec<u64> = spans.iter().flat_map(|span| [span.events.start, span.events.end]).collect();
        let end = start + trace.events.len() as u64;
        bounds.extend(more.iter().filter(|bound| (start..end).contains(bound)));
        bounds.extend([start, end]);
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

    pub(crate) fn append(&mut self, part: Self) {
        append_spans(&mut self.spans, part.spans);
        self.segments.append(part.segments);
        let born = self.states.last().map_or(Sum::default(), |last| last.born);
        let is_first = self.states.is_empty();
        // A part begins with the state in which the one before it ends.
        let states = part.states.into_iter().skip(usize::from(!is_first));
        self.states.extend(states.map(|state| State { born: born.plus(state.born), ..state }));
    }

    /// The state after `events` events, which must be a boundary of spans or windows, or one of the requested states.
    fn state(&self, events: u64) -> State {
        let after = self.states.partition_point(|state| state.events <= events);
        let none = State { events, live_bytes: 0, born: Sum::default() };
        after.checked_sub(1).map_or(none, |row| self.states[row])
    }

    /// Measures the growth over `window`. The history must have been computed for the same metric and filter.
    pub(crate) fn growth(
        &self,
        source: &Source<'_>,
        device: DeviceId,
        window: StepWindow,
        query: &GrowthQuery<'_>,
    ) -> Result<Growth> {
        let metric = query.metric;
        let (events, last) = (window.events(), window.last_events());
        let at = |number: u64| source.moment(device, metric, number.checked_sub(1));
        let start_of_last = at(last.start)?;
        let largest = source.largest(device, metric, last.clone())?;
        let largest = largest.filter(|(bytes, _)| *bytes >= start_of_last.bytes);
        let last_peak = largest.map(|(_, event)| source.moment(device, metric, Some(event))).transpose()?;
        let (start, end, last_peak) = (at(events.start)?, at(events.end)?, last_peak.unwrap_or(start_of_last));
        if metric == Metric::Reserved {
            let recent = streams(source, device, window.recent_events())?;
            let [before, after] = [events.start, events.end].map(|event| source.window(event..event));
            let (before, after) = (before?, after?);
            let (before, after) = (layout(&before, device), layout(&after, device));
            let moments = [start, end, last_peak];
            return Ok(self.segments.growth(&window, moments, ([&before, &after], recent), query));
        }
        let Ends { before, freed, kept, after, born } = Ends::of(source, (device, metric), query.filter, &events)?;
        let sum = |trace: &Trace, blocks: &[BlockId]| {
            let bytes = blocks.iter().map(|id| bytes_of(trace, metric, *id)).sum();
            Sum { bytes, blocks: blocks.len() as u64 }
        };
        let (survivors, allocated) = (sum(&after.trace, &born), self.born(&events));
        let short_lived = Sum { bytes: allocated.bytes - survivors.bytes, blocks: allocated.blocks - survivors.blocks };
        let (kept_sum, freed_sum) = (sum(&before.trace, &kept), sum(&before.trace, &freed));
        let balance = Balance { kept: kept_sum, born: survivors, freed: freed_sum, short_lived };
        let mut until = events.start;
        let end_bytes = window.steps.iter().map(|(_, step)| {
            until = until.max(step.end);
            self.state(until).live_bytes
        });
        let measured = Measured { start, end, last_peak, balance, end_bytes: end_bytes.collect() };
        Ok(Growth::of_blocks([(&after.trace, &born), (&before.trace, &freed)], measured, window, query))
    }

    fn born(&self, events: &Range<u64>) -> Sum {
        let [before, after] = [events.start, events.end].map(|events| self.state(events).born);
        Sum { bytes: after.bytes - before.bytes, blocks: after.blocks - before.blocks }
    }
}

/// The state of `device` before the events of `window`.
fn layout<'a>(window: &'a Window<'_>, device: DeviceId) -> Layout<'a> {
    let index = window.index(device);
    Layout::at(&window.trace, (&index.series, &index.live), window.events.start)
}

/// The streams for which `device` allocates in `events`.
fn streams(source: &Source<'_>, device: DeviceId, events: Range<u64>) -> Result<BTreeSet<u64>> {
    let mut streams = BTreeSet::new();
    for window in source.windows_within(events, EVENTS) {
        let window = window?;
        streams.extend(streams_in(&window.trace, device, window.events));
    }
    Ok(streams)
}
