//! Tests the output of the program `highwater` for valid and invalid input.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use highwater_snapshots::format::write_trace;
use serde_json::Value;

use crate::sample::{answer, json, shell_words, trace};

/// Runs the binary in `folder`, with no display.
pub(crate) fn highwater(folder: &Path, words: &str) -> Output {
    command(folder, words).output().unwrap()
}

/// The same; recordings of more than `most` events are read in parts, and the user's cache is in `folder`.
pub(crate) fn highwater_with(folder: &Path, words: &str, most: &str) -> Output {
    let mut command = command(folder, words);
    command.env("HIGHWATER_RESIDENT_EVENTS", most).env("XDG_CACHE_HOME", folder.join("cache")).output().unwrap()
}

fn command(folder: &Path, words: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_highwater"));
    command.current_dir(folder).args(shell_words(words));
    command.env_remove("DISPLAY").env_remove("WAYLAND_DISPLAY").stdin(Stdio::null());
    command
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// A folder with a whole recording, `step.snap`, and its bytes.
pub(crate) fn folder() -> (tempfile::TempDir, Vec<u8>) {
    let folder = tempfile::tempdir().unwrap();
    let bytes = write_trace(Vec::new(), &trace()).unwrap();
    std::fs::write(folder.path().join("step.snap"), &bytes).unwrap();
    (folder, bytes)
}

/// The names of the files in `folder`, sorted.
pub(crate) fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[cfg(unix)]
#[test]
fn a_named_pipe_is_announced_before_it_is_read() {
    let (folder, bytes) = folder();
    let pipe = folder.path().join("pipe.snap");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let writer =
        std::thread::Builder::new().name("writer".to_owned()).spawn(move || std::fs::write(pipe, bytes)).unwrap();
    let output = highwater(folder.path(), "peak pipe.snap");
    writer.join().unwrap().unwrap();
    assert!(output.status.success() && stderr(&output).contains("pipe.snap is a pipe"), "{}", stderr(&output));
}

#[test]
fn the_binary_answers_from_a_file_and_from_standard_input() {
    let (folder, bytes) = folder();
    for command in ["info", "peak", "phases", "events", "verify"] {
        let output = highwater(folder.path(), &format!("{command} step.snap"));
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert_eq!(stdout(&output), answer(trace(), &format!("{command} step.snap")).unwrap());
        let object = highwater(folder.path(), &format!("{command} step.snap --json"));
        assert!(serde_json::from_slice::<Value>(&object.stdout).unwrap().is_object());
        assert_eq!(stderr(&object), "");
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_highwater"));
    command.args(["peak", "-", "--json"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), &bytes).unwrap();
    let peak: Value = serde_json::from_slice(&child.wait_with_output().unwrap().stdout).unwrap();
    assert_eq!(peak, json(trace(), "peak step.snap --json"));
}

#[test]
fn a_snapshot_of_pytorch_is_answered_for_as_a_recording_is() {
    let folder = tempfile::tempdir().unwrap();
    let text = r#"{"segments": [], "device_traces": [[
        {"action": "segment_alloc", "addr": 4194304, "size": 2097152, "stream": 0, "time_us": 1700000000000000},
        {"action": "alloc", "addr": 4194304, "size": 1000, "stream": 0, "time_us": 1700000000000001,
         "frames": [{"name": "forward", "filename": "net.py", "line": 7}]},
        {"action": "free_requested", "addr": 4194304, "size": 1000, "stream": 0, "time_us": 1700000000000002},
        {"action": "free_completed", "addr": 4194304, "size": 1000, "stream": 0, "time_us": 1700000000000002},
        {"action": "segment_free", "addr": 4194304, "size": 2097152, "stream": 0, "time_us": 1700000000000003}]]}"#;
    std::fs::write(folder.path().join("a.dump"), text).unwrap();
    let output = highwater(folder.path(), "info a.dump --json");
    let info: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", stderr(&output)));
    assert_eq!((&info["format"], &info["devices"][0]["allocs"]), (&"json".into(), &1.into()));
    assert_eq!(info["devices"][0]["peaks"]["requested"]["bytes"], 1000);
    assert!(stdout(&highwater(folder.path(), "info a.dump")).contains("a.dump (json"));
    let peak = highwater(folder.path(), "peak a.dump --by frame");
    assert!(stdout(&peak).contains("net.py:7"), "{}", stdout(&peak));
    std::fs::write(folder.path().join("cut.dump"), &text[..500]).unwrap();
    refused(folder.path(), "info cut.dump", "the JSON text ends early");
    std::fs::write(folder.path().join("old.dump"), b"\x80\x01}q\0.").unwrap();
    refused(folder.path(), "info old.dump", "protocol 1, but only protocols 2 to 5 are supported");
}

