//! Checks the invariants of a recording.

use std::collections::BTreeMap;

use highwater_snapshots::error::Problem;
use highwater_snapshots::ids::DeviceId;
use highwater_snapshots::trace::Trace;

use super::metric::Metric;
use super::replay::{Effect, baseline_effects, effects};
use super::series::Series;

/// Maximum number of problems reported per kind; the rest are counted.
const TOLD: usize = 5;

/// Finds contradictions in `trace`. Empty for a sound recording; other problems found while reading are in
/// [`Trace::problems`] and not repeated.
pub fn verify(trace: &Trace) -> Vec<Problem> {
    verify_devices(trace, &trace.device_ids())
}

/// Like [`verify`], but only for `devices`; the tables, which all devices share, are checked completely.
pub fn verify_devices(trace: &Trace, devices: &[DeviceId]) -> Vec<Problem> {
    // Whether blocks fit into the segments is checked when a trace is built.
    let mut problems: Vec<Problem> = trace.problems.iter().filter(|problem| problem.is_of_sums).cloned().collect();
    check_times(trace, devices, &mut problems);
    check_sizes(trace, devices, &mut problems);
    check_handles(trace, &mut problems);
    for &device in devices {
        check_addresses(trace, device, &on(device, devices), &mut problems);
        check_sums(trace, device, &mut problems);
    }
    problems
}

/// The prefix of a problem on `device` if several devices are checked.
fn on(device: DeviceId, devices: &[DeviceId]) -> String {
    if devices.len() > 1 { format!("device {}: ", device.0) } else { String::new() }
}

/// Reports the first few problems of a kind and counts the rest.
struct Teller<'a> {
    problems: &'a mut Vec<Problem>,
    what: &'static str,
    count: usize,
}

impl<'a> Teller<'a> {
    fn new(problems: &'a mut Vec<Problem>, what: &'static str) -> Self {
        Self { problems, what, count: 0 }
    }

    fn report(&mut self, text: impl FnOnce() -> String) {
        self.count += 1;
        if self.count <= TOLD {
            self.problems.push(Problem::new(text()));
        }
    }
}

impl Drop for Teller<'_> {
    fn drop(&mut self) {
        if self.count > TOLD {
            self.problems.push(Problem::new(format!("… and {} more: {}", self.count - TOLD, self.what)));
        }
    }
}

fn check_times(trace: &Trace, devices: &[DeviceId], problems: &mut Vec<Problem>) {
    let mut teller = Teller::new(problems, "events out of order");
    for (index, pair) in trace.events.time_ns.windows(2).enumerate() {
        let device = trace.events.device[index];
        if pair[1] < pair[0] && device == trace.events.device[index + 1] && devices.contains(&device) {
            let on = on(device, devices);
            let earlier = pair[0] - pair[1];
            teller.report(|| format!("{on}event {} is {earlier} ns earlier than the event before it", index + 1));
        }
    }
}

fn check_sizes(trace: &Trace, devices: &[DeviceId], problems: &mut Vec<Problem>) {
    let mut teller = Teller::new(problems, "blocks smaller than requested");
    for row in 0..trace.blocks.len() {
        let (requested, allocated) = (trace.blocks.requested[row], trace.blocks.allocated[row]);
        let device = trace.blocks.device[row];
        if allocated < requested && devices.contains(&device) {
            let on = on(device, devices);
            teller.report(|| format!("{on}block {row} has {allocated} bytes, but {requested} were requested"));
        }
    }
}

fn check_handles(trace: &Trace, problems: &mut Vec<Problem>) {
    let mut teller = Teller::new(problems, "references beyond the end of a table");
    let tables = &trace.tables;
    let stacks = trace.events.stack.iter().chain(&trace.blocks.stack);
    for stack in stacks.filter(|stack| stack.index().is_some_and(|index| index >= tables.stacks.len())) {
        teller.report(|| format!("{stack:?} is out of range: the stack table has {} rows", tables.stacks.len()));
    }
    for op in trace.blocks.op.iter().filter(|op| op.index().is_some_and(|index| index >= tables.ops.len())) {
        teller.report(|| format!("{op:?} is out of range: the op table has {} rows", tables.ops.len()));
    }
    for scope in trace.blocks.scope.iter().filter(|id| id.index().is_some_and(|index| index >= tables.scopes.len())) {
        teller.report(|| format!("{scope:?} is out of range: the scope table has {} rows", tables.scopes.len()));
    }
}

/// Checks that active blocks do not overlap.
fn check_addresses(trace: &Trace, device: DeviceId, on: &str, problems: &mut Vec<Problem>) {
    let mut teller = Teller::new(problems, "blocks that overlap others");
    let mut active: BTreeMap<u64, usize> = BTreeMap::new();
    let mut take = |effect: Effect| match effect {
        Effect::Allocated(row) => {
            let start = trace.blocks.address[row];
            let end = start.saturating_add(trace.blocks.allocated[row]);
            let before = active.range(..end).next_back();
            if let Some((_, &other)) = before
                && trace.blocks.address[other].saturating_add(trace.blocks.allocated[other]) > start
                && end > start
            {
                teller.report(|| format!("{on}blocks {other} and {row} overlap at address {start:#x}"));
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
}

/// Checks that the blocks live at the end add up to the totals of the events.
fn check_sums(trace: &Trace, device: DeviceId, problems: &mut Vec<Problem>) {
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
}
