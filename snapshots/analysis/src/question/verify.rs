//! Checks the invariants of a recording.

use std::borrow::Cow;
use std::collections::BTreeSet;

use highwater_snapshots::Result;
use highwater_snapshots::error::Problem;
use highwater_snapshots::ids::{BlockId, DeviceId};
use highwater_snapshots::sum_rule::SumRule;
use highwater_snapshots::trace::Trace;

use super::source::{Source, Watch};
use crate::index::replay::{Effect, baseline_effects, effects};
use crate::metric::{Metric, Totals};

/// Maximum number of problems reported per kind; the rest are counted.
const LISTED: usize = 5;

/// Checks the recording of `devices` for contradictions. Checks the tables, which all devices share, completely.
/// Returns an empty list for a consistent recording. Problems found while reading are in the trace's `problems`.
///
/// # Errors
/// Fails if a window cannot be read, or a section does not match its checksum.
pub fn verify(source: &Source<'_>, devices: &[DeviceId], watch: Watch<'_>) -> Result<Vec<Problem>> {
    source.check_sections()?;
    let mut all: Option<Findings> = None;
    let map = |window: Cow<'_, Trace>| {
        let found = Findings::of(&window, devices);
        if found.names_blocks() { Ok(Findings::of(&*source.number_blocks(window)?, devices)) } else { Ok(found) }
    };
    let take = |next| {
        all = Some(match all.take() {
            Some(all) => all.followed_by(next),
            None => next,
        });
        Ok(())
    };
    source.try_each_window(map, take, watch)?;
    Ok(all.unwrap_or_default().problems(source.facts()))
}

/// Like [`verify`], for all devices of a recording in memory.
pub fn verify_trace(trace: &Trace) -> Vec<Problem> {
    Findings::of(trace, &trace.device_ids()).problems(trace)
}

#[derive(Debug, Default)]
struct Listed {
    problems: Vec<Problem>,
    count: usize,
}

impl Listed {
    fn report(&mut self, text: impl FnOnce() -> String) {
        self.count += 1;
        if self.count <= LISTED {
            self.problems.push(Problem::new(text()));
        }
    }

    fn append(&mut self, next: Self) {
        self.problems.extend(next.problems);
        self.problems.truncate(LISTED);
        self.count += next.count;
    }

    fn finish(mut self, what: &str) -> Vec<Problem> {
        if let Some(more) = self.count.checked_sub(LISTED).filter(|more| *more > 0) {
            self.problems.push(Problem::new(format!("… and {more} more: {what}")));
        }
        self.problems
    }
}

/// An event's index, device and time.
type At = (u64, DeviceId, u64);

/// The contradictions found in one or more consecutive windows.
#[derive(Debug, Default)]
struct Findings {
    /// The first and the last event.
    ends: Option<[At; 2]>,
    devices: Vec<OfDevice>,
    times: Listed,
    sizes: Listed,
    /// Invalid references from events and blocks to stacks, and from blocks to operations and modules.
    references: [Listed; 4],
}

#[derive(Debug)]
struct OfDevice {
    device: DeviceId,
    /// The prefix of a problem if several devices are checked.
    on: String,
    overlaps: Listed,
    sums: SumRule,
    /// Problems with live blocks that do not add up to the totals after the last event.
    end: Vec<Problem>,
}

impl Findings {
    fn of(trace: &Trace, devices: &[DeviceId]) -> Self {
        let mut found = Self::default();
        for &device in devices {
            let on = if devices.len() > 1 { format!("device {}: ", device.0) } else { String::new() };
            found.devices.push(OfDevice::of(trace, device, on));
        }
        let at = |row: usize| (trace.start.events + row as u64, trace.events.device[row], trace.events.time_ns[row]);
        found.ends = trace.events.len().checked_sub(1).map(|last| [at(0), at(last)]);
        for row in 1..trace.events.len() {
            found.check_times(at(row - 1), at(row));
        }
        found.check_sizes(trace);
        found.check_references(trace);
        found
    }

    /// Returns the prefix of problems on `device`; `None` if the device is not checked.
    fn on(&self, device: DeviceId) -> Option<&str> {
        self.devices.iter().find(|of| of.device == device).map(|of| of.on.as_str())
    }

    fn check_times(&mut self, (_, of, before): At, (event, device, time): At) {
        if time < before
            && of == device
            && let Some(on) = self.on(device)
        {
            let text = format!("{on}event {event} is {} ns earlier than the event before it", before - time);
            self.times.report(|| text);
        }
    }

    fn check_sizes(&mut self, trace: &Trace) {
        let blocks = &trace.blocks;
        for row in new_blocks(trace) {
            let (requested, allocated) = (blocks.requested[row], blocks.allocated[row]);
            if allocated < requested
                && let Some(on) = self.on(blocks.device[row])
            {
                let block = number(trace, row);
                let text = format!("{on}block {block} has {allocated} bytes, but {requested} were requested");
                self.sizes.report(|| text);
            }
        }
    }

