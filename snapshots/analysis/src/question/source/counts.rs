//! Counts the events of a device, and reads the totals at the end of a recording.

use highwater_snapshots::Result;
use highwater_snapshots::event::EventKind;
use highwater_snapshots::format::{DeviceSummary, count_steps};
use highwater_snapshots::ids::{BlockId, DeviceId};
use highwater_snapshots::trace::{Allocator, Trace};
use rayon::prelude::*;

use super::{File, Kind, Source, Watch};
use crate::index::device_spans::{StepActivity, activity_in, device_steps};
use crate::index::replay::Replay;
use crate::metric::Totals;

/// The event counts of a device, and its final totals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceCounts {
    /// Number of events of each kind, indexed by the kind's code, without steps and phases.
    pub kinds: [u64; EventKind::ALL.len()],
    /// Number of blocks with a free-completed event but no free-requested one. Some allocators report only these.
    /// Always 0 for a recording that is read in windows.
    pub completed_only: u64,
    /// Smallest and largest time of these events, in nanoseconds since the recording's origin; `None` without events,
    /// or without times.
    pub times_ns: Option<(u64, u64)>,
    /// The totals after the last event.
    pub end: Totals,
}

impl DeviceCounts {
    pub(crate) fn of(&self, kind: EventKind) -> u64 {
        self.kinds[kind as usize]
    }
}

impl Source<'_> {
    /// Counts the events of `device`.
    ///
    /// # Errors
    /// Fails if a window cannot be read.
    pub fn counts(&self, device: DeviceId) -> Result<DeviceCounts> {
        match &self.kind {
            Kind::InMemory(memory) => {
                let (kinds, times) = count(&memory.trace, device);
                let times_ns = times.filter(|_| memory.trace.has_times());
                let end = self.window(self.events())?.totals(device);
                Ok(DeviceCounts { kinds, completed_only: completed_only(&memory.trace, device), times_ns, end })
            }
            Kind::File(file) => file.counts(device),
        }
    }

    /// The number of events of a kind on `device`.
    pub fn count(&self, device: DeviceId, kind: EventKind) -> u64 {
        match &self.kind {
            Kind::InMemory(memory) => {
                let events = memory.trace.events.kind.iter().zip(&memory.trace.events.device);
                events.filter(|(of, at)| **of == kind && **at == device).count() as u64
            }
            Kind::File(file) => file.rows(device).map(|row| u64::from(row.counts[kind as usize])).sum(),
        }
    }

    /// Returns the number of blocks on all devices that are live before the first event or allocated later.
    ///
    /// # Errors
    /// Fails if a window cannot be read.
    pub fn count_blocks(&self) -> Result<u64> {
        let before = self.window_at(None)?.trace.blocks.alloc.partition_point(|alloc| !alloc.is_some()) as u64;
        let devices = self.facts().device_ids().into_iter();
        Ok(before + devices.map(|device| self.count(device, EventKind::Alloc)).sum::<u64>())
    }

    /// The allocator that served a device.
    pub fn allocator(&self, device: DeviceId) -> Allocator {
        let segments = [EventKind::SegmentAlloc, EventKind::SegmentMap];
        match self.facts().allocator(device) {
            Allocator::Other if segments.iter().any(|kind| self.count(device, *kind) > 0) => Allocator::Caching,
            allocator => allocator,
        }
    }

    /// Returns the time between the first and the last event of any device, in nanoseconds; `None` without times.
    pub fn duration_ns(&self) -> Option<u64> {
        let times = match &self.kind {
            Kind::InMemory(memory) => {
                let times = memory.trace.events.time_ns.iter();
                times.fold(None, |times, time| join(times, Some((*time, *time))))
            }
            Kind::File(file) => {
                file.windows.summaries().iter().fold(None, |times, row| join(times, Some(row.times_ns)))
            }
        };
        times.filter(|_| self.facts().has_times()).map(|(first, last)| last.saturating_sub(first))
    }

    /// Returns the number of steps of each of `devices`, including incomplete steps.
    ///
    /// # Errors
    /// Fails like [`Source::each_window`].
    pub fn count_steps(&self, devices: &[DeviceId], watch: Watch<'_>) -> Result<Vec<u64>> {
        let file = match &self.kind {
            Kind::InMemory(memory) => {
                return Ok(devices.iter().map(|device| device_steps(&memory.trace, *device).len() as u64).collect());
            }
            Kind::File(file) => file,
        };
        let rows = file.windows.summaries();
        if let Some(counts) = count_steps(rows, devices) {
            return Ok(counts);
        }
        if devices.len() < 2 && rows.iter().all(|row| row.repeated_steps == 0) {
            // Files before version 1.5: every step is one of the device.
            let count = rows.iter().map(|row| u64::from(row.steps)).sum();
            return Ok(vec![count; devices.len()]);
        }
        let mut activities = vec![Vec::new(); devices.len()];
        let map = |trace: &Trace| {
            let of_device = |device: &DeviceId| {
                let spans = trace.spans.rows().iter();
                spans.map(|span| (span.step, activity_in(trace, *device, span))).collect::<Vec<_>>()
            };
            devices.iter().map(of_device).collect::<Vec<_>>()
        };
        let take = |part: Vec<Vec<_>>| activities.iter_mut().zip(part).for_each(|(all, more)| all.extend(more));
        self.each_window(map, take, watch)?;
        let count = |rows: &Vec<_>| StepActivity::of(rows.iter().copied()).count_of_device();
        Ok(activities.iter().map(count).collect())
    }
}

impl File {
    pub(super) fn rows(&self, device: DeviceId) -> impl Iterator<Item = &DeviceSummary> {
        self.windows.summaries().iter().flat_map(|row| &row.devices).filter(move |row| row.device == device)
    }

    fn counts(&self, device: DeviceId) -> Result<DeviceCounts> {
        let last = self.windows.events();
        let end = Replay::new(&self.window(last..last)?, device).totals();
        let mut counts = DeviceCounts { end, ..DeviceCounts::default() };
        for row in self.rows(device) {
            counts.kinds.iter_mut().zip(row.counts).for_each(|(sum, count)| *sum += u64::from(count));
            counts.times_ns = join(counts.times_ns, row.times_ns);
        }
        counts.times_ns = counts.times_ns.filter(|_| self.facts.has_times());
        for kind in [EventKind::Step, EventKind::Phase] {
            counts.kinds[kind as usize] = 0;
        }
        Ok(counts)
    }
}

/// The number of blocks of `device` with a free-completed event but no free-requested one.
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

/// Returns the number of events of each kind on `device`, without steps and phases, and their first and last times.
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

/// Number of events counted by each parallel task.
const RUN: usize = 1 << 16;

/// Returns the smallest range that includes both ranges.
fn join(one: Option<(u64, u64)>, other: Option<(u64, u64)>) -> Option<(u64, u64)> {
    match (one, other) {
        (Some(one), Some(other)) => Some((one.0.min(other.0), one.1.max(other.1))),
        (one, other) => one.or(other),
    }
}
