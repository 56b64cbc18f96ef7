//! Tests that files of every format version can still be read.
//!
//! `UPDATE_GOLDEN=1 cargo test -p highwater-snapshots --test format golden` writes the texts anew, and a recording
//! where there is none yet. A recording that is there is never written again.

use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use highwater_snapshots::Phase;
use highwater_snapshots::event::{Event, What};
use highwater_snapshots::format::{
    EndFacts, Index, SectionKind, SnapWriter, Windows, count_steps, read_bytes, read_file,
};
use highwater_snapshots::ids::{DeviceId, StackId};
use highwater_snapshots::trace::{Header, SourceText};

use crate::made::{described, write_step, write_summarized_step};
use crate::strange::whole;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/v1")
}

/// Reads the recording `name` and compares it with its text; `made` gives its bytes should there be none.
fn check(name: &str, made: impl Fn() -> Vec<u8>) {
    let recording = folder().join(format!("{name}.snap"));
    let text = folder().join(format!("{name}.txt"));
    let update = std::env::var_os("UPDATE_GOLDEN").is_some();
    if update && !recording.exists() {
        fs::create_dir_all(folder()).unwrap();
        fs::write(&recording, made()).unwrap();
    }
    let trace = read_file(&recording).unwrap();
    let found = described(&trace);
    if update {
        fs::write(&text, &found).unwrap();
    }
    let expected = fs::read_to_string(&text).unwrap();
    assert_eq!(found, expected, "{} no longer reads as its text says", recording.display());
    let mapped_and_read = whole(&read_bytes(&fs::read(&recording).unwrap()).unwrap());
    assert_eq!(mapped_and_read, whole(&trace));
}

#[test]
fn a_finished_recording_of_version_1_reads_as_ever() {
    check("step", of_earlier_versions);
}

#[test]
fn an_unfinished_recording_of_version_1_reads_as_ever() {
    check("unfinished", of_earlier_versions);
}

#[test]
fn a_recording_of_version_1_1_with_annotations_and_attributes_reads_as_ever() {
    check("annotated", of_earlier_versions);
}

#[test]
fn a_recording_of_version_1_2_with_uses_reads_as_ever() {
    check("used", || write_step(true));
}

#[test]
fn a_recording_of_version_1_4_with_summaries_reads_as_ever() {
    check("summarized", of_earlier_versions);
    let windows = summarized("summarized");
    assert!(windows.summaries().iter().all(|row| row.step_activity.is_none()));
}

#[test]
fn a_recording_of_version_1_5_with_step_activity_reads_as_ever() {
    check("step_activity", write_summarized_step);
    let windows = summarized("step_activity");
    assert_eq!(count_steps(windows.summaries(), &windows.device_ids()), Some(vec![1, 1]));
}

#[test]
fn a_recording_of_version_1_6_with_an_evaluation_reads_as_ever() {
    check("evaluation", || {
        let event = |time_ns, what| Event { time_ns, device: DeviceId(0), stack: StackId::NONE, what };
        let phases = [Phase::Forward, Phase::Eval, Phase::Other].map(What::Phase);
        let events: Vec<Event> =
            [What::Step(0)].into_iter().chain(phases).zip(0..).map(|(what, at)| event(at, what)).collect();
        let mut writer = SnapWriter::new(Vec::new(), &Header::default()).unwrap();
        writer.write_events(&events).unwrap();
        writer.finish(&EndFacts::default()).unwrap()
    });
}

#[test]
fn a_recording_of_version_1_8_with_sources_reads_as_ever() {
    check("sources", || {
        let source = |path: &str, text: &str| SourceText { path: path.to_owned(), text: text.to_owned() };
        let mut writer = SnapWriter::new(Vec::new(), &Header::default()).unwrap();
        writer.append_sources(&[source("/net.py", "import torch\n"), source("/empty.py", "")]).unwrap();
        writer.finish(&EndFacts::default()).unwrap()
    });
}

/// Opens a recording that has summaries, to be read in parts.
fn summarized(name: &str) -> Windows {
    let bytes: Arc<[u8]> = fs::read(folder().join(format!("{name}.snap"))).unwrap().into();
    let index = Index::from_bytes(&bytes).unwrap();
    let of_kind = |kind: SectionKind| index.rows.iter().filter(|row| row.kind == kind.code()).count();
    assert!(of_kind(SectionKind::Summaries) > 2 && of_kind(SectionKind::Checkpoint) > 2);
    let (store, mut watch) = ((), |_| ControlFlow::Continue(()));
    let windows = Windows::open_files(vec![(String::new(), Arc::new(Arc::clone(&bytes)))], &store, &mut watch).unwrap();
    assert_eq!(described(&windows.whole().unwrap()), described(&read_bytes(&bytes).unwrap()));
    windows
}

fn of_earlier_versions() -> Vec<u8> {
    panic!("recordings of earlier versions cannot be made any more: take the file from the history")
}
