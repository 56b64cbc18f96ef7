//! Describes the events of an opened recording in the terms of PyTorch's files.

use std::ops::ControlFlow;
use std::path::Path;

use highwater_analysis::Series;
use highwater_pytorch::open::open_file;
use highwater_snapshots::event::EventKind;
use highwater_snapshots::format::{read_bytes, write_trace};
use highwater_snapshots::{DeviceId, EventId, StringId, Trace};

/// Opens the file; tells why not, should that fail.
pub(crate) fn open(path: &Path) -> Result<Trace, String> {
    let opened = open_file(path, &mut |_| ControlFlow::Continue(()));
    opened.map(|opened| opened.trace).map_err(|error| format!("does not open: {error}"))
}

/// The same recording once it was written as `.snap` and read again.
pub(crate) fn written_and_read(trace: &Trace) -> Result<Trace, String> {
    let bytes = write_trace(Vec::new(), trace).map_err(|error| format!("cannot be written: {error}"))?;
    read_bytes(&bytes).map_err(|error| format!("what was written cannot be read: {error}"))
}

/// How many events of a kind a device has before position `end`.
pub(crate) fn count(trace: &Trace, device: DeviceId, kind: EventKind, end: usize) -> usize {
    let events = trace.events.kind.iter().zip(&trace.events.device).take(end);
    events.filter(|(this, at)| **this == kind && **at == device).count()
}

/// Function, file and line of an event's frames, innermost first.
pub(crate) fn frames(trace: &Trace, event: EventId) -> Vec<(String, String, u32)> {
    let tables = &trace.tables;
    let text = |id: StringId| tables.string(id).to_owned();
    let Some(stack) = event.index().and_then(|row| trace.events.stack.get(row)) else { return Vec::new() };
    let lines = tables.stack_frames(*stack).flat_map(|frame| tables.frame_lines(frame));
    lines.map(|line| (text(line.function), text(line.file), line.line)).collect()
}

/// The totals of a device.
pub(crate) fn series(trace: &Trace, ordinal: u16) -> Series {
    Series::build(trace, DeviceId(ordinal))
}
