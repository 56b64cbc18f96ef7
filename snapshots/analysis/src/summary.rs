//! A one-page summary of each device of a recording.

use rayon::prelude::*;

use highwater_snapshots::event::EventKind;
use highwater_snapshots::ids::{BlockId, DeviceId};
use highwater_snapshots::trace::Trace;

use super::capacity::Capacity;
use super::device_spans::device_steps;
use super::metric::{Metric, Totals};
use super::peak::Moment;
use super::series::Series;

/// A summary of one device of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceSummary {
    /// The device ordinal.
    pub device: DeviceId,
    /// The device name; empty if unknown.
    pub name: String,
    /// Device memory in bytes; 0 if unknown.
    pub capacity_bytes: u64,
    /// Whether that is not recorded, but inferred from a failed request.
    pub capacity_is_inferred: bool,
    /// Number of its events, including its marks, but not steps and phases.
    pub events: u64,
    /// Number of alloc events.
    pub allocs: u64,
    /// Number of frees: of free-requested events, and of blocks whose free was only completed.
    pub frees: u64,
    /// Number of uses of blocks.
    pub uses: u64,
    /// Number of segments and mappings obtained, including the baseline's.
    pub segments: u64,
    /// Requested bytes of the blocks live before the first event.
    pub baseline_bytes: u64,
    /// The totals after the last event.
    pub end: Totals,
    /// The peak of each metric; of `device_used` only if it was sampled.
    pub peaks: Vec<Moment>,
    /// Number of failed requests.
    pub oom_events: u64,
    /// Number of steps, whole or not.
    pub steps: u64,
    /// Time of the first event, in nanoseconds since the recording's origin.
    pub first_time_ns: Option<u64>,
    /// Time of the last event.
    pub last_time_ns: Option<u64>,
}

/// Summarizes every device.
pub fn summarize(trace: &Trace) -> Vec<DeviceSummary> {
    trace.device_ids().into_iter().map(|device| of_device(trace, &Series::build(trace, device))).collect()
}

/// Summarizes the device of `series`.
pub fn of_device(trace: &Trace, series: &Series) -> DeviceSummary {
    let device = series.device();
    let facts = trace.device_facts(device);
    let capacity = Capacity::of(trace, series);
    let (counts, times) = count(trace, device);
    let times = times.filter(|_| trace.has_times());
    let baseline_segments = trace.segments.alloc.partition_point(|alloc| !alloc.is_some());
    let baseline_segments =
        trace.segments.device[..baseline_segments].iter().filter(|at| **at == device).count() as u64;
    let is_sampled = counts[EventKind::DeviceUsed as usize] > 0;
    let metrics = Metric::ALL.into_iter().filter(|metric| *metric != Metric::DeviceUsed || is_sampled);
    DeviceSummary {
        device,
        name: facts.map_or_else(String::new, |facts| facts.name.clone()),
        capacity_bytes: capacity.map_or(0, |capacity| capacity.bytes),
        capacity_is_inferred: capacity.is_some_and(|capacity| capacity.is_inferred),
        events: counts.iter().sum(),
        allocs: counts[EventKind::Alloc as usize],
        frees: counts[EventKind::FreeRequested as usize] + completed_only(trace, device),
        uses: counts[EventKind::Used as usize],
        segments: baseline_segments + counts[EventKind::SegmentAlloc as usize] + counts[EventKind::SegmentMap as usize],
        baseline_bytes: series.baseline().requested,
        end: series.end(trace),
        peaks: metrics.map(|metric| Moment::peak(trace, series, metric)).collect(),
        oom_events: counts[EventKind::Oom as usize],
        steps: device_steps(trace, device).len() as u64,
        first_time_ns: times.map(|(first, _)| first),
        last_time_ns: times.map(|(_, last)| last),
    }
}

/// The number of blocks of `device` that a completion freed without a request, as some allocators report all frees.
fn completed_only(trace: &Trace, device: DeviceId) -> u64 {
    let blocks = &trace.blocks;
    let is_completed_only = |row: &usize| {
        let kind = blocks.free_requested[*row].index().and_then(|event| trace.events.kind.get(event));
        blocks.device[*row] == device
            && kind == Some(&EventKind::FreeCompleted)
            && !trace.was_waiting_at_start(BlockId::from_index(*row))
    };
    (0..blocks.len()).filter(is_completed_only).count() as u64
}

/// The number of events of each kind on `device`, without steps and phases, and its first and last time.
fn count(trace: &Trace, device: DeviceId) -> (Counts, Option<(u64, u64)>) {
    let events = &trace.events;
    let of_run = |(run, kinds): (usize, &[EventKind])| {
        let first = run * RUN;
        let mut counts = [0; EventKind::ALL.len()];
        let mut times: Option<(u64, u64)> = None;
        for ((&kind, at), &time) in kinds.iter().zip(&events.device[first..]).zip(&events.time_ns[first..]) {
            if *at != device || matches!(kind, EventKind::Step | EventKind::Phase) {
                continue;
            }
            counts[kind as usize] += 1;
            times = join(times, Some((time, time)));
        }
        (counts, times)
    };
    let add = |mut sum: (Counts, _), one: (Counts, _)| {
        sum.0.iter_mut().zip(one.0).for_each(|(sum, one)| *sum += one);
        (sum.0, join(sum.1, one.1))
    };
    events.kind.par_chunks(RUN).enumerate().map(of_run).reduce(|| ([0; EventKind::ALL.len()], None), add)
}

type Counts = [u64; EventKind::ALL.len()];

/// Events per parallel task.
const RUN: usize = 1 << 16;

/// The smallest range that includes both.
fn join(one: Option<(u64, u64)>, other: Option<(u64, u64)>) -> Option<(u64, u64)> {
    match (one, other) {
        (Some(one), Some(other)) => Some((one.0.min(other.0), one.1.max(other.1))),
        (one, other) => one.or(other),
    }
}
