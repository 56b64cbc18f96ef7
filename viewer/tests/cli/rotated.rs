//! Tests that files rotated by a recorder are opened as one recording.

use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::Arc;
use std::time::Duration;

use highwater_recorder::api::{self, NewBlock};
use highwater_recorder::{DeviceId, HistoryOptions, Phase, Pool, Recording, Sink, Source, StreamId, Symbols, scope};
use highwater_snapshots::StartingState;
use highwater_snapshots::format::write_trace;
use highwater_snapshots::trace::DeviceFacts;
use serde_json::{Value, json};

use crate::binary::{highwater_with, stderr, stdout};
use crate::mcp::{answers, call};

/// A device without blocks.
struct Empty;

impl Source for Empty {
    fn facts(&self) -> DeviceFacts {
        DeviceFacts { name: "test".to_owned(), ..DeviceFacts::default() }
    }

    fn freeze(&self, read: &mut dyn FnMut(StartingState)) {
        read(StartingState::default());
    }
}

/// Trains a step of 200 blocks, of which every tenth stays live.
fn train(step: u32) {
    scope::step(step);
    let first = u64::from(step) * 200;
    for (phase, blocks) in [(Phase::Forward, first..first + 100), (Phase::Backward, first + 100..first + 200)] {
        let _phase = scope::phase(phase);
        let _op = scope::op("matmul");
        for block in blocks.clone() {
            let (address, requested) = (0x1000 * block, 1000 + block % 3000);
            let new = NewBlock { block, address, requested, allocated: 4096, stream: StreamId(0), pool: Pool::Small };
            api::alloc(DeviceId(0), &new);
        }
        blocks.filter(|block| block % 10 != 0).for_each(|block| api::free(DeviceId(0), block));
    }
}

/// Records into files in `folder`, and the same as a single file beside it; returns the files.
fn record(folder: &Path) -> Vec<PathBuf> {
    let source: Arc<dyn Source> = Arc::new(Empty);
    api::register(&source);
    let path = folder.join("run.snap");
    let options = HistoryOptions {
        sink: Sink::Both(path.clone()),
        symbols: Symbols::Never,
        flush_every: Duration::from_millis(1),
        per_rank: false,
        ..HistoryOptions::default()
    };
    let recording = Recording::start(options.rotate(2_000, None)).unwrap();
    // How many events go to a file depends on when the background thread looks.
    for step in 0.. {
        assert!(step < 5_000, "the files stay few");
        train(step);
        std::thread::sleep(Duration::from_millis(2));
        if step >= 60 && files_of(folder).len() > 10 {
            break;
        }
    }
    let trace = recording.finish().unwrap().trace.unwrap();
    std::fs::write(folder.with_extension("snap"), write_trace(Vec::new(), &trace).unwrap()).unwrap();
    files_of(folder)
}

fn files_of(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

fn json_of(output: &Output) -> Value {
    serde_json::from_str(&stdout(output)).unwrap_or_else(|why| panic!("{why}: {}", stderr(output)))
}

#[test]
fn the_files_of_a_rotation_are_opened_by_their_folder_their_pattern_or_the_path_of_the_recording() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    std::fs::create_dir(&run).unwrap();
    let files = record(&run);
    let peak = |file: &str, most| {
        let mut found = json_of(&highwater_with(folder.path(), &format!("peak {file} --by step,phase --json"), most));
        // Leaks are not searched in recordings that are read in parts.
        let groups = found["groups"].as_array_mut().unwrap();
        groups.iter_mut().for_each(|group| group["leaked_bytes"] = Value::Null);
        found
    };
    let expected = peak("run.snap", "1000000");
    for file in ["run", "run/run.snap", "'run/run.*.snap'"] {
        for most in ["1000000", "0"] {
            let found = peak(file, most);
            for key in ["bytes", "step", "phase", "groups", "rest_bytes"] {
                assert_eq!(found[key], expected[key], "{key} of {file}, at most {most} events in memory");
            }
        }
    }
    // An assistant may ask about the folder, which is listed as one recording.
    let asked = [("summary", json!({})), ("peak", json!({"file": "run", "by": "step,phase"}))];
    let lines = asked.map(|(tool, arguments)| call(tool, &arguments));
    let found = answers(folder.path(), &["."], &lines);
    assert_eq!(found[0]["result"]["structuredContent"]["recordings"], json!(["./run", "./run.snap"]));
    assert_eq!(found[1]["result"]["structuredContent"]["bytes"], expected["bytes"]);
    for question in ["info run", "phases run --json", "explain run --json", "growth run", "verify run"] {
        let [whole, parts] = ["1000000", "0"].map(|most| highwater_with(folder.path(), question, most));
        assert!(whole.status.success(), "{question}: {}", stderr(&whole));
        assert_eq!(stdout(&parts), stdout(&whole), "{question}");
    }
    #[cfg(feature = "engine")]
    for rotation in ["run", "run/run.snap"] {
        crate::top::assert_rotation_is_whole(folder.path(), rotation, "run.snap");
    }
    for file in &files[..8] {
        std::fs::remove_file(file).unwrap();
    }
    let info = highwater_with(folder.path(), "info run/run.snap", "0");
    let text = stdout(&info);
    assert!(
        text.contains("files 1 to 8 of the recording are missing: the recording begins with run.0009.snap"),
        "{text}"
    );
    let ends = ["run.snap", "run"].map(|file| {
        let info = json_of(&highwater_with(folder.path(), &format!("info {file} --json"), "1000000"));
        info["devices"][0]["end"].clone()
    });
    assert_eq!(ends[0], ends[1], "the totals are those of the whole run");
    // A single file is opened by itself.
    let one = json_of(&highwater_with(folder.path(), "info run/run.0009.snap --json", "1000000"));
    assert!(one["problems"].as_array().unwrap().is_empty(), "{one}");
}
