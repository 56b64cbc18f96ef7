//! The steps and phases of a device, collected part by part.

use highwater_snapshots::ids::DeviceId;
use highwater_snapshots::trace::Trace;

use crate::device_spans::{ActiveSpan, active_spans};

/// The spans of a window, their events numbered over the whole recording.
pub(crate) fn spans_of(trace: &Trace, device: DeviceId) -> Vec<ActiveSpan> {
    let start = trace.start.events;
    let mut spans = active_spans(trace, device);
    spans.iter_mut().for_each(|span| span.events = span.events.start + start..span.events.end + start);
    spans
}

/// Adds the spans of the part that follows.
pub(super) fn append(spans: &mut Vec<ActiveSpan>, more: Vec<ActiveSpan>) {
    for next in more {
        match spans.last_mut().filter(|last| (last.step, last.phase) == (next.step, next.phase)) {
            Some(last) => {
                last.events.end = next.events.end;
                last.activity = last.activity.and(next.activity);
            }
            None => spans.push(next),
        }
    }
}
