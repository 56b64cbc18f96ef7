//! Golden: files of every format version, kept and read for ever.
//!
//! `UPDATE_GOLDEN=1 cargo test -p highwater-snapshots --test format golden` writes the texts anew, and a recording
//! where there is none yet. A recording that is there is never written again.

use std::fs;
use std::path::{Path, PathBuf};

use highwater_snapshots::format::{read_bytes, read_file};

use crate::made::{described, write_step};
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

fn of_earlier_versions() -> Vec<u8> {
    panic!("recordings of earlier versions cannot be made any more: take the file from the history")
}
