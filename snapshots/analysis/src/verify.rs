//! Checks the invariants of a recording.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::ControlFlow;

use highwater_snapshots::Result;
use highwater_snapshots::error::Problem;
use highwater_snapshots::ids::{BlockId, DeviceId};
use highwater_snapshots::trace::Trace;

use super::metric::Metric;
use super::replay::{Effect, baseline_effects, effects};
use super::series::Series;
use super::source::{Source, Watch};

/// Maximum number of problems reported per kind; the rest are counted.
const TOLD: usize = 5;

/// Finds contradictions in `trace`. Empty for a sound recording; other problems found while reading are in
/// [`Trace::problems`] and not repeated.
pub fn verify(trace: &Trace) -> Vec<Problem> {
    let source = Source::in_memory(trace);
    let found = verify_devices(&source, &trace.device_ids(), &mut |_| ControlFlow::Continue(()));
    found.expect("what is in memory is read without errors")
}

/// Like [`verify`], but only for `devices`; the tables, which all devices share, are checked completely.
///
/// # Errors
///
/// As [`Source::each_window`].
pub fn verify_devices(source: &Source<'_>, devices: &[DeviceId], watch: Watch<'_>) -> Result<Vec<Problem>> {
    // Whether blocks fit into the segments is checked when a trace is built.
    let of_sums = source.facts().problems.iter().filter(|problem| problem.is_of_sums).cloned();
    let mut all: Option<Found> = None;
    let map = |window: Cow<'_, Trace>| {
        let found = Found::of(&window, devices);
        // Blocks of a window are numbered within it, and what is wrong with them is rare.
        if found.is_empty() || window.start.all_events.is_none() {
            return Ok(found);
        }
        let mut numbered = window.into_owned();
        source.number_blocks(&mut numbered)?;
        Ok(Found::of(&numbered, devices))
    };
    let take = |found: Found| {
        match &mut all {
            Some(all) => all.append(found, devices),
            None => all = Some(found),
        }
        Ok(())
    };
    source.try_each_window(map, take, watch)?;
    Ok(of_sums.chain(all.into_iter().flat_map(Found::into_problems)).collect())
}

/// The prefix of a problem on `device` if several devices are checked.
fn on(device: DeviceId, devices: &[DeviceId]) -> String {
    if devices.len() > 1 { format!("device {}: ", device.0) } else { String::new() }
}

/// The contradictions of a kind: the first few, and how many there are.
#[derive(Debug)]
struct Kind {
    what: &'static str,
    told: Vec<Problem>,
    count: usize,
}

impl Kind {
    fn new(what: &'static str) -> Self {
        Self { what, told: Vec::new(), count: 0 }
    }

    fn tell(&mut self, text: impl FnOnce() -> String) {
        self.count += 1;
        if self.told.len() < TOLD {
            self.told.push(Problem::new(text()));
        }
    }

    fn append(&mut self, later: Self) {
        let room = TOLD - self.told.len();
        self.told.extend(later.told.into_iter().take(room));
        self.count += later.count;
    }

    fn into_problems(self) -> impl Iterator<Item = Problem> {
        let more = self.count - self.told.len();
        let rest = (more > 0).then(|| Problem::new(format!("… and {more} more: {}", self.what)));
        self.told.into_iter().chain(rest)
    }
}

/// What contradicts itself in a recording, or in a window of it.
#[derive(Debug)]
struct Found {
    times: Kind,
    sizes: Kind,
    handles: Kind,
    /// Of each device, blocks that overlap, and sums that differ at the end.
    devices: Vec<(Kind, Vec<Problem>)>,
    /// The time and the device of the first and of the last event.
    ends: Option<[(u64, DeviceId); 2]>,
    /// The number of the first event.
    first: u64,
}

impl Found {
    fn of(trace: &Trace, devices: &[DeviceId]) -> Self {
        let at = |row: usize| (trace.events.time_ns[row], trace.events.device[row]);
        let of_device =
            |device: &DeviceId| (check_addresses(trace, *device, &on(*device, devices)), check_sums(trace, *device));
        Self {
            times: check_times(trace, devices),
            sizes: check_sizes(trace, devices),
            handles: check_handles(trace),
            devices: devices.iter().map(of_device).collect(),
            ends: trace.events.len().checked_sub(1).map(|last| [at(0), at(last)]),
            first: trace.start.events,
        }
    }

    fn is_empty(&self) -> bool {
        let kinds = [&self.times, &self.sizes, &self.handles].into_iter();
        let mut kinds = kinds.chain(self.devices.iter().map(|(addresses, _)| addresses));
        kinds.all(|kind| kind.count == 0)
    }

    /// Adds what was found in the next window.
    fn append(&mut self, later: Self, devices: &[DeviceId]) {
        if let (Some([first, before]), Some([next, last])) = (self.ends, later.ends) {
            check_order(&mut self.times, [before, next], later.first, devices);
            self.ends = Some([first, last]);
        }
        self.ends = self.ends.or(later.ends);
        self.times.append(later.times);
        self.sizes.append(later.sizes);
        self.handles.append(later.handles);
        for ((addresses, sums), (more, at_end)) in self.devices.iter_mut().zip(later.devices) {
            addresses.append(more);
            *sums = at_end;
        }
    }

    fn into_problems(self) -> impl Iterator<Item = Problem> {
        let shared = [self.times, self.sizes, self.handles].into_iter().flat_map(Kind::into_problems);
        shared.chain(self.devices.into_iter().flat_map(|(addresses, sums)| addresses.into_problems().chain(sums)))
    }
}

