//! Tests recordings of other people's programs, in the folder given in `HIGHWATER_TORCH_SAMPLES`; they are not part of
//! the project.
//!
//! The folder has an `expected.json`: by file and device ordinal `events`, `allocs`, `baseline`, `requested_peak`,
//! `requested_event` (its place in the device's trace), `requested_end`, `reserved_peak`, `reserved_end`, `oom_events`.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::io::Write as _;
use std::path::Path;

use highwater_analysis::Metric;
use highwater_snapshots::event::EventKind;
use highwater_snapshots::{DeviceId, Trace};
use serde::Deserialize;

use crate::found::{count, open, series, written_and_read};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
struct Sample {
    events: usize,
    allocs: usize,
    baseline: u64,
    requested_peak: u64,
    requested_event: Option<usize>,
    requested_end: u64,
    reserved_peak: u64,
    reserved_end: u64,
    oom_events: usize,
}

fn found(trace: &Trace, ordinal: u16) -> Sample {
    let series = series(trace, ordinal);
    let device = DeviceId(ordinal);
    // Steps and phases are concluded, and no events of the file.
    let of_file = |end: usize| -> usize {
        let kinds = EventKind::ALL.iter().filter(|kind| !matches!(kind, EventKind::Step | EventKind::Phase));
        kinds.map(|kind| count(trace, device, *kind, end)).sum()
    };
    let (requested_peak, event) = series.peak(trace, Metric::Requested);
    let end = series.end(trace);
    Sample {
        events: of_file(trace.events.len()),
        allocs: count(trace, device, EventKind::Alloc, trace.events.len()),
        baseline: series.baseline().requested,
        requested_peak,
        requested_event: event.map(|event| of_file(event.0 as usize)),
        requested_end: end.requested,
        reserved_peak: series.peak(trace, Metric::Reserved).0,
        reserved_end: end.reserved,
        oom_events: count(trace, device, EventKind::Oom, trace.events.len()),
    }
}

#[test]
fn samples_of_other_people_read_as_a_second_replay_reads_them() {
    let Some(folder) = env::var_os("HIGHWATER_TORCH_SAMPLES") else {
        let _ = writeln!(std::io::stderr(), "skipped: HIGHWATER_TORCH_SAMPLES names no folder of samples");
        return;
    };
    let folder = Path::new(&folder);
    let text = fs::read_to_string(folder.join("expected.json")).expect("the folder has expected.json");
    let files: BTreeMap<String, BTreeMap<u16, Sample>> = serde_json::from_str(&text).expect("it has the form stated");
    assert!(!files.is_empty(), "the folder has samples");
    let mut wrong = Vec::new();
    for (name, devices) in &files {
        let trace = open(&folder.join(name)).unwrap_or_else(|why| panic!("{name}: {why}"));
        let again = written_and_read(&trace).unwrap_or_else(|why| panic!("{name}: {why}"));
        for (&ordinal, expected) in devices {
            for (form, trace) in [("", &trace), (" as .snap", &again)] {
                let found = found(trace, ordinal);
                if found != *expected {
                    wrong.push(format!("{name}{form}, device {ordinal}: {found:?}, expected {expected:?}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
