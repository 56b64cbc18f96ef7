//! Test helpers that record parts of tests and format their events.

use highwater_recorder::snapshots::Trace;
use highwater_recorder::snapshots::event::What;
use highwater_recorder::snapshots::units::format_bytes;
use highwater_recorder::{DeviceId, HistoryOptions, Level, record_memory_history};

/// The recording of `body`.
pub(crate) fn record(body: impl FnOnce()) -> Trace {
    let options = HistoryOptions::in_memory().level(Level::Events);
    let recorded = record_memory_history(options, || {
        body();
        Ok(())
    });
    let trace = recorded.expect("recording in memory works").trace.expect("the trace was wanted");
    assert_eq!(trace.problems, []);
    trace
}

/// One line for each event of a device's memory, without addresses, its blocks numbered in order.
pub(crate) fn lines(trace: &Trace, device: DeviceId) -> String {
    let (mut out, mut known) = (String::new(), Vec::new());
    let mut number = |block: u64| {
        known.iter().position(|&known| known == block).unwrap_or_else(|| {
            known.push(block);
            known.len() - 1
        })
    };
    for id in trace.events.ids().filter(|&id| trace.events.device[id.index().expect("an event")] == device) {
        let what = trace.what(id);
        let text = match what {
            What::DeviceUsed(_) | What::Phase(_) | What::Step(_) => continue,
            What::SegmentAlloc(range)
            | What::SegmentFree(range)
            | What::SegmentMap(range)
            | What::SegmentUnmap(range) => {
                format!("{} for stream {}", format_bytes(range.bytes), range.stream.0)
            }
            What::Alloc(alloc) => {
                format!("{} {} for stream {}", number(alloc.block), format_bytes(alloc.requested), alloc.stream.0)
            }
            What::FreeRequested(block) | What::FreeCompleted(block) => number(block).to_string(),
            What::Oom(oom) => format!("{}, {} free", format_bytes(oom.requested), format_bytes(oom.device_free)),
            _ => String::new(),
        };
        out.push_str(format!("{} {text}", what.kind().name()).trim_end());
        out.push('\n');
    }
    out
}

/// Each sample of the memory in use on a device, with the bytes that the allocator had reserved by then.
pub(crate) fn samples(trace: &Trace, device: DeviceId) -> Vec<(u64, u64)> {
    let (mut reserved, mut found) = (0, Vec::new());
    for id in trace.events.ids().filter(|&id| trace.events.device[id.index().expect("an event")] == device) {
        match trace.what(id) {
            What::SegmentAlloc(range) | What::SegmentMap(range) => reserved += range.bytes,
            What::SegmentFree(range) | What::SegmentUnmap(range) => reserved -= range.bytes,
            What::DeviceUsed(bytes) => found.push((bytes, reserved)),
            _ => {}
        }
    }
    found
}
