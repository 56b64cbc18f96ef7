//! Tests the files and messages of `highwater join`.

use highwater_notation::trace_from_text;
use highwater_snapshots::format::{read_file, write_trace};
use highwater_snapshots::trace::{DeviceFacts, Header};
use serde_json::{Value, json};

use crate::binary::{folder, highwater, names, refused, stderr, stdout};
use crate::sample::trace;

/// A folder with `step.snap`, and what the driver did meanwhile in `driver.snap`.
fn both() -> tempfile::TempDir {
    let (folder, _) = folder();
    let text = "baseline_segment 0x0 4194304\nalloc d 2097152 t=2us < cudaMalloc < main\nstep 3\nalloc e 512 t=9us < cudaMalloc < main\nfree e t=11us\n";
    let started_unix_us = trace().header.started_unix_us;
    let driver = trace_from_text(text).unwrap().edited(|driver| {
        driver.header = Header { recorder: "highwater 0.1.0".into(), started_unix_us, ..Header::default() };
        driver.devices = vec![DeviceFacts { name: "cuda:0".into(), ..DeviceFacts::default() }];
    });
    std::fs::write(folder.path().join("driver.snap"), write_trace(Vec::new(), &driver).unwrap()).unwrap();
    folder
}

fn figures(folder: &std::path::Path, words: &str) -> Value {
    let output = highwater(folder, words);
    assert_eq!(output.status.code(), Some(0), "{words}: {}", stderr(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn two_recordings_become_one_with_a_device_for_each() {
    let folder = both();
    let alone = |file: &str| figures(folder.path(), &format!("info {file} --json"))["devices"][0]["peaks"].clone();
    let joined = figures(folder.path(), "join step.snap driver.snap --out both.snap --json");
    assert_eq!((&joined["events"], &joined["file"]), (&(22 + 4).into(), &"both.snap".into()));
    let [own, driver] = &joined["devices"].as_array().unwrap()[..] else { panic!("{joined}") };
    assert_eq!(
        (&own["device"], &own["name"], &own["file"]),
        (&0.into(), &"accounting (step)".into(), &"step.snap".into())
    );
    assert_eq!((&driver["device"], &driver["name"], &driver["was"]), (&1.into(), &"cuda:0 (driver)".into(), &0.into()));
    assert_eq!(driver["blocks"], 2);
    assert_eq!(own["peak_requested"], alone("step.snap")["requested"]["bytes"]);
    assert_eq!(own["peak_reserved"], alone("step.snap")["reserved"]["bytes"]);
    assert_eq!(driver["peak_requested"], alone("driver.snap")["requested"]["bytes"]);
    assert_eq!(joined["lost"], json!(["1 step of driver: steps and phases are taken from step"]));
    assert_eq!(joined["warnings"], json!([]));
    let trace = read_file(&folder.path().join("both.snap")).unwrap();
    assert!(trace.events.time_ns.is_sorted());
    let verify = highwater(folder.path(), "verify both.snap");
    assert_eq!(verify.status.code(), Some(0), "{}", stdout(&verify));
}

#[test]
fn the_answer_shows_which_device_is_which_and_what_is_left_out() {
    let folder = both();
    let output = highwater(folder.path(), "join step.snap driver.snap --out both.snap --offset 3600");
    // The size of a file depends on the compressor, and with it the width of columns.
    let text = stdout(&output).split(' ').filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
    assert!(text.starts_with("Wrote both.snap ("), "{text}{}", stderr(&output));
    for told in [
        "27 events of 2 recordings on one time axis.",
        "cuda:0 (driver) driver.snap",
        "Lost: 1 step of driver: steps and phases are taken from step.",
        "Times: driver begins 3600.000 s after step ends",
        "Next: highwater info both.snap for the peaks of all devices",
    ] {
        assert!(text.contains(told), "{told}: {text}");
    }
}

#[test]
fn a_snapshot_of_pytorch_is_joined_as_any_other() {
    let folder = both();
    let text = r#"{"segments": [], "device_traces": [[
        {"action": "alloc", "addr": 4194304, "size": 1000, "stream": 0, "time_us": 1767225600000005,
         "frames": [{"name": "forward", "filename": "net.py", "line": 7}]}]]}"#;
    std::fs::write(folder.path().join("net.json"), text).unwrap();
    let joined = figures(folder.path(), "join net.json driver.snap --out both.pickle --json");
    assert_eq!(joined["devices"].as_array().unwrap().len(), 2);
    assert_eq!(joined["devices"][0]["peak_requested"], 1000);
    let peak = stdout(&highwater(folder.path(), "peak both.pickle --device 0 --by frame"));
    assert!(peak.contains("net.py:7"), "{peak}");
}

#[test]
fn what_cannot_be_joined_is_refused_before_anything_is_written() {
    let folder = both();
    std::fs::write(folder.path().join("text"), "hello").unwrap();
    let before = names(folder.path());
    let cases = [
        ("join step.snap --out both.snap", "2 values"),
        ("join step.snap driver.snap", "--out"),
        ("join step.snap ./step.snap --out both.snap", "given twice"),
        ("join step.snap driver.snap --out driver.snap", "the same file"),
        ("join step.snap driver.snap --out both.csv", ".csv"),
        ("join step.snap text --out both.snap", "not a recording"),
        ("join step.snap driver.snap --out both.snap --offset soon", "a number such as 2, -0.25"),
        ("join step.snap driver.snap --out both.snap --offset 1 --offset 2", "too many --offset: 2 for 2 recordings"),
    ];
    for (words, words_in_it) in cases {
        refused(folder.path(), words, words_in_it);
    }
    assert_eq!(names(folder.path()), before);
}