    fn check_references(&mut self, trace: &Trace) {
        let (tables, blocks) = (&trace.tables, &trace.blocks);
        let [of_events, of_blocks, of_ops, of_scopes] = &mut self.references;
        let new = new_blocks(trace);
        for (found, stacks) in [(of_events, &trace.events.stack[..]), (of_blocks, &blocks.stack[new.clone()])] {
            for stack in stacks.iter().filter(|id| id.index().is_some_and(|index| index >= tables.stacks.len())) {
                let rows = tables.stacks.len();
                found.report(|| format!("{stack:?} is out of range: the stack table has {rows} rows"));
            }
        }
        for op in blocks.op[new.clone()].iter().filter(|id| id.index().is_some_and(|index| index >= tables.ops.len())) {
            of_ops.report(|| format!("{op:?} is out of range: the op table has {} rows", tables.ops.len()));
        }
        for scope in blocks.scope[new].iter().filter(|id| id.index().is_some_and(|index| index >= tables.scopes.len()))
        {
            of_scopes.report(|| format!("{scope:?} is out of range: the scope table has {} rows", tables.scopes.len()));
        }
    }

    /// Returns whether any problem names blocks, whose ids must then be those in the whole recording.
    fn names_blocks(&self) -> bool {
        self.sizes.count > 0 || self.devices.iter().any(|of| of.overlaps.count > 0)
    }

    fn followed_by(mut self, next: Self) -> Self {
        if let (Some([_, last]), Some([first, _])) = (self.ends, next.ends) {
            self.check_times(last, first);
        }
        self.ends = self.ends.into_iter().chain(next.ends).reduce(|[first, _], [_, last]| [first, last]);
        self.times.append(next.times);
        self.sizes.append(next.sizes);
        self.references.iter_mut().zip(next.references).for_each(|(all, next)| all.append(next));
        for (all, next) in self.devices.iter_mut().zip(next.devices) {
            all.overlaps.append(next.overlaps);
            all.sums.merge(&next.sums);
            all.end = next.end;
        }
        self
    }

    fn problems(self, facts: &Trace) -> Vec<Problem> {
        let mut problems = Vec::new();
        if facts.trust.has_all_segments() {
            problems.extend(self.devices.iter().flat_map(|of| of.sums.problems(of.device)));
        }
        problems.extend(self.times.finish("events out of order"));
        problems.extend(self.sizes.finish("blocks smaller than requested"));
        let add = |mut all: Listed, next| {
            all.append(next);
            all
        };
        let references = self.references.into_iter().reduce(add).unwrap_or_default();
        problems.extend(references.finish("references beyond the end of a table"));
        for of in self.devices {
            problems.extend(of.overlaps.finish("blocks that overlap others"));
            problems.extend(of.end);
        }
        problems
    }
}

impl OfDevice {
    /// Checks that active blocks do not overlap, and that the blocks live at the end add up to the totals.
    fn of(trace: &Trace, device: DeviceId, on: String) -> Self {
        let blocks = &trace.blocks;
        let (mut overlaps, mut totals) = (Listed::default(), Totals::default());
        // In the order of their allocations where several begin at one address, which is the same in every window.
        let key = |row: usize| (blocks.address[row], trace.alloc_number(BlockId::from_index(row)), row);
        let mut active = BTreeSet::new();
        let mut take = |effect: Effect, is_known: bool| {
            effect.apply(trace, &mut totals);
            match effect {
                Effect::Allocated(row) => {
                    let start = blocks.address[row];
                    let end = start.saturating_add(blocks.allocated[row]);
                    let before = active.range(..(end, None, 0)).next_back();
                    if let Some(&(address, _, other)) = before
                        && address.saturating_add(blocks.allocated[other]) > start
                        && end > start
                        && !is_known
                    {
                        let [one, two] = [other, row].map(|row| number(trace, row));
                        overlaps.report(|| format!("{on}blocks {one} and {two} overlap at address {start:#x}"));
                    }
                    active.insert(key(row));
                }
                Effect::FreeCompleted(row) => {
                    active.remove(&key(row));
                }
                _ => {}
            }
        };
        baseline_effects(trace, device, |effect| take(effect, trace.start.events > 0));
        for index in (0..trace.events.len()).filter(|index| trace.events.device[*index] == device) {
            effects(trace, index, |effect| take(effect, false));
        }
        let of_rule = trace.sums().iter().find(|(of, _)| *of == device);
        let sums = of_rule.map(|(_, sums)| sums.clone()).unwrap_or_default();
        Self { device, on, overlaps, sums, end: end_problems(trace, device, &totals) }
    }
}

/// Returns problems if the blocks live after the last event do not add up to the totals.
fn end_problems(trace: &Trace, device: DeviceId, totals: &Totals) -> Vec<Problem> {
    let blocks = &trace.blocks;
    let mut sums = Totals::default();
    for row in (0..blocks.len()).filter(|row| blocks.device[*row] == device) {
        if !blocks.free_requested[row].is_some() {
            sums.requested += blocks.requested[row];
            sums.allocated += blocks.allocated[row];
        }
        if !blocks.free_completed[row].is_some() {
            sums.active += blocks.allocated[row];
        }
    }
    let metrics = [Metric::Requested, Metric::Allocated, Metric::Active].into_iter();
    let wrong = metrics.filter(|metric| sums.get(*metric) != totals.get(*metric));
    let text = |metric| {
        let (sum, total) = (sums.get(metric), totals.get(metric));
        Problem::new(format!("device {}: live blocks sum to {sum} bytes {metric}, but the events to {total}", device.0))
    };
    wrong.map(text).collect()
}

/// The rows of the blocks that were not in the previous window.
fn new_blocks(trace: &Trace) -> std::ops::Range<usize> {
    trace.first_new_row()..trace.blocks.len()
}

/// Returns the id of a block in the whole recording.
fn number(trace: &Trace, row: usize) -> u32 {
    trace.block_number(BlockId::from_index(row)).0
}
