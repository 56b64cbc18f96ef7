//! Encodes events in Chrome's [Trace Event
//! Format](https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU).

use std::io::{self, Write};

use serde::Serialize;

use super::kineto::KinetoTrace;
use super::output::{Encoding, What};
use super::tracks::Track;

/// The start of a file, before its first event.
pub(super) const START: &[u8] = br#"{"displayTimeUnit":"ms","traceEvents":[{"ph":"M","pid":2000000000,"tid":0,"name":"process_name","args":{"name":"Memory"}}"#;

/// The process id of tracks without a device. Higher ids are those of devices. All are above the ids of real processes
/// and of a profiler's devices.
const PROCESS: u32 = 2_000_000_000;

#[derive(Serialize)]
struct Event<'a> {
    ph: &'a str,
    pid: u32,
    tid: u64,
    /// Time in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    ts: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    /// The scope of an instant event: `p` for its process.
    #[serde(skip_serializing_if = "Option::is_none")]
    s: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    args: Option<Arguments<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum Arguments<'a> {
    Name(&'a str),
    Bytes(u64),
    SortIndex(u64),
}

/// The encoding of events as JSON, each after a comma.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chrome {
    /// The recording's origin on the clock of the file, in nanoseconds.
    pub(super) offset_ns: i64,
}

fn push(bytes: &mut Vec<u8>, event: &Event<'_>) {
    bytes.extend_from_slice(b",\n");
    // Writing to a vector does not fail.
    let _ = serde_json::to_writer(bytes, event);
}

fn process(track: Track) -> u32 {
    track.device().map_or(PROCESS, |device| PROCESS + 1 + u32::from(device.0))
}

fn thread(track: Track) -> u64 {
    if track.device().is_some() { 0 } else { track.id() }
}

fn counter_name(track: Track) -> String {
    match track {
        Track::Live(_, category) => format!("live {category}"),
        track => track.name().to_owned(),
    }
}

impl Encoding for Chrome {
    fn describe(self, bytes: &mut Vec<u8>, track: Track, name: &str) {
        if track.is_counter() {
            // The events of a counter name it.
            return;
        }
        let (of, pid, tid) =
            (if track.device().is_some() { "process" } else { "thread" }, process(track), thread(track));
        for (what, args) in [("name", Arguments::Name(name)), ("sort_index", Arguments::SortIndex(track.id()))] {
            let name = format!("{of}_{what}");
            push(bytes, &Event { ph: "M", pid, tid, ts: None, name: Some(&name), s: None, args: Some(args) });
        }
    }

    fn event(self, bytes: &mut Vec<u8>, time_ns: u64, track: Track, what: What<'_>) {
        let ts = Some((time_ns as i64).saturating_add(self.offset_ns) as f64 / 1000.0);
        let (pid, tid) = (process(track), thread(track));
        let counter = counter_name(track);
        let (ph, name, s, args) = match what {
            What::Begin(name) => ("B", Some(name), None, None),
            What::End => ("E", None, None, None),
            What::Instant(name) => ("i", Some(name), Some("p"), None),
            What::Count(value) => ("C", Some(&*counter), None, Some(Arguments::Bytes(value))),
        };
        push(bytes, &Event { ph, pid, tid, ts, name, s, args });
    }
}

/// Ends a file, after adding the events and members of `beside`.
pub(super) fn finish(out: &mut dyn Write, beside: Option<&KinetoTrace>) -> io::Result<()> {
    match beside {
        Some(trace) => trace.write_rest(out),
        None => out.write_all(b"]}"),
    }
}
