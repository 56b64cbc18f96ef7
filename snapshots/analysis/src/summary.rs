//! Summary: what is in a recording, on one page.

use rayon::prelude::*;

use highwater_snapshots::event::EventKind;
use highwater_snapshots::ids::DeviceId;
use highwater_snapshots::trace::Trace;

use super::device_spans::device_steps;
use super::metric::{Metric, Totals};
use super::peak::Moment;
use super::series::Series;

/// What is known of one device of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceSummary {
    /// The ordinal.
    pub device: DeviceId,
    /// The name, empty if unknown.
    pub name: String,
    /// Memory in bytes, 0 if unknown.
    pub capacity_bytes: u64,
    /// Its events, marks that carry it among them; steps and phases aside.
    pub events: u64,
    /// Its alloc events.
    pub allocs: u64,
    /// Its free-requested events.
    pub frees: u64,
    /// Its uses of blocks.
    pub uses: u64,
    /// Segments and mappings obtained, the baseline's included.
    pub segments: u64,
    /// Requested bytes of the blocks alive before the first event.
    pub baseline_bytes: u64,
    /// The totals after the last event.
    pub end: Totals,
    /// The peak of each metric; of `device_used` only where it was sampled.
    pub peaks: Vec<Moment>,
    /// Its failed requests.
    pub oom_events: u64,
    /// Its steps, whole or not.
    pub steps: u64,
    /// Time of its first event, in nanoseconds since the recording's origin.
    pub first_time_ns: Option<u64>,
    /// Time of its last event.
    pub last_time_ns: Option<u64>,
}

/// Sums up every device.
pub fn summarize(trace: &Trace) -> Vec<DeviceSummary> {
    trace.device_ids().into_iter().map(|device| of_device(trace, &Series::build(trace, device))).collect()
}

/// Sums up the device of `series`.
pub fn of_device(trace: &Trace, series: &Series) -> DeviceSummary {
    let device = series.device();
    let facts = trace.device_facts(device);
    let (counts, times) = count(trace, device);
    let baseline_segments = trace.segments.alloc.partition_point(|alloc| !alloc.is_some());
    let baseline_segments =
        trace.segments.device[..baseline_segments].iter().filter(|at| **at == device).count() as u64;
    let is_sampled = counts[EventKind::DeviceUsed as usize] > 0;
    let metrics = Metric::ALL.into_iter().filter(|metric| *metric != Metric::DeviceUsed || is_sampled);
    DeviceSummary {
        device,
        name: facts.map_or_else(String::new, |facts| facts.name.clone()),
        capacity_bytes: facts.map_or(0, |facts| facts.capacity_bytes),
        events: counts.iter().sum(),
        allocs: counts[EventKind::Alloc as usize],
        frees: counts[EventKind::FreeRequested as usize],
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

/// How often each kind of event comes on `device`, steps and phases aside, and its first and last time.
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

/// Events that one thread counts in one go.
const RUN: usize = 1 << 16;

/// The range over both ranges of times.
fn join(one: Option<(u64, u64)>, other: Option<(u64, u64)>) -> Option<(u64, u64)> {
    match (one, other) {
        (Some(one), Some(other)) => Some((one.0.min(other.0), one.1.max(other.1))),
        (one, other) => one.or(other),
    }
}
