//! Finds the failed requests of a recording, and the one with which it ends.

use highwater_snapshots::Result;
use highwater_snapshots::event::EventKind;
use highwater_snapshots::format::{Summary, Windows};
use highwater_snapshots::ids::{DeviceId, EventId};
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
/// Fails if a window cannot be read.
pub fn failed_requests(windows: &Windows) -> Result<Vec<(u64, DeviceId)>> {
    let has_any = |row: &&Summary| row.devices.iter().any(|device| device.counts[EventKind::Oom as usize] > 0);
    let rows: Vec<&Summary> = windows.summaries().iter().filter(has_any).collect();
    let of_row = |row: &&Summary| -> Result<Vec<(u64, DeviceId)>> {
        let part = windows.window(row.first..row.first + u64::from(row.events))?;
        let events = (0..part.events.len()).filter(|event| part.events.kind[*event] == EventKind::Oom);
        Ok(events.map(|event| (part.number(EventId::from_index(event)), part.events.device[event])).collect())
    };
    let found: Vec<Vec<(u64, DeviceId)>> = rows.par_iter().map(of_row).collect::<Result<_>>()?;
    Ok(found.concat())
}