/// Reports event number `event`, the second of two, if it is earlier than the other on the same device.
fn check_order(times: &mut Kind, [before, at]: [(u64, DeviceId); 2], event: u64, devices: &[DeviceId]) {
    let ((before, former), (time, device)) = (before, at);
    if time < before && former == device && devices.contains(&device) {
        let on = on(device, devices);
        times.tell(|| format!("{on}event {event} is {} ns earlier than the event before it", before - time));
    }
}

fn check_times(trace: &Trace, devices: &[DeviceId]) -> Kind {
    let mut times = Kind::new("events out of order");
    let at = |row: usize| (trace.events.time_ns[row], trace.events.device[row]);
    for row in 1..trace.events.len() {
        check_order(&mut times, [at(row - 1), at(row)], trace.start.events + row as u64, devices);
    }
    times
}

/// Whether a block was live before this window, and was checked there.
fn is_from_before(trace: &Trace, row: usize) -> bool {
    trace.start.events > 0 && !trace.blocks.alloc[row].is_some()
}

fn check_sizes(trace: &Trace, devices: &[DeviceId]) -> Kind {
    let mut sizes = Kind::new("blocks smaller than requested");
    for row in 0..trace.blocks.len() {
        let (requested, allocated) = (trace.blocks.requested[row], trace.blocks.allocated[row]);
        let device = trace.blocks.device[row];
        if allocated < requested && devices.contains(&device) && !is_from_before(trace, row) {
            let (on, row) = (on(device, devices), trace.block_number(BlockId::from_index(row)).0);
            sizes.tell(|| format!("{on}block {row} has {allocated} bytes, but {requested} were requested"));
        }
    }
    sizes
}

fn check_handles(trace: &Trace) -> Kind {
    let mut handles = Kind::new("references beyond the end of a table");
    let tables = &trace.tables;
    let own = |row: &usize| !is_from_before(trace, *row);
    let stacks = (0..trace.blocks.len()).filter(own).map(|row| &trace.blocks.stack[row]);
    for stack in trace.events.stack.iter().chain(stacks) {
        if stack.index().is_some_and(|index| index >= tables.stacks.len()) {
            handles.tell(|| format!("{stack:?} is out of range: the stack table has {} rows", tables.stacks.len()));
        }
    }
    for op in (0..trace.blocks.len()).filter(own).map(|row| &trace.blocks.op[row]) {
        if op.index().is_some_and(|index| index >= tables.ops.len()) {
            handles.tell(|| format!("{op:?} is out of range: the op table has {} rows", tables.ops.len()));
        }
    }
    for scope in (0..trace.blocks.len()).filter(own).map(|row| &trace.blocks.scope[row]) {
        if scope.index().is_some_and(|index| index >= tables.scopes.len()) {
            handles.tell(|| format!("{scope:?} is out of range: the scope table has {} rows", tables.scopes.len()));
        }
    }
    handles
}

/// Checks that active blocks do not overlap.
fn check_addresses(trace: &Trace, device: DeviceId, on: &str) -> Kind {
    let mut overlaps = Kind::new("blocks that overlap others");
    let mut active: BTreeMap<u64, usize> = BTreeMap::new();
    let mut take = |effect: Effect| match effect {
        Effect::Allocated(row) => {
            let start = trace.blocks.address[row];
            let end = start.saturating_add(trace.blocks.allocated[row]);
            let before = active.range(..end).next_back();
            if let Some((_, &other)) = before
                && trace.blocks.address[other].saturating_add(trace.blocks.allocated[other]) > start
                && end > start
                && !is_from_before(trace, row)
            {
                let [other, row] = [other, row].map(|row| trace.block_number(BlockId::from_index(row)).0);
                overlaps.tell(|| format!("{on}blocks {other} and {row} overlap at address {start:#x}"));
            }
            active.insert(start, row);
        }
        Effect::FreeCompleted(row) if active.get(&trace.blocks.address[row]) == Some(&row) => {
            active.remove(&trace.blocks.address[row]);
        }
        _ => {}
    };
    baseline_effects(trace, device, &mut take);
    for index in 0..trace.events.len() {
        if trace.events.device[index] == device {
            effects(trace, index, &mut take);
        }
    }
    overlaps
}

/// Checks that the blocks live at the end add up to the totals of the events.
fn check_sums(trace: &Trace, device: DeviceId) -> Vec<Problem> {
    let mut problems = Vec::new();
    let series = Series::build(trace, device);
    let end = series.end(trace);
    let blocks = &trace.blocks;
    let of_device = (0..blocks.len()).filter(|&row| blocks.device[row] == device);
    let (mut requested, mut allocated, mut active) = (0_u64, 0_u64, 0_u64);
    for row in of_device {
        if !blocks.free_requested[row].is_some() {
            requested += blocks.requested[row];
            allocated += blocks.allocated[row];
        }
        if !blocks.free_completed[row].is_some() {
            active += blocks.allocated[row];
        }
    }
    for (metric, sum) in [(Metric::Requested, requested), (Metric::Allocated, allocated), (Metric::Active, active)] {
        if end.get(metric) != sum {
            let total = end.get(metric);
            let text =
                format!("device {}: live blocks sum to {sum} bytes {metric}, but the events to {total}", device.0);
            problems.push(Problem::new(text));
        }
    }
    problems
}
