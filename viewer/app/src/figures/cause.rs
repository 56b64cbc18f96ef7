//! Sentences about the cause of a peak and of a failed request.

use highwater_analysis::{Leaks, Moment, PeakCause, leading_frame};
use highwater_snapshots::line_text::{shorten_line, unique_suffixes};
use highwater_snapshots::{Category, Trace, count_of, format_bytes, format_share};

use crate::answers::request_failure::RequestFailure;
use crate::figures::requests::source_line;

/// Maximum length of an operation or line.
const MAX_NAME: usize = 40;

/// Describes the cause of `peak`: in one line the main cause, unless leaked blocks have at least as many bytes, and in
/// another the leaked blocks. `None` if neither is known.
pub(crate) fn cause_text(
    trace: &Trace,
    peak: &Moment,
    cause: Option<&PeakCause>,
    leaked: Option<(&Leaks, u64)>,
) -> Option<String> {
    let leak = leaked.map(|(leaks, bytes)| leak_text(leaks, bytes, peak.bytes));
    let is_larger = |cause: &&PeakCause| leaked.is_none_or(|(_, bytes)| cause.bytes > bytes);
    let rise = cause.filter(is_larger).map(|cause| rise_text(trace, peak, cause));
    let lines: Vec<String> = rise.into_iter().chain(leak).collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}

/// Formats leaks, such as `+48 MiB a step leaked by 3 lines, 336 MiB (59%) so far, most by train.py:14 forward`.
fn leak_text(leaks: &Leaks, bytes: u64, peak: u64) -> String {
    let names = unique_suffixes(&leaks.lines.iter().map(|leak| leak.line.as_str()).collect::<Vec<_>>());
    let first = names.first().map(|name| shorten_line(name, MAX_NAME)).unwrap_or_default();
    let (by, most) = match names.len() {
        ..2 => (first.into_owned(), String::new()),
        count => (count_of(count as u64, "line"), format!(", most by {first}")),
    };
    let (rate, bytes, share) = (leaks.rate(), format_bytes(bytes), format_share(bytes, peak));
    format!("+{rate} leaked by {by}, {bytes} ({share}) so far{most}")
}

/// Formats the main cause of a peak, such as `2.87 GiB allocated in this step: activation from forward (mostly linear)`.
/// For blocks that are older than the peak's step, gives their share of the peak.
fn rise_text(trace: &Trace, peak: &Moment, cause: &PeakCause) -> String {
    let bytes = format_bytes(cause.bytes);
    let amount = match peak.step {
        _ if !cause.is_rise => format!("{bytes} ({}) of the peak", format_share(cause.bytes, peak.bytes)),
        Some(_) => format!("{bytes} allocated in this step"),
        None => format!("{bytes} allocated in the recording"),
    };
    let by = cause.allocated_by.as_ref().map(|by| shorten_line(by, MAX_NAME));
    let name = cause.cause.name();
    let mostly = if cause.is_by_one { "" } else { "mostly " };
    match (by, trace.trust.categories_guessed) {
        // A line is more informative than an unknown category.
        (Some(by), _) if cause.cause.category == Category::Unknown && cause.is_by_one => format!("{amount} by {by}"),
        (Some(by), _) if cause.cause.category == Category::Unknown => format!("{amount}, mostly by {by}"),
        (Some(by), true) => format!("{amount}: {name} (guess; {mostly}{by})"),
        (Some(by), false) => format!("{amount}: {name} ({mostly}{by})"),
        (None, true) if cause.cause.category != Category::Unknown => format!("{amount}: {name} (guess)"),
        (None, _) => format!("{amount}: {name}"),
    }
}

