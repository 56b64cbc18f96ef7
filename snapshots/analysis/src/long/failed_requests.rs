//! Finds the failed requests of a recording, and the one with which it ends.

use std::ops::ControlFlow;

use highwater_snapshots::Result;
use highwater_snapshots::event::{Event, EventKind, What};
use highwater_snapshots::format::{Summary, Windows};
use highwater_snapshots::ids::DeviceId;
use rayon::prelude::*;

use crate::final_oom::{Recovery, last_oom};

/// Events that are read at once.
const EVENTS: u64 = 1 << 16;

/// The number of the failed request, and its device, as [`final_oom`](crate::final_oom::final_oom) finds it.
///
/// # Errors
///
/// Fails if a window cannot be read.
pub fn final_oom(windows: &Windows) -> Result<Option<(u64, DeviceId)>> {
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

/// The numbers of all failed requests, in order, and their devices.
///
/// # Errors
///
/// Fails if events cannot be read.
pub fn failed_requests(windows: &Windows) -> Result<Vec<(u64, DeviceId)>> {
    let rows: Vec<&Summary> = windows.summaries().iter().filter(|row| has_failed(row)).collect();
    let found: Vec<Vec<(u64, DeviceId)>> =
        rows.par_iter().map(|row| requests_of(windows, row)).collect::<Result<_>>()?;
    Ok(found.concat())
}

/// Whether any request failed, on any device.
pub fn has_failed_requests(windows: &Windows) -> bool {
    windows.summaries().iter().any(has_failed)
}

/// Finds the event of the first request that failed at event `from` or later, or, unless `is_forward`, of the last
/// before it; on any device, and from the other end if there is none.
///
/// # Errors
///
/// Fails if events cannot be read.
pub fn find_failed_request(windows: &Windows, from: u64, is_forward: bool) -> Result<Option<u64>> {
    let rows: Vec<&Summary> = windows.summaries().iter().filter(|row| has_failed(row)).collect();
    if is_forward {
        let first = rows.partition_point(|row| row.first + u64::from(row.events) <= from);
        for row in &rows[first..] {
            if let Some(found) = numbers_of(windows, row)?.into_iter().find(|event| *event >= from) {
                return Ok(Some(found));
            }
        }
        let first = rows.first().map(|row| numbers_of(windows, row)).transpose()?;
        return Ok(first.and_then(|events| events.first().copied()));
    }
    let end = rows.partition_point(|row| row.first < from);
    for row in rows[..end].iter().rev() {
        if let Some(found) = numbers_of(windows, row)?.into_iter().rfind(|event| *event < from) {
            return Ok(Some(found));
        }
    }
    let last = rows.last().map(|row| numbers_of(windows, row)).transpose()?;
    Ok(last.and_then(|events| events.last().copied()))
}

fn has_failed(row: &Summary) -> bool {
    row.devices.iter().any(|device| device.counts[EventKind::Oom as usize] > 0)
}

fn numbers_of(windows: &Windows, row: &Summary) -> Result<Vec<u64>> {
    Ok(requests_of(windows, row)?.into_iter().map(|(number, _)| number).collect())
}

/// The failed requests among the events of a row.
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

    use highwater_snapshots::format::write_trace;
    use highwater_snapshots::text::trace_from_text;

    use super::*;

    #[test]
    fn failed_requests_are_found_in_both_directions_and_around_the_ends() {
        let failed = [100, 101, 9000, 20_000];
        let event = |n: u64| if failed.contains(&n) { "oom 10\n".to_owned() } else { format!("alloc b{n} 1\n") };
        let text: String = (0..25_000).map(event).collect();
        let bytes: Arc<[u8]> = write_trace(Vec::new(), &trace_from_text(&text).unwrap()).unwrap().into();
        let windows = Windows::open(Arc::new(bytes), &mut |_| ControlFlow::Continue(())).unwrap();
        assert!(has_failed_requests(&windows));
        for from in [0, 100, 101, 102, 5000, 9000, 9001, 20_000, 20_001, 25_000] {
            let next = failed.into_iter().find(|event| *event >= from).unwrap_or(100);
            let last = failed.into_iter().rfind(|event| *event < from).unwrap_or(20_000);
            assert_eq!(find_failed_request(&windows, from, true).unwrap(), Some(next), "from {from}");
            assert_eq!(find_failed_request(&windows, from, false).unwrap(), Some(last), "before {from}");
        }
    }
}
