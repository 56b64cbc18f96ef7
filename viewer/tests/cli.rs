//! Command line: what each command prints of a small recording, and what the binary says to bad input.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use clap::Parser as _;
use expect_test::{Expect, expect};
use highwater::args::{self, Arguments};
use highwater::cli::events::EventsListing;
use highwater::cli::info::InfoReport;
use highwater::cli::outcome::Failure;
use highwater::cli::page::Page;
use highwater::cli::peak::PeakReport;
use highwater::cli::phases::PhasesReport;
use highwater::cli::recording::{Format, Recording, keep_only};
use highwater::cli::verify::VerifyReport;
use highwater_snapshots::format::write_trace;
use highwater_snapshots::text::trace_from_text;
use highwater_snapshots::trace::{DeviceFacts, Header};
use highwater_snapshots::{DeviceId, Problem, Trace};
use serde_json::Value;

/// One step and a half of a net with one layer; the peak is in the optimizer.
const STEP: &str = "
baseline w 4096/4096 parameter @layer
baseline_segment 0x0 2097152
step 0
phase forward
alloc x 1000/1024 input < load < main
alloc a 3000/3072 activation #linear @layer < forward < train < main
phase backward
alloc g 4096 gradient #linear @layer < backward < train < main
free a
phase optimizer
segment_alloc 0x200000 2097152
alloc m 8192 optimizer_state @layer < step < train < main
alloc t 4096 temporary < step < train < main
free t
free x
phase zero_grad
free g
step 1
mark half of a step
alloc x2 1000/1024 input stream=3
";

fn trace() -> Trace {
    let mut trace = trace_from_text(STEP).unwrap();
    trace.header = Header {
        recorder: "highwater 0.1.0".into(),
        program: "train".into(),
        host: "box".into(),
        pid: 42,
        rank: Some(1),
        world_size: Some(8),
        started_unix_us: 1_767_225_600_000_000,
        clock: "monotonic".into(),
        level: "stacks".into(),
        ..Header::default()
    };
    trace.devices = vec![DeviceFacts {
        device: DeviceId(0),
        name: "accounting".into(),
        capacity_bytes: 8 << 20,
        driver: "meta".into(),
        settings: vec![("expandable_segments".into(), "False".into())],
    }];
    trace
}

/// What the command `words` prints of `trace`.
fn answer(trace: Trace, words: &str) -> Result<String, Failure> {
    let words = shell_words(words);
    let arguments = Arguments::try_parse_from(["highwater".to_owned()].into_iter().chain(words))
        .expect("good usage");
    let mut recording = Recording {
        format: Format::Snap,
        trace,
    };
    let mut out = Vec::new();
    let page = &mut Page::plain(&mut out);
    match arguments.command.expect("a command") {
        args::Command::Info(arguments) => {
            keep_only(&mut recording.trace, &arguments.blocks.filter.filter);
            let report = InfoReport::of(&recording, &arguments)?;
            if arguments.source.json {
                page.json(&report.figures())?
            } else {
                report.print(page)?
            }
        }
        args::Command::Peak(arguments) => {
            let report = PeakReport::of(&recording.trace, &arguments)?;
            if arguments.source.json {
                page.json(&report.figures())?
            } else {
                report.print(page)?
            }
        }
        args::Command::Phases(arguments) => {
            keep_only(&mut recording.trace, &arguments.blocks.filter.filter);
            let report = PhasesReport::of(&recording.trace, &arguments)?;
            if arguments.source.json {
                page.json(&report.figures())?
            } else {
                report.print(page)?
            }
        }
        args::Command::Events(arguments) => {
            let listing = EventsListing::of(&mut recording.trace, &arguments)?;
            if arguments.source.json {
                listing.write_json(page)?
            } else {
                listing.print(page)?
            }
        }
        args::Command::Verify(arguments) => {
            let report = VerifyReport::of(&recording.trace);
            if arguments.source.json {
                page.json(&report)?
            } else {
                report.print(&arguments.source.file, page)?
            }
        }
        args::Command::Record(_) => panic!("recording is tested with the engine"),
    }
    Ok(String::from_utf8(out).unwrap())
}

