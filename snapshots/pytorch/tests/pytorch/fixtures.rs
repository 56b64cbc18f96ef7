//! Opens the recordings of `testdata`, each in its original format and as `.snap`.

use std::collections::BTreeSet;
use std::fs;

use highwater_analysis::Metric;
use highwater_snapshots::Trace;
use highwater_snapshots::event::EventKind;

use crate::compare::{differences, differences_from_pytorch};
use crate::expected::{self, File, folder};
use crate::found::{open, series, written_and_read};

/// Panics with every difference that `check` finds in any file.
fn check_all(check: impl Fn(&Trace, &File) -> Vec<String>) {
    let files = expected::all();
    let mut wrong = Vec::new();
    for (name, expected) in &files {
        let found = open(&folder().join(name)).map_or_else(|why| vec![why], |trace| check(&trace, expected));
        wrong.extend(found.into_iter().map(|what| format!("{name}: {what}")));
    }
    assert!(wrong.is_empty(), "{} differences in {} files:\n{}", wrong.len(), files.len(), wrong.join("\n"));
}

#[test]
fn every_file_gives_the_totals_peaks_and_events_that_are_in_it() {
    check_all(differences);
}

#[test]
fn peaks_are_those_that_pytorch_counted_while_it_recorded() {
    check_all(|trace, expected| {
        expected.pytorch.as_ref().map_or_else(Vec::new, |expected| differences_from_pytorch(trace, expected))
    });
}

#[test]
fn a_recording_written_as_snap_gives_the_same() {
    check_all(|trace, expected| match written_and_read(trace) {
        Ok(again) => differences(&again, expected),
        Err(why) => vec![why],
    });
}

#[test]
fn steps_and_phases_that_a_file_names_are_known_as_soon_as_it_is_read() {
    let mut with_steps = 0;
    for name in expected::all().keys() {
        let trace = open(&folder().join(name)).unwrap();
        with_steps += usize::from(!trace.spans.steps().is_empty());
        assert_eq!(written_and_read(&trace).unwrap().spans, trace.spans, "{name}");
    }
    assert!(with_steps > 0, "annotations of the fixtures name steps");
}

#[test]
fn every_recording_of_the_folder_is_expected() {
    let kinds = ["pickle", "gz", "json", "html"];
    let here = fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path());
    let recordings = here.filter(|path| path.extension().is_some_and(|kind| kinds.iter().any(|known| kind == *known)));
    let names: BTreeSet<String> =
        recordings.map(|path| path.file_name().unwrap().to_string_lossy().into_owned()).collect();
    let mut expected: BTreeSet<String> = expected::all().into_keys().collect();
    expected.insert("expected.json".to_owned());
    assert_eq!(names, expected);
}

#[test]
fn a_block_that_waits_for_another_stream_is_active_and_no_longer_allocated() {
    let trace = open(&folder().join("two_streams.pickle")).unwrap();
    let end = series(&trace, 0).end(&trace);
    assert!(end.active > end.allocated && end.allocated > end.requested, "{end:?}");
}

#[test]
fn a_failed_request_is_known_with_what_the_driver_had_left() {
    let trace = open(&folder().join("oom.pickle")).unwrap();
    let [oom] = trace.ooms[..] else { panic!("one request failed: {:?}", trace.ooms) };
    assert_eq!(oom.requested, 40 << 20);
    assert!(oom.device_free > 0);
    let observed = open(&folder().join("oom_observed.pickle")).unwrap();
    let last = observed.events.kind.iter().rposition(|kind| *kind != EventKind::Mark);
    assert_eq!(last.map(|row| observed.events.kind[row]), Some(EventKind::Oom), "nothing happened after it");
}

#[test]
fn devices_that_use_the_same_addresses_stay_apart() {
    let trace = open(&folder().join("same_addresses.pickle")).unwrap();
    let one = open(&folder().join("slack.pickle")).unwrap();
    for metric in [Metric::Requested, Metric::Allocated, Metric::Active, Metric::Reserved] {
        let alone = series(&one, 0).peak(&one, metric).0;
        assert_eq!(series(&trace, 0).peak(&trace, metric).0, alone);
        assert_eq!(series(&trace, 3).peak(&trace, metric).0, alone);
    }
}

#[test]
fn the_same_recording_says_the_same_in_every_pickle_protocol_and_as_json() {
    let expected = |name: &str| {
        let trace = open(&folder().join(name)).unwrap_or_else(|why| panic!("{name}: {why}"));
        let events: Vec<_> =
            trace.events.ids().map(|id| (trace.events.time_ns[id.0 as usize], trace.what(id))).collect();
        (events, trace.tables.stacks.len(), trace.annotations.clone(), trace.attributes.len())
    };
    let (events, stacks, annotations, attributes) = expected("pools.pickle");
    for name in [
        "protocol_2.pickle",
        "protocol_3.pickle",
        "protocol_4.pickle",
        "protocol_5.pickle",
        "optimized.pickle",
        "unshared.pickle.gz",
        "padded.pickle",
        "snapshot.json",
    ] {
        let again = expected(name);
        assert_eq!(again.0, events, "{name}");
        assert_eq!((&again.2, again.3), (&annotations, attributes), "{name}");
        assert_eq!(again.1, stacks, "{name}");
    }
}