/// Formats a failed request, such as `Out of memory: 157.53 MiB requested by adam.state`, with the source line if the
/// operation is unknown.
pub(crate) fn failure_title(trace: &Trace, failure: &RequestFailure) -> String {
    let row = failure.event.index();
    let oom = row.and_then(|row| trace.ooms.get(trace.events.subject[row] as usize));
    let line = row.and_then(|row| leading_frame(&trace.tables, trace.events.stack[row]));
    let by = match (oom.map_or("", |oom| trace.tables.op_name(oom.op)), line) {
        ("", None) => String::new(),
        ("", Some(frame)) => format!(" at {}", shorten_line(&source_line(trace, frame), MAX_NAME)),
        (op, _) => format!(" by {}", shorten_line(op, MAX_NAME)),
    };
    format!("Out of memory: {} requested{by}", format_bytes(failure.requested))
}

#[cfg(test)]
mod tests {
    use highwater_analysis::Metric;
    use highwater_notation::trace_from_text;
    use highwater_snapshots::DeviceId;

    use super::*;
    use crate::Recording;

    fn cause(text: &str) -> Option<String> {
        let recording = Recording::new("test", None, trace_from_text(text).unwrap());
        let (index, trace) = (&recording.devices[0], &recording.trace);
        let _ = index.leaks(&recording.source);
        let peak = index.peak(trace, Metric::Requested);
        let leaked = index.leaked(trace, Metric::Requested);
        cause_text(trace, &peak, index.cause(&recording.source, Metric::Requested), leaked)
    }

    #[test]
    fn a_cause_states_what_its_bytes_are_relative_to() {
        let of_step = "baseline w 900 parameter\nstep 0\nphase forward\nalloc a 500 activation #linear";
        let text = "500 B allocated in this step: activation from forward (linear)";
        assert_eq!(cause(of_step).as_deref(), Some(text));
        let text = "500 B allocated in the recording: activation (linear)";
        assert_eq!(cause("baseline w 9 parameter\nalloc a 500 activation #linear").as_deref(), Some(text));
        let text = "500 B allocated in this step: activation from forward (mostly linear)";
        let of_two = of_step.replace("500 activation #linear", "400 activation #linear\nalloc b 100 activation #add");
        assert_eq!(cause(&of_two).as_deref(), Some(text));
        let text = "300 B (100%) of the peak: parameter from before the recording";
        assert_eq!(cause("baseline w 300 parameter\nphase forward\nfree w").as_deref(), Some(text));
        let mostly = format!("{of_step} < f\nalloc b 400 activation #gelu");
        let text = "900 B allocated in this step: activation from forward (mostly linear)";
        assert_eq!(cause(&mostly).as_deref(), Some(text));
        let text = "9 B allocated in the recording, mostly by step";
        assert_eq!(cause("alloc a 5 < step\nalloc b 4 < other").as_deref(), Some(text));
        assert_eq!(cause("alloc a 5 < step").as_deref(), Some("5 B allocated in the recording by step"));
        assert_eq!(cause(""), None);
    }

    #[test]
    fn a_leak_is_the_cause_with_its_bytes_at_the_peak_and_what_is_larger_leads() {
        let steps = |bytes: u32| -> String {
            let step = |n: u32| {
                format!("step {n}\nalloc k{n} 10 < cache < main\nalloc t{n} {bytes} activation < f < main\nfree t{n}\n")
            };
            (0..5).map(step).collect()
        };
        assert_eq!(cause(&steps(20)).as_deref(), Some("+10 B a step leaked by cache, 50 B (71%) so far"));
        let text = "60 B allocated in this step: activation outside all phases (f)\n+10 B a step leaked by cache, 50 B (45%) so far";
        assert_eq!(cause(&steps(60)).as_deref(), Some(text));
    }

    #[test]
    fn a_failed_request_names_the_operation_or_the_line() {
        let title = |text: &str| {
            let trace = trace_from_text(text).unwrap();
            let failure = RequestFailure::all(&trace, DeviceId(0)).next().unwrap();
            failure_title(&trace, &failure)
        };
        assert_eq!(title("oom 4096 free=0 #matmul < step"), "Out of memory: 4 KiB requested by matmul");
        assert_eq!(title("oom 4096 free=0 < step"), "Out of memory: 4 KiB requested at step");
        assert_eq!(title("oom 4096 free=0"), "Out of memory: 4 KiB requested");
    }
}
