//! Finds the failed requests of a recording, in particular at its end, and infers the device's capacity from them.

use std::ops::ControlFlow;

use highwater_snapshots::Result;
use highwater_snapshots::event::{Event, EventKind, Oom, What};
use highwater_snapshots::format::{Summary, Windows};
use highwater_snapshots::ids::{DeviceId, EventId};
use rayon::prelude::*;

use super::{Kind, Source, Window};
use crate::index::capacity::{Capacity, is_limited, obtained};
use crate::index::final_oom::{Recovery, final_oom, last_oom};
use crate::metric::Metric;

/// Number of events read at a time.
const EVENTS: u64 = 1 << 16;

impl Source<'_> {
    /// Returns the failed request at the end of the recording (see [`final_oom`]): its event index and its device.
    ///
    /// # Errors
    /// Fails if a window cannot be read.
    pub fn final_oom(&self) -> Result<Option<(u64, DeviceId)>> {
        let windows = match &self.kind {
            Kind::InMemory(memory) => {
                let found = final_oom(&memory.trace);
                let of = |event: EventId| (memory.trace.number(event), memory.trace.events.device[event.0 as usize]);
                return Ok(found.map(of));
            }
            Kind::File(file) => &file.windows,
        };
        let failed = windows.summaries().iter().rev().filter(|row| {
            let mut devices = row.devices.iter().filter(|device| !windows.base().is_host_memory(device.device));
            devices.any(|device| device.counts[EventKind::Oom as usize] > 0)
        });
        for row in failed {
            let part = windows.window(row.first..row.first + u64::from(row.events))?;
            let Some(oom) = last_oom(&part) else { continue };
            let Some(mut recovery) = Recovery::after(&part, oom) else { return Ok(None) };
            recovery.take(&part, oom.0 as usize + 1);
            let mut next = row.first + u64::from(row.events);
            while !recovery.is_complete() && next < windows.events() {
                recovery.take(&windows.window(next..next + EVENTS)?, 0);
                next += EVENTS;
            }
            let found = (part.number(oom), part.events.device[oom.0 as usize]);
            return Ok((!recovery.is_complete()).then_some(found));
        }
        Ok(None)
    }

    /// Returns the event index and device of every failed request, in order.
    ///
    /// # Errors
    /// Fails if events cannot be read.
    pub fn failed_requests(&self) -> Result<Vec<(u64, DeviceId)>> {
        let windows = match &self.kind {
            Kind::InMemory(memory) => {
                let trace = &memory.trace;
                return Ok(trace.failed_requests().map(|(event, device)| (trace.number(event), device)).collect());
            }
            Kind::File(file) => &file.windows,
        };
        let rows: Vec<&Summary> = windows.summaries().iter().filter(|row| has_failed(row)).collect();
        let found: Vec<Vec<(u64, DeviceId)>> =
            rows.par_iter().map(|row| requests_of(windows, row)).collect::<Result<_>>()?;
        Ok(found.concat())
    }

    /// Returns the event of the first failed request on any device at event `from` or later. If `is_forward` is false,
    /// returns the last failed request before `from`. Wraps around.
    ///
    /// # Errors
    /// Fails if events cannot be read.
    pub fn find_failed_request(&self, from: u64, is_forward: bool) -> Result<Option<u64>> {
        let failed = self.failed_requests()?;
        let at = failed.partition_point(|(event, _)| *event < from);
        let found = if is_forward { failed.get(at).or(failed.first()) } else { failed[..at].last().or(failed.last()) };
        Ok(found.map(|(event, _)| *event))
    }

    /// Whether any request failed, on any device.
    pub fn has_failed_requests(&self) -> bool {
        match &self.kind {
            Kind::InMemory(memory) => !memory.trace.ooms.is_empty(),
            Kind::File(file) => file.windows.summaries().iter().any(has_failed),
        }
    }

    /// Returns the memory capacity of a device; `None` if neither recorded nor inferable from failed requests.
    ///
    /// # Errors
    /// Fails if a window cannot be read.
    pub fn capacity(&self, device: DeviceId) -> Result<Option<Capacity>> {
        let recorded = Capacity::recorded(self.facts(), device);
        if recorded.is_some() || !self.has_failed_requests() {
            return Ok(recorded);
        }
        if let Some(bytes) = self.memory_limit(device)? {
            return Ok(Some(Capacity { bytes, is_inferred: true }));
        }
        let mut most = None;
        self.each_failure(device, |window, oom| {
            most = most.max(Some(Capacity::at_failure(obtained(window.totals(device)), oom.device_free)));
        })?;
        Ok(most)
    }

    /// The memory limit of the allocator on `device`, if a request failed because of a limit below the device's memory.
    /// Returns the maximum of reserved memory. The limit is at least this value, and less than the failed request would
    /// have needed.
    ///
    /// # Errors
    /// Fails like [`Self::capacity`].
    pub fn memory_limit(&self, device: DeviceId) -> Result<Option<u64>> {
        let mut is_any = false;
        self.each_failure(device, |window, oom| is_any |= is_limited(&window.trace, device, oom))?;
        if !is_any {
            return Ok(None);
        }
        Ok(Some(self.peak(device, Metric::Reserved)?.bytes))
    }

    /// Passes each failed request of `device` to `take`, with the window that contains it.
    fn each_failure(&self, device: DeviceId, mut take: impl FnMut(&Window<'_>, &Oom)) -> Result<()> {
        if self.count(device, EventKind::Oom) == 0 {
            return Ok(());
        }
        for (event, _) in self.failed_requests()?.into_iter().filter(|(_, of)| *of == device) {
            let window = self.window_at(Some(event))?;
            let row = window.trace.events.subject[window.events.start] as usize;
            if let Some(oom) = window.trace.ooms.get(row) {
                take(&window, oom);
            }
        }
        Ok(())
    }
}