/// Words between spaces, with what stands in single quotes kept together.
fn shell_words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (position, part) in text.split('\'').enumerate() {
        match position % 2 {
            0 => words.extend(part.split_whitespace().map(str::to_owned)),
            _ => words.push(part.to_owned()),
        }
    }
    words
}

fn check(words: &str, expected: &Expect) {
    expected.assert_eq(&answer(trace(), words).unwrap());
}

fn json(trace: Trace, words: &str) -> Value {
    serde_json::from_str(&answer(trace, words).unwrap()).unwrap()
}

#[test]
fn info_says_what_is_in_a_recording() {
    check(
        "info step.snap",
        &expect![[r#"
            Peak: 20.98 KiB requested, at event 11, step 0, optimizer.

              file       step.snap (snap, level stacks)
              recorder   highwater 0.1.0
              program    train, process 42, on box
              rank       1 of 8
              started    2026-01-01 00:00:00 UTC, monotonic clock
              events     22, over 19.0 µs

            Device 0: accounting, 8 MiB, meta
              settings   expandable_segments=False
              counts     2 steps, 15 events, 6 allocs, 4 frees, 2 segments
              baseline   4 KiB requested before the first event

              total           peak  of device  at event  step  phase            end  what it counts
              requested  20.98 KiB      0.3 %        11     0  optimizer  12.98 KiB  bytes asked for by live blocks
              allocated     21 KiB      0.3 %        11     0  optimizer     13 KiB  the same, rounded by the allocator
              active        21 KiB      0.3 %        11     0  optimizer     13 KiB  with blocks that wait for a stream
              reserved       4 MiB     50.0 %         9     0  optimizer      4 MiB  held from the driver

            Complete: nothing was lost, inferred or guessed.

            Next: highwater peak step.snap   for who holds memory at the peak
        "#]],
    );
}

#[test]
fn peak_names_who_holds_memory() {
    check(
        "peak step.snap",
        &expect![[r#"
        Peak: 20.98 KiB requested, at event 11, step 0, optimizer.

          category             bytes    share            blocks
          optimizer_state      8 KiB   38.1 %  ███████▋       1
          gradient             4 KiB   19.1 %  ███▊           1
          parameter            4 KiB   19.1 %  ███▊           1
          temporary            4 KiB   19.1 %  ███▊           1
          input               1000 B    4.7 %  ▉              1
          total            20.98 KiB  100.0 %

        Next: highwater peak step.snap --by op,scope   for the operations and modules behind it
    "#]],
    );
}

#[test]
fn peak_takes_the_reserved_bytes_apart_too() {
    check(
        "peak step.snap --metric reserved --by category,scope --top 2",
        &expect![[r#"
        Peak: 4 MiB reserved, at event 9, step 0, optimizer.

          category            scope     bytes    share                        blocks
          (free in segments)         3.99 MiB   99.8 %  ███████████████████▉
          gradient            layer     4 KiB    0.1 %  ▏                          1
          2 more groups                 5 KiB    0.1 %  ▏
          total                         4 MiB  100.0 %

        Next: highwater peak step.snap --by frame   for the lines of code behind it
    "#]],
    );
}

#[test]
fn peak_looks_at_any_event_and_at_chosen_blocks() {
    check(
        "peak step.snap --at 3 --by op --where 'category=activation,input size>=2KiB'",
        &expect![[r#"
        At event 3, step 0, forward: 7.91 KiB requested.
        Of these, 2.93 KiB (37.1 %) are in blocks with category=activation,input size>=2KiB.

          op         bytes    share                        blocks
          linear  2.93 KiB  100.0 %  ████████████████████       1
          total   2.93 KiB  100.0 %

        Next: highwater peak step.snap --by frame   for the lines of code behind it
    "#]],
    );
}

#[test]
fn phases_say_what_each_did() {
    check(
        "phases step.snap",
        &expect![[r#"
        5 phases in 2 steps; the highest reaches 20.98 KiB requested, at event 11, step 0, optimizer.

          step  phase         start       peak                    end  events  at its peak
             0  forward       4 KiB   7.91 KiB  ███▊         7.91 KiB       3  parameter 4 KiB, activation 2.93 KiB, input 1000 B
             0  backward   7.91 KiB  11.91 KiB  █████▋       8.98 KiB       4  parameter 4 KiB, gradient 4 KiB, activation 2.93 KiB, others 1000 B
             0  optimizer  8.98 KiB  20.98 KiB  ██████████     16 KiB       8  optimizer_state 8 KiB, parameter 4 KiB, gradient 4 KiB, others 4.98 KiB
             0  zero_grad    16 KiB     16 KiB  ███████▋       12 KiB       3  optimizer_state 8 KiB, parameter 4 KiB, gradient 4 KiB
             1  other        12 KiB  12.98 KiB  ██████▏     12.98 KiB       3  optimizer_state 8 KiB, parameter 4 KiB, input 1000 B

        Next: highwater peak step.snap --by op,scope   for what holds memory at the peak
    "#]],
    );
}

#[test]
fn events_print_as_text() {
    check(
        "events step.snap",
        &expect![[r#"
        Events 0 to 21 of 22:

          event   seconds  kind            what
              0  0.000001  step            0
              1  0.000002  phase           forward
              2  0.000003  alloc           b1 1000/1024 input large
              3  0.000004  alloc           b2 3000/3072 activation #linear @layer large
              4  0.000005  phase           backward
              5  0.000006  alloc           b3 4096/4096 gradient #linear @layer large
              6  0.000007  free_requested  b2
              7  0.000008  free_completed  b2
              8  0.000009  phase           optimizer
              9  0.000010  segment_alloc   0x200000 2097152 large
             10  0.000011  alloc           b4 8192/8192 optimizer_state @layer large
             11  0.000012  alloc           b5 4096/4096 temporary large
             12  0.000013  free_requested  b5
             13  0.000014  free_completed  b5
             14  0.000015  free_requested  b1
             15  0.000016  free_completed  b1
             16  0.000017  phase           zero_grad
             17  0.000018  free_requested  b3
             18  0.000019  free_completed  b3
             19  0.000020  step            1
             20  0.000021  mark            half of a step
             21  0.000022  alloc           b6 1000/1024 input large stream=3

        Next: highwater peak step.snap --at EVENT   for who holds memory after an event
    "#]],
    );
}

#[test]
fn events_print_with_stacks_where_asked() {
    check(
        "events step.snap --from 3 --to 9 --kind alloc,free_completed --stacks --where scope=layer",
        &expect![[r#"
        Events 3 to 9 of 22, those of kind alloc, free_completed and of blocks with scope=layer:

          event   seconds  kind            what
              3  0.000004  alloc           b2 3000/3072 activation #linear @layer large
                           < forward
                           < train
                           < main
              5  0.000006  alloc           b3 4096/4096 gradient #linear @layer large
                           < backward
                           < train
                           < main
              7  0.000008  free_completed  b2

        Next: highwater peak step.snap --at EVENT   for who holds memory after an event
    "#]],
    );
}

#[test]
fn verify_tells_sound_from_not_sound() {
    check(
        "verify step.snap",
        &expect![[r#"
        Sound: 22 events, 7 blocks; every checksum fits, and nothing contradicts anything.

        Next: highwater info step.snap   for what is in it
    "#]],
    );
    let mut damaged = trace();
    damaged.problems.push(Problem::at(
        4096,
        "a section of events is damaged: 12 events are missing",
    ));
    damaged.trust.events_lost = 12;
    expect![[r#"
        Not sound: 1 problem; what could be read: 22 events, 7 blocks.

          at byte 4096: a section of events is damaged: 12 events are missing

        Trust: 12 events were lost because the ring was full or the disk too slow: what they did is missing.

        Next: highwater info step.snap   for what is in it
    "#]].assert_eq(&answer(damaged, "verify step.snap").unwrap());
}

#[test]
fn doubts_are_told_with_every_answer() {
    let mut doubtful = trace();
    doubtful.trust.unfinished = true;
    doubtful
        .problems
        .push(Problem::at(4096, "the file ends within a section"));
    for command in ["info", "peak", "phases", "events"] {
        let text = answer(doubtful.clone(), &format!("{command} step.snap")).unwrap();
        assert!(text.contains("Trust: the recording was cut off"), "{text}");
        assert!(
            text.contains("Problem: at byte 4096: the file ends within a section"),
            "{text}"
        );
        let object = json(doubtful.clone(), &format!("{command} step.snap --json"));
        assert_eq!(
            object["problems"][0], "at byte 4096: the file ends within a section",
            "{command}"
        );
    }
}

#[test]
fn a_state_without_events_is_described_as_one() {
    let state =
        || trace_from_text("baseline w 4096 parameter\nbaseline_segment 0x0 2097152").unwrap();
    let text = answer(state(), "info step.snap").unwrap();
    assert!(
        text.starts_with("A state without events: 4 KiB requested in 1 block."),
        "{text}"
    );
    let peak = json(state(), "peak step.snap --json");
    assert_eq!(
        (&peak["bytes"], &peak["event"], &peak["phase"]),
        (&4096.into(), &Value::Null, &"setup".into())
    );
    assert!(
        answer(state(), "events step.snap")
            .unwrap()
            .starts_with("No events")
    );
    assert!(
        answer(state(), "phases step.snap")
            .unwrap()
            .starts_with("No phase")
    );
    assert_eq!(
        json(state(), "events step.snap --json")["events"],
        Value::Array(vec![])
    );
    let empty = answer(Trace::default(), "info step.snap").unwrap();
    assert!(empty.starts_with("An empty recording"), "{empty}");
}

#[test]
fn groups_and_rest_sum_to_the_total_for_every_metric_key_and_moment() {
    let sum = |peak: &Value| {
        let groups: u64 = peak["groups"]
            .as_array()
            .unwrap()
            .iter()
            .map(|group| group["bytes"].as_u64().unwrap())
            .sum();
        groups + peak["rest_bytes"].as_u64().unwrap()
    };
    for metric in ["requested", "allocated", "active", "reserved"] {
        for keys in [
            "category",
            "op,scope",
            "stack",
            "frame",
            "size",
            "lifetime,phase,step",
            "stream,pool",
        ] {
            for options in ["", "--at 5", "--at start", "--at end", "--top 1", "--top 0"] {
                let words =
                    format!("peak step.snap --json --metric {metric} --by {keys} {options}");
                let peak = json(trace(), &words);
                assert_eq!(
                    sum(&peak),
                    peak["bytes"].as_u64().unwrap(),
                    "{words}: {peak}"
                );
                let peak = json(
                    trace(),
                    &format!("{words} --where category=gradient,parameter"),
                );
                assert_eq!(
                    sum(&peak),
                    peak["filtered_bytes"].as_u64().unwrap(),
                    "{words}: {peak}"
                );
            }
        }
    }
}

#[test]
fn json_has_the_promised_keys_and_agrees_with_itself() {
    let info = json(trace(), "info step.snap --json");
    assert_eq!(info["format"], "snap");
    assert_eq!(info["rank"], 1);
    let device = &info["devices"][0];
    let numbers = [
        "device",
        "capacity_bytes",
        "events",
        "allocs",
        "frees",
        "segments",
        "baseline_bytes",
        "oom_events",
    ];
    for key in numbers
        .into_iter()
        .chain(["steps", "first_time_us", "last_time_us"])
    {
        assert!(device[key].is_u64(), "{key}: {device}");
    }
    assert_eq!(device["first_time_us"], 1_767_225_600_000_003_u64);
    assert_eq!(device["trust"]["complete"], true);
    assert_eq!(device["end"]["requested"], 4096 + 8192 + 1000);
    let peak = json(trace(), "peak step.snap --json --by category,scope");
    assert_eq!(device["peaks"]["requested"]["bytes"], peak["bytes"]);
    assert_eq!(device["peaks"]["requested"]["event"], peak["event"]);
    assert_eq!(device["peaks"]["requested"]["time_us"], peak["time_us"]);
    assert_eq!(peak["groups"][0]["key"], "optimizer_state, layer");
    assert_eq!(peak["groups"][0]["keys"]["scope"], "layer");
    let phases = json(trace(), "phases step.snap --json");
    let rows = phases["rows"].as_array().unwrap();
    let highest = rows
        .iter()
        .map(|row| row["peak_bytes"].as_u64().unwrap())
        .max();
    assert_eq!(highest, peak["bytes"].as_u64());
    for row in rows {
        let parts: u64 = row["at_peak"]
            .as_object()
            .unwrap()
            .values()
            .map(|bytes| bytes.as_u64().unwrap())
            .sum();
        assert_eq!(parts, row["peak_bytes"].as_u64().unwrap(), "{row}");
    }
    let events = json(trace(), "events step.snap --json");
    let events = events["events"].as_array().unwrap();
    assert_eq!(events.len(), trace().events.len());
    let alloc = events.iter().find(|event| event["op"] == "linear").unwrap();
    assert_eq!(
        alloc["stack"],
        serde_json::json!(["forward", "train", "main"])
    );
    assert_eq!(
        (&alloc["size"], &alloc["category"], &alloc["step"]),
        (&3000.into(), &"activation".into(), &0.into())
    );
}

#[test]
fn a_filter_leaves_out_blocks_of_phases_and_totals() {
    let row = &json(trace(), "phases step.snap --json --where category=gradient")["rows"][1];
    assert_eq!(
        (&row["phase"], &row["peak_bytes"]),
        (&"backward".into(), &4096.into())
    );
    assert_eq!(row["at_peak"], serde_json::json!({ "gradient": 4096 }));
    let info = json(trace(), "info step.snap --json --where category=gradient");
    assert_eq!(info["devices"][0]["peaks"]["requested"]["bytes"], 4096);
    assert_eq!(info["devices"][0]["peaks"]["reserved"]["bytes"], 4 << 20);
}

#[test]
fn questions_that_a_recording_cannot_answer_are_refused() {
    let why = |words: &str| answer(trace(), words).unwrap_err().to_string();
    assert!(why("peak step.snap --device 7").contains("no such device; it has 0"));
    assert!(why("info step.snap --device 7").contains("no such device; it has 0"));
    assert!(why("peak step.snap --at 999").contains("they go from 0 to"));
    assert!(why("peak step.snap --metric device_used").contains("no samples"));
    assert!(
        why("phases step.snap --metric reserved --where size>1").contains("no sum over blocks")
    );
    assert!(why("events step.snap --from 999").contains("they go from 0 to"));
    assert!(why("events step.snap --from 5 --to 4").contains("after the last"));
}

/// Runs the binary in `folder`, with no display.
fn highwater(folder: &Path, words: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_highwater"));
    command.current_dir(folder).args(shell_words(words));
    command
        .env_remove("DISPLAY")
        .env_remove("WAYLAND_DISPLAY")
        .stdin(std::process::Stdio::null());
    command.output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// A folder with a whole recording, `step.snap`, and its bytes.
fn folder() -> (tempfile::TempDir, Vec<u8>) {
    let folder = tempfile::tempdir().unwrap();
    let bytes = write_trace(Vec::new(), &trace()).unwrap();
    std::fs::write(folder.path().join("step.snap"), &bytes).unwrap();
    (folder, bytes)
}

#[test]
fn the_binary_answers_from_a_file_and_from_standard_input() {
    let (folder, bytes) = folder();
    for command in ["info", "peak", "phases", "events", "verify"] {
        let output = highwater(folder.path(), &format!("{command} step.snap"));
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert_eq!(
            stdout(&output),
            answer(trace(), &format!("{command} step.snap")).unwrap()
        );
        let object = highwater(folder.path(), &format!("{command} step.snap --json"));
        assert!(
            serde_json::from_slice::<Value>(&object.stdout)
                .unwrap()
                .is_object()
        );
        assert_eq!(stderr(&object), "");
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_highwater"));
    command
        .args(["peak", "-", "--json"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped());
    let mut child = command.spawn().unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), &bytes).unwrap();
    let peak: Value = serde_json::from_slice(&child.wait_with_output().unwrap().stdout).unwrap();
    assert_eq!(peak, json(trace(), "peak step.snap --json"));
}

#[test]
fn without_a_display_a_summary_stands_for_the_app() {
    let (folder, _) = folder();
    let output = highwater(folder.path(), "step.snap");
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(stderr(&output).lines().count(), 1, "{}", stderr(&output));
    assert!(stderr(&output).contains("summary instead of the app"));
    assert!(
        stdout(&output).contains("optimizer_state"),
        "{}",
        stdout(&output)
    );
    assert!(stdout(&output).contains("Next: highwater peak step.snap"));
    refused(folder.path(), "", "no file was given");
    refused(folder.path(), "peek", "neither a command nor a file");
}

/// Expects status 2, nothing on standard output, and a message of few lines with `words_in_it`.
fn refused(folder: &Path, words: &str, words_in_it: &str) {
    let output = highwater(folder, words);
    let message = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{words}: {message}");
    assert!(message.contains(words_in_it), "{words}: {message}");
    assert!(
        message.lines().count() <= 4 && !message.contains("panicked"),
        "{words}: {message}"
    );
    assert_eq!(stdout(&output), "", "{words}");
}

#[test]
fn unreadable_input_is_refused_with_what_where_and_what_to_do() {
    let (folder, bytes) = folder();
    let at = |name: &str| -> PathBuf { folder.path().join(name) };
    std::fs::write(at("empty.snap"), b"").unwrap();
    std::fs::write(at("picture.snap"), b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR").unwrap();
    std::fs::write(at("start.snap"), &bytes[..10]).unwrap();
    let cases = [
        ("empty.snap", "empty"),
        ("picture.snap", "a PNG picture"),
        ("start.snap", "damaged at byte 10"),
        ("missing.snap", "missing.snap"),
        (".", "cannot"),
        ("-", "empty"),
    ];
    for (file, words_in_it) in cases {
        for command in ["info", "peak", "phases", "events", "verify"] {
            refused(folder.path(), &format!("{command} {file}"), words_in_it);
        }
    }
    let verify = highwater(folder.path(), "verify picture.snap --json");
    assert_eq!(verify.status.code(), Some(2));
    assert_eq!(
        serde_json::from_slice::<Value>(&verify.stdout).unwrap()["ok"],
        false
    );
}

#[test]
fn bad_usage_is_refused_with_what_is_allowed() {
    let (folder, _) = folder();
    let cases = [
        ("peak", "<FILE>"),
        ("peak step.snap --metric weight", "requested"),
        ("peak step.snap --by colour", "keys are category"),
        ("peak step.snap --at noon", "'start' or 'end'"),
        ("peak step.snap --top many", "many"),
        ("peak step.snap --where colour=red", "keys are category"),
        ("peak step.snap --where 'size>=lots'", "for example 512MiB"),
        ("events step.snap --kind birth", "alloc"),
        ("record", "SCENARIO"),
        ("record vit-l-16 --capacity lots", "for example 512MiB"),
        ("record vit-l-16 --device tpu", "meta, cpu"),
        ("info step.snap --jsn", "--json"),
    ];
    for (words, words_in_it) in cases {
        refused(folder.path(), words, words_in_it);
    }
    assert_eq!(highwater(folder.path(), "--help").status.code(), Some(0));
    assert_eq!(
        highwater(folder.path(), "peak --help").status.code(),
        Some(0)
    );
    assert!(stdout(&highwater(folder.path(), "--version")).starts_with("highwater "));
}

#[test]
fn whatever_was_cut_or_changed_the_binary_answers_or_refuses() {
    let (folder, bytes) = folder();
    let file = folder.path().join("broken.snap");
    let step = bytes.len() / 12;
    for at in (16..bytes.len()).step_by(step) {
        let mut flipped = bytes.clone();
        flipped[at] ^= 0x10;
        for broken in [&bytes[..at], &flipped] {
            std::fs::write(&file, broken).unwrap();
            for command in ["info", "verify"] {
                let output = highwater(folder.path(), &format!("{command} broken.snap --json"));
                let code = output.status.code().unwrap();
                assert!(
                    code == 0 || code == 2,
                    "{command} at {at}: {}",
                    stderr(&output)
                );
                let object: Option<Value> = serde_json::from_slice(&output.stdout).ok();
                assert_eq!(
                    object.is_some(),
                    code == 0 || command == "verify",
                    "{command} at {at}: {}",
                    stderr(&output)
                );
                if command == "verify" {
                    assert_eq!(object.unwrap()["ok"], code == 0);
                }
            }
        }
    }
}
