//! Summarizes the devices of a recording by its summaries.

use highwater_snapshots::Result;
use highwater_snapshots::event::EventKind;
use highwater_snapshots::format::{Windows, count_steps};
use highwater_snapshots::ids::DeviceId;

use super::failed_requests::failed_requests;
use super::peaks::peak;
use super::{Parts, Watch, each_part};
use crate::capacity::Capacity;
use crate::device_spans::{StepActivity, activity_in};
use crate::metric::Metric;
use crate::replay::Replay;
use crate::series::Series;
use crate::summary::DeviceSummary;

/// Summarizes every device, as [`summarize`](crate::summary::summarize) does.
///
/// # Errors
///
/// Fails if a window cannot be read, or with [`Error::Cancelled`](highwater_snapshots::Error::Cancelled) if `watch`
/// breaks.
pub fn summarize(parts: Parts<'_>, watch: Watch<'_>) -> Result<Vec<DeviceSummary>> {
    let windows = parts.windows;
    let start = windows.window(0..0)?;
    let devices = windows.device_ids();
    let steps = steps(parts, &devices, watch)?;
    let summary = |(&device, steps): (&DeviceId, u64)| {
        let rows = || windows.summaries().iter().flat_map(|row| &row.devices).filter(move |row| row.device == device);
        let count = |kind: EventKind| rows().map(|row| u64::from(row.counts[kind as usize])).sum::<u64>();
        let metrics = Metric::ALL.into_iter();
        let is_sampled = count(EventKind::DeviceUsed) > 0;
        let metrics = metrics.filter(|metric| *metric != Metric::DeviceUsed || is_sampled);
        let facts = windows.base().device_facts(device);
        let capacity = match Capacity::recorded(windows.base(), device) {
            None if count(EventKind::Oom) > 0 => inferred(windows, device)?,
            recorded => recorded,
        };
        let baseline = Replay::new(&start, device).totals();
        let is_ours = |row: &usize| start.segments.device[*row] == device;
        let segments = (0..start.segments.len()).filter(is_ours).count() as u64;
        let kinds = EventKind::ALL.iter().filter(|kind| !matches!(kind, EventKind::Step | EventKind::Phase));
        let times = rows().filter_map(|row| row.times_ns).filter(|_| start.has_times());
        Ok(DeviceSummary {
            device,
            name: facts.map_or_else(String::new, |facts| facts.name.clone()),
            capacity_bytes: capacity.map_or(0, |capacity| capacity.bytes),
            capacity_is_inferred: capacity.is_some_and(|capacity| capacity.is_inferred),
            events: kinds.map(|kind| count(*kind)).sum(),
            allocs: count(EventKind::Alloc),
            frees: count(EventKind::FreeRequested),
            uses: count(EventKind::Used),
            segments: segments + count(EventKind::SegmentAlloc) + count(EventKind::SegmentMap),
            baseline_bytes: baseline.requested,
            end: rows().next_back().map_or(baseline, |row| row.end),
            peaks: metrics.map(|metric| peak(windows, device, metric)).collect::<Result<_>>()?,
            oom_events: count(EventKind::Oom),
            steps,
            first_time_ns: times.clone().map(|(first, _)| first).min(),
            last_time_ns: times.map(|(_, last)| last).max(),
        })
    };
    devices.iter().zip(steps).map(summary).collect()
}

/// The memory of a device that its failed requests show.
fn inferred(windows: &Windows, device: DeviceId) -> Result<Option<Capacity>> {
    let failed = failed_requests(windows)?.into_iter().filter(|(_, of)| *of == device);
    let mut most = None;
    for (event, _) in failed {
        let window = windows.window(event..event + 1)?;
        most = most.max(Capacity::of(&window, &Series::build(&window, device)));
    }
    Ok(most)
}

/// The number of steps of each device.
fn steps(parts: Parts<'_>, devices: &[DeviceId], watch: Watch<'_>) -> Result<Vec<u64>> {
    let rows = parts.windows.summaries();
    if let Some(counts) = count_steps(rows, devices) {
        return Ok(counts);
    }
    if devices.len() < 2 && rows.iter().all(|row| row.repeated_steps == 0) {
        // Files before version 1.5: every step is one of the device.
        let count = rows.iter().map(|row| u64::from(row.steps)).sum();
        return Ok(vec![count; devices.len()]);
    }
    let mut activities = vec![Vec::new(); devices.len()];
    let map = |trace: highwater_snapshots::Trace| {
        let of_device = |device: &DeviceId| {
            let spans = trace.spans.rows().iter();
            spans.map(|span| (span.step, activity_in(&trace, *device, span))).collect::<Vec<_>>()
        };
        devices.iter().map(of_device).collect::<Vec<_>>()
    };
    let take = |part: Vec<Vec<_>>| activities.iter_mut().zip(part).for_each(|(all, more)| all.extend(more));
    each_part(parts, map, take, watch)?;
    let count = |rows: &Vec<_>| StepActivity::of(rows.iter().copied()).count_of_device();
    Ok(activities.iter().map(count).collect())
}
