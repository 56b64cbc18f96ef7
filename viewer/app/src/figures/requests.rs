//! Sentences about failed requests, for the command line and the app.

use highwater_analysis::{FailedRequest, LeadingFrame, leading_frame};
use highwater_snapshots::{StackId, Trace, format_bytes, format_bytes_apart};

use super::moment::at_event;
use crate::answers::oom_analysis::{OomAnalysis, full_percent};
use crate::answers::request_failure::RequestFailure;

/// Formats a request made at `stack`, such as `512 MiB requested by matmul of net.fc`, or `512 MiB requested at
/// train.py:12 step` if the operation is unknown.
pub fn requested(trace: &Trace, case: &OomAnalysis, stack: StackId) -> String {
    let by = match (case.by(), leading_frame(&trace.tables, stack)) {
        (by, Some(frame)) if by.is_empty() => format!(" at {}", source_line(trace, frame)),
        (by, _) => by,
    };
    format!("{} requested{by}", format_bytes(case.request.requested))
}

/// Formats a failed request as a clause, such as `1 GiB requested with 5 MiB free on the device, at event 7`.
pub fn failure_text(failure: &RequestFailure) -> String {
    let [requested, free] = format_bytes_apart([failure.requested, failure.device_free]);
    let when = at_event(failure.number, failure.step, failure.phase);
    format!("{requested} requested with {free} free on the device, {when}")
}

/// Describes the free memory, such as `5 MiB free on the device, 2 GiB free in segments, at most 20 MiB in one range of
/// its pool`. If the sum of both would suffice, the text names fragmentation, unless live blocks fill the device or a
/// range is large enough.
pub(crate) fn free_text(request: &FailedRequest) -> String {
    let is_full = full_percent(request.allocated, request.device_free.saturating_add(request.reserved)).is_some();
    let in_segments = request.free_in_pool + request.free_elsewhere;
    let [device, segments] = [request.device_free, in_segments].map(format_bytes);
    let most = request.holes.first().map_or(0, |hole| hole.bytes);
    let is_close = in_segments >= request.requested;
    let range =
        if is_close { format!(", at most {} in one range of its pool", format_bytes(most)) } else { String::new() };
    let enough = request.device_free.saturating_add(in_segments);
    let is_enough = (request.device_free + 1..=enough).contains(&request.requested);
    match !is_full && request.lacking() > 0 && is_enough {
        true => format!("Probably fragmentation: {device} free on the device and {segments} in segments{range}"),
        false => format!("{device} free on the device, {segments} free in segments{range}"),
    }
}

/// Formats the stream, such as `on stream 3`, or `probably on stream 3` if guessed. `None` if unknown.
pub fn stream_text(request: &FailedRequest) -> Option<String> {
    let probably = if request.stream_is_guessed { "probably " } else { "" };
    request.stream.map(|stream| format!("{probably}on stream {}", stream.0))
}

/// Formats a source line without the folders of its file, such as `train.py:12 step`.
pub(super) fn source_line(trace: &Trace, frame: LeadingFrame) -> String {
    let Some(line) = frame.line() else { return frame.text(&trace.tables) };
    let [function, file] = [line.function, line.file].map(|text| trace.tables.string(text));
    let file = file.rsplit(['/', '\\']).next().unwrap_or_default();
    if file.is_empty() { function.to_owned() } else { format!("{file}:{} {function}", line.line) }
}

#[cfg(test)]
mod tests {
    use highwater_notation::trace_from_text;
    use highwater_snapshots::DeviceId;

    use super::*;
    use crate::Recording;

    #[test]
    fn what_was_free_names_fragmentation_where_both_would_be_enough_and_the_largest_range_where_segments_would() {
        let text = |freed: [&str; 2], oom: &str| {
            let blocks: String = "abcde".chars().map(|name| format!("alloc {name} 4194304\n")).collect();
            let text = format!(
                "segment_alloc 0x200000 20971520\n{blocks}{}oom {oom}\n",
                freed.map(|name| format!("free {name}\n")).concat()
            );
            let recording = Recording::new("test", None, trace_from_text(&text).unwrap());
            let (trace, index) = (&recording.trace, &recording.devices[0]);
            let event = RequestFailure::all(trace, DeviceId(0)).next().unwrap().event;
            let addresses = index.addresses(trace);
            free_text(&FailedRequest::of(trace, addresses, &index.live, &index.series, event).unwrap())
        };
        let fragmented = "Probably fragmentation: 3 KiB free on the device and 8 MiB in segments, at most 4 MiB in one \
                          range of its pool";
        assert_eq!(text(["a", "c"], "8388608 free=3072"), fragmented);
        assert_eq!(text(["a", "c"], "16777216 free=0"), "0 B free on the device, 8 MiB free in segments");
        let large_enough = "3 KiB free on the device, 12 MiB free in segments, at most 8 MiB in one range of its pool";
        assert_eq!(text(["c", "d"], "6291456 free=3072"), large_enough);
        let of_other_pool = "Probably fragmentation: 0 B free on the device and 8 MiB in segments, at most 0 B in one \
                             range of its pool";
        assert_eq!(text(["a", "c"], "512 free=0"), of_other_pool);
    }

    #[test]
    fn a_failed_request_shows_its_size_and_what_was_free() {
        let trace = trace_from_text("alloc a 1024\noom 4947181568 free=4945084416\noom 4096 free=0\n").unwrap();
        let texts: Vec<String> = RequestFailure::all(&trace, DeviceId(0)).map(|one| failure_text(&one)).collect();
        assert_eq!(
            texts,
            [
                "4718 MiB requested with 4716 MiB free on the device, at event 1",
                "4 KiB requested with 0 B free on the device, at event 2"
            ]
        );
    }
}
