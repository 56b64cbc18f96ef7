//! A one-page summary of each device of a recording.

use highwater_snapshots::Result;
use highwater_snapshots::event::EventKind;
use highwater_snapshots::ids::DeviceId;
use serde::{Deserialize, Serialize};

use super::peak::Moment;
use super::source::{Source, Watch};
use crate::metric::{Metric, Totals};

/// A summary of one device of a recording.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceSummary {
    /// The device ordinal.
    pub device: DeviceId,
    /// The device name; empty if unknown.
    pub name: String,
    /// Device memory in bytes; 0 if unknown.
    pub capacity_bytes: u64,
    /// Whether the capacity was not recorded but inferred from a failed request.
    pub capacity_is_inferred: bool,
    /// Number of events of the device, including marks, but not steps and phases.
    pub events: u64,
    /// Number of alloc events.
    pub allocs: u64,
    /// Number of frees, counting free-requested events and blocks with only a free-completed event.
    pub frees: u64,
    /// Number of use events.
    pub uses: u64,
    /// Number of segments and mappings reserved, including those in the baseline.
    pub segments: u64,
    /// Requested bytes of the blocks live before the first event.
    pub baseline_bytes: u64,
    /// The totals after the last event.
    pub end: Totals,
    /// The peak of each metric. Includes `device_used` only if it was sampled.
    pub peaks: Vec<Moment>,
    /// Number of failed requests.
    pub oom_events: u64,
    /// Number of steps, including incomplete ones.
    pub steps: u64,
    /// Time of the first event, in nanoseconds since the recording's origin; `None` without events or times.
    pub first_time_ns: Option<u64>,
    /// Time of the last event, in nanoseconds since the recording's origin; `None` without events or times.
    pub last_time_ns: Option<u64>,
}

impl DeviceSummary {
    /// Summarizes `device`.
    ///
    /// # Errors
    /// Fails like [`Source::each_window`].
    pub fn of(source: &Source<'_>, device: DeviceId, watch: Watch<'_>) -> Result<Self> {
        Ok(summarize_devices(source, &[device], watch)?.remove(0))
    }

    /// The peak of `metric`; `None` if it was not sampled.
    pub fn peak(&self, metric: Metric) -> Option<&Moment> {
        self.peaks.iter().find(|peak| peak.metric == metric)
    }
}

/// Summarizes every device.
///
/// # Errors
/// Fails like [`Source::each_window`].
pub fn summarize(source: &Source<'_>, watch: Watch<'_>) -> Result<Vec<DeviceSummary>> {
    summarize_devices(source, &source.facts().device_ids(), watch)
}

/// Summarizes each of `devices`.
///
/// # Errors
/// Fails like [`Source::each_window`].
pub fn summarize_devices(source: &Source<'_>, devices: &[DeviceId], watch: Watch<'_>) -> Result<Vec<DeviceSummary>> {
    let steps = source.count_steps(devices, watch)?;
    devices.iter().zip(steps).map(|(device, steps)| of_device(source, *device, steps)).collect()
}

/// Summarizes a device that is active in `steps` steps.
fn of_device(source: &Source<'_>, device: DeviceId, steps: u64) -> Result<DeviceSummary> {
    let start = source.window_at(None)?;
    let trace = &start.trace;
    let facts = trace.device_facts(device);
    let capacity = source.capacity(device)?;
    let counts = source.counts(device)?;
    let baseline_segments = trace.segments.alloc.partition_point(|alloc| !alloc.is_some());
    let baseline_segments =
        trace.segments.device[..baseline_segments].iter().filter(|at| **at == device).count() as u64;
    let is_sampled = counts.of(EventKind::DeviceUsed) > 0;
    let metrics = Metric::ALL.into_iter().filter(|metric| *metric != Metric::DeviceUsed || is_sampled);
    Ok(DeviceSummary {
        device,
        name: facts.map_or_else(String::new, |facts| facts.name.clone()),
        capacity_bytes: capacity.map_or(0, |capacity| capacity.bytes),
        capacity_is_inferred: capacity.is_some_and(|capacity| capacity.is_inferred),
        events: counts.kinds.iter().sum(),
        allocs: counts.of(EventKind::Alloc),
        frees: counts.of(EventKind::FreeRequested) + counts.completed_only,
        uses: counts.of(EventKind::Used),
        segments: baseline_segments + counts.of(EventKind::SegmentAlloc) + counts.of(EventKind::SegmentMap),
        baseline_bytes: start.totals(device).requested,
        end: counts.end,
        peaks: metrics.map(|metric| source.peak(device, metric)).collect::<Result<_>>()?,
        oom_events: counts.of(EventKind::Oom),
        steps,
        first_time_ns: counts.times_ns.map(|(first, _)| first),
        last_time_ns: counts.times_ns.map(|(_, last)| last),
    })
}
