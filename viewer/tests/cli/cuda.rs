//! Tests `record --device cuda` with missing libraries, and on the stand-in for CUDA's libraries.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use highwater_stand_in::Setup;
use highwater_stand_in::setup::REQUIRED_VARIABLE;
use serde_json::Value;

use crate::binary::{highwater, names, stderr, stdout};
use crate::sample::shell_words;

const SMALL: &str = "record mlp --batch 4 --width 24 --steps 2";
const MIB: u64 = 1 << 20;
/// What the stand-in's context takes of a device.
const CONTEXT: u64 = 8 * MIB;

/// Runs the binary where it finds the stand-in; nothing where that cannot be used.
#[expect(clippy::print_stderr, reason = "says that nothing was tested, and why")]
fn on(setup: &Setup, folder: &Path, words: &str) -> Option<Output> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_highwater"));
    command.current_dir(folder).args(shell_words(words)).env_remove("DISPLAY").env_remove("WAYLAND_DISPLAY");
    if let Err(why) = setup.apply(&mut command) {
        assert!(std::env::var_os(REQUIRED_VARIABLE).is_none(), "{why}");
        eprintln!("skipped: {why}");
        return None;
    }
    Some(command.stdin(Stdio::null()).output().unwrap())
}

/// Fails unless the binary refuses in one line, with these words, and leaves no file.
fn refused(setup: &Setup, words: &str, expected: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let Some(output) = on(setup, folder.path(), words) else { return };
    let told = stderr(&output);
    assert_eq!((output.status.code(), stdout(&output)), (Some(2), String::new()), "{told}");
    assert!(told.starts_with("error: cannot run on cuda:") && told.lines().count() == 1, "{told}");
    for expected in expected {
        assert!(told.contains(expected), "{expected}: {told}");
    }
    assert_eq!(names(folder.path()), [""; 0]);
}

fn object(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", stderr(output)))
}

#[test]
fn what_is_missing_is_reported_in_a_line_with_what_to_do() {
    let words = &format!("{SMALL} --device cuda");
    // A machine that has the real ones finds them all the same.
    if !Path::new("/proc/driver/nvidia").exists() {
        refused(&Setup::new().without("libcuda.so.1"), words, &["no CUDA driver", "NVIDIA driver", "--device meta"]);
    }
    if !Path::new("/usr/local/cuda").exists() {
        let without = |library| Setup::new().without(library);
        let nvrtc = ["libnvrtc.so.13", "pip install nvidia-cuda-nvrtc", "HIGHWATER_CUDA_PATH"];
        refused(&without("libnvrtc.so.13"), words, &nvrtc);
        let cublas = ["libcublasLt.so.13", "pip install nvidia-cublas", "HIGHWATER_CUDA_PATH"];
        refused(&without("libcublasLt.so.13"), words, &cublas);
    }
    refused(&Setup::new().devices(0), words, &["CUDA device 0 does not exist", "the number of devices is 0"]);
    refused(&Setup::new().devices(2), &format!("{SMALL} --device cuda:2"), &["cuda:2", "the number of devices is 2"]);
    refused(&Setup::new().capability(7, 5), words, &["compute capability 7.5", "8.0 or later"]);
    refused(&Setup::new().memory_bytes(20 * MIB), words, &["16 MiB", "only 12 MiB of device memory is free"]);
    refused(&Setup::new(), &format!("{words} --capacity 4MiB"), &["16 MiB", "only 4 MiB of device memory is free"]);
    refused(&Setup::new().memory_bytes(4 * MIB), words, &["enough free memory"]);
    let graphs =
        on(&Setup::new(), Path::new("."), &format!("{words} --alloc-conf graph_capture_record_stream_reuse:True"));
    if let Some(output) = graphs {
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr(&output).contains("CUDA graphs are not supported"), "{}", stderr(&output));
    }
}

#[test]
fn a_step_on_a_cuda_device_is_recorded_with_what_the_driver_says_is_in_use() {
    let folder = tempfile::tempdir().unwrap();
    let words = format!("{SMALL} --device cuda:1 --out cuda.snap --json");
    let Some(output) = on(&Setup::new().devices(2), folder.path(), &words) else { return };
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let recorded = object(&output);
    assert_eq!((&recorded["device"], &recorded["steps"]), (&"cuda:1".into(), &2.into()));
    assert_eq!(recorded["losses"].as_array().map(Vec::len), Some(2));
    let on_cpu = object(&highwater(folder.path(), &format!("{SMALL} --device cpu --out cpu.snap --json")));
    let keys = |object: &Value| object.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(&recorded), keys(&on_cpu));
    assert_eq!(keys(&recorded["peaks"]), keys(&on_cpu["peaks"]));

    let info = object(&highwater(folder.path(), "info cuda.snap --json"));
    let device = &info["devices"][0];
    assert_eq!((&device["device"], &device["driver"]), (&1.into(), &"cuda".into()));
    assert_eq!(device["capacity_bytes"], 1 << 30);
    let peak = |name: &str| device["peaks"][name]["bytes"].as_u64().unwrap();
    assert_eq!(peak("device_used"), peak("reserved") + CONTEXT);
    let told = stdout(&highwater(folder.path(), "info cuda.snap"));
    assert!(told.contains("in use on the whole device"), "{told}");
    let at_peak = highwater(folder.path(), "peak cuda.snap --metric device_used");
    assert_eq!(at_peak.status.code(), Some(0), "{}", stderr(&at_peak));
    assert!(stdout(&at_peak).contains("8 MiB"), "{}", stdout(&at_peak));
}

#[test]
fn a_cuda_device_that_is_too_small_ends_the_run_in_a_recording_that_opens() {
    for (setup, option) in [(Setup::new().memory_bytes(26 * MIB), ""), (Setup::new(), " --capacity 18MiB")] {
        let folder = tempfile::tempdir().unwrap();
        let words = format!("record mlp --device cuda --steps 2{option}");
        let Some(output) = on(&setup, folder.path(), &words) else { return };
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        assert!(stdout(&output).starts_with("Out of memory after 0 steps of mlp on cuda:0"), "{}", stdout(&output));
        let info = object(&highwater(folder.path(), "info mlp.snap --json"));
        assert_eq!(info["devices"][0]["oom_events"], 1, "{info}");
        let verified = highwater(folder.path(), "verify mlp.snap");
        assert_eq!(verified.status.code(), Some(0), "{}", stdout(&verified));
    }
}