#[test]
fn without_a_display_a_summary_stands_for_the_app() {
    let (folder, _) = folder();
    let output = highwater(folder.path(), "step.snap");
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(stderr(&output).lines().count(), 1, "{}", stderr(&output));
    assert!(stderr(&output).contains("summary instead of the app"));
    assert!(stdout(&output).contains("optimizer_state"), "{}", stdout(&output));
    assert!(stdout(&output).contains("Next: highwater peak step.snap"));
    refused(folder.path(), "", "no file was given");
    refused(folder.path(), "peek", "neither a command nor a file");
    let expected = "commands come first: `highwater peak step.snap --by frame`";
    refused(folder.path(), "step.snap peak --by frame", expected);
    std::fs::write(folder.path().join("peak"), b"no recording").unwrap();
    let both = highwater(folder.path(), "step.snap peak");
    assert!(
        stderr(&both).contains("summary instead of the app"),
        "a file may have a command's name: {}",
        stderr(&both)
    );
}

#[test]
fn help_of_a_command_can_be_asked_for_by_its_name() {
    let (folder, _) = folder();
    let help = highwater(folder.path(), "help peak");
    assert_eq!((help.status.code(), stderr(&help).as_str()), (Some(0), ""));
    assert!(stdout(&help).contains("Usage: highwater peak"), "{}", stdout(&help));
}

/// Expects status 2, nothing on standard output, and a message of few lines with `words_in_it`.
pub(crate) fn refused(folder: &Path, words: &str, words_in_it: &str) {
    let output = highwater(folder, words);
    let message = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{words}: {message}");
    assert!(message.contains(words_in_it), "{words}: {message}");
    assert!(message.lines().count() <= 2 && !message.contains("panicked"), "{words}: {message}");
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
        ("-", "empty"),
    ];
    for (file, words_in_it) in cases {
        for command in ["info", "peak", "phases", "events", "verify"] {
            refused(folder.path(), &format!("{command} {file}"), words_in_it);
        }
    }
    for command in ["peak", "phases", "events", "verify"] {
        refused(folder.path(), &format!("{command} ."), "is a folder; name one of the recordings in it");
    }
    let verify = highwater(folder.path(), "verify picture.snap --json");
    assert_eq!(verify.status.code(), Some(2));
    assert_eq!(serde_json::from_slice::<Value>(&verify.stdout).unwrap()["ok"], false);
}

#[test]
fn bad_usage_is_refused_with_what_is_allowed() {
    let (folder, _) = folder();
    let cases = [
        ("peak", "<FILE>"),
        ("peak step.snap --metric weight", "requested"),
        ("peak step.snap --by colour", "keys are category"),
        ("peak step.snap --at noon", "start, end, step:N"),
        ("peak step.snap --top many", "many"),
        ("peak step.snap --where colour=red", "keys are category"),
        ("peak step.snap --where 'size>=lots'", "a size such as 512MiB"),
        ("events step.snap --kind birth", "alloc"),
        ("record", "SCENARIO"),
        ("record vit-l-16 --capacity lots", "a size such as 512MiB"),
        ("record vit-l-16 --device tpu", "meta, meta:cuda, cpu"),
        ("record vit-l-16 --steps some", "some"),
        ("info step.snap --jsn", "--json"),
    ];
    for (words, words_in_it) in cases {
        refused(folder.path(), words, words_in_it);
    }
    assert_eq!(highwater(folder.path(), "--help").status.code(), Some(0));
    assert_eq!(highwater(folder.path(), "peak --help").status.code(), Some(0));
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
                assert!(code == 0 || code == 2, "{command} at {at}: {}", stderr(&output));
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

#[cfg(not(feature = "engine"))]
#[test]
fn a_build_without_the_engine_says_so() {
    let (folder, _) = folder();
    refused(folder.path(), "record vit-l-16", "no engine");
}

#[cfg(not(feature = "gui"))]
#[test]
fn a_build_without_the_app_says_that_it_draws_nothing() {
    let (folder, _) = folder();
    refused(folder.path(), "render step.snap --out a.png", "draws no pictures");
    assert!(!folder.path().join("a.png").exists());
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let (folder, _) = folder();
    let mut command = Command::new(env!("CARGO_BIN_EXE_highwater"));
    command.current_dir(folder.path()).args(["events", "step.snap"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""));
}

#[test]
fn every_shell_has_completions() {
    let folder = tempfile::tempdir().unwrap();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = highwater(folder.path(), &format!("completions {shell}"));
        assert!(output.status.success() && stdout(&output).contains("max-peak"), "{shell}: {}", stderr(&output));
    }
    assert!(stderr(&highwater(folder.path(), "completions tcsh")).contains("bash"));
}