fn has_failed(row: &Summary) -> bool {
    row.devices.iter().any(|device| device.counts[EventKind::Oom as usize] > 0)
}

/// The failed requests among the events of a summary row.
fn requests_of(windows: &Windows, row: &Summary) -> Result<Vec<(u64, DeviceId)>> {
    let mut found = Vec::new();
    let mut take = |first: u64, run: &[Event]| {
        let failed = run.iter().zip(first..).filter(|(event, _)| matches!(event.what, What::Oom(_)));
        found.extend(failed.map(|(event, number)| (number, event.device)));
        ControlFlow::Continue(())
    };
    windows.read(row.first..row.first + u64::from(row.events), &mut take)?;
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use highwater_notation::trace_from_text;
    use highwater_snapshots::format::write_trace;

    use super::*;

    #[test]
    fn failed_requests_are_found_in_both_directions_and_around_the_ends() {
        let failed = [100, 101, 9000, 20_000];
        let event = |n: u64| if failed.contains(&n) { "oom 10\n".to_owned() } else { format!("alloc b{n} 1\n") };
        let text: String = (0..25_000).map(event).collect();
        let bytes: Arc<[u8]> = write_trace(Vec::new(), &trace_from_text(&text).unwrap()).unwrap().into();
        let windows = Windows::open(Arc::new(bytes), &mut |_| ControlFlow::Continue(())).unwrap();
        let source = Source::in_windows(Arc::new(windows)).unwrap();
        assert!(source.has_failed_requests());
        for from in [0, 100, 101, 102, 5000, 9000, 9001, 20_000, 20_001, 25_000] {
            let next = failed.into_iter().find(|event| *event >= from).unwrap_or(100);
            let last = failed.into_iter().rfind(|event| *event < from).unwrap_or(20_000);
            assert_eq!(source.find_failed_request(from, true).unwrap(), Some(next), "from {from}");
            assert_eq!(source.find_failed_request(from, false).unwrap(), Some(last), "before {from}");
        }
    }
}
