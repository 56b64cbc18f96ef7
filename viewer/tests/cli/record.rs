//! Tests that a built-in training step can be recorded from the command line and opened.

use crate::binary::{highwater, refused, stderr, stdout};
use serde_json::Value;

fn object(output: &std::process::Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", stderr(output)))
}

#[test]
fn a_recorded_step_opens_and_says_what_it_took() {
    let folder = tempfile::tempdir().unwrap();
    let recorded = highwater(folder.path(), "record mlp --steps 2 --out out.snap --json");
    assert_eq!(recorded.status.code(), Some(0), "{}", stderr(&recorded));
    let recorded = object(&recorded);
    assert_eq!(recorded["file"], "out.snap");
    assert_eq!((&recorded["device"], &recorded["steps"], &recorded["oom"]), (&"meta".into(), &2.into(), &Value::Null));
    let peak = object(&highwater(folder.path(), "peak out.snap --json"));
    assert_eq!(recorded["peaks"]["requested"]["bytes"], peak["bytes"]);
    let phases = object(&highwater(folder.path(), "phases out.snap --json"));
    assert_eq!(recorded["phases"], phases["rows"]);
    let names: Vec<&str> = phases["rows"].as_array().unwrap().iter().filter_map(|row| row["phase"].as_str()).collect();
    for phase in ["setup", "forward", "backward", "optimizer", "zero_grad"] {
        assert!(names.contains(&phase), "{names:?}");
    }
    let verified = highwater(folder.path(), "verify out.snap");
    assert_eq!(verified.status.code(), Some(0), "{}", stdout(&verified));
}

#[test]
fn a_recording_of_uses_says_what_is_held_but_not_used_again() {
    let folder = tempfile::tempdir().unwrap();
    let explained = |words: &str| {
        let recorded = highwater(folder.path(), words);
        assert_eq!(recorded.status.code(), Some(0), "{}", stderr(&recorded));
        object(&highwater(folder.path(), "explain u.snap --top 1 --json"))
    };
    assert_eq!(explained("record mlp --steps 2 --out u.snap")["idle"], Value::Null);
    assert!(object(&highwater(folder.path(), "events u.snap --kind used --json"))["events"][0].is_null());
    let explained = explained("record mlp --steps 2 --uses --out u.snap");
    let number = |value: &Value| value.as_u64().unwrap_or_else(|| panic!("{value} in {explained}"));
    let idle = &explained["idle"];
    // Every gradient was read when the optimizer takes its roots, and is held until they are zeroed.
    assert_eq!(
        (&explained["peak"]["phase"], &idle["groups"][0]["category"]),
        (&"optimizer".into(), &"gradient".into())
    );
    assert!(number(&idle["groups"][0]["bytes"]) > 0 && number(&idle["rest_groups"]) > 0);
    assert_eq!(number(&idle["groups"][0]["bytes"]) + number(&idle["rest_bytes"]), number(&idle["bytes"]));
    assert!(number(&idle["peak"]["bytes"]) < number(&explained["peak"]["bytes"]));
    let used = object(&highwater(folder.path(), "events u.snap --kind used --json"));
    let used = used["events"].as_array().unwrap();
    assert!(used.len() > 50 && used.iter().all(|event| event["kind"] == "used" && event["block"].is_u64()));
    let words = stdout(&highwater(folder.path(), "explain u.snap"));
    assert!(words.contains("Live at the peak but not used again: "), "{words}");
}

#[test]
fn the_work_of_operations_is_recorded_only_if_asked_for_and_adds_up_to_that_of_the_steps() {
    let folder = tempfile::tempdir().unwrap();
    let events = |options: &str| {
        let words = format!("record gpt2 --layers 2 --batch 1 --seq 64 --steps 2 --out w.snap --json {options}");
        let recorded = object(&highwater(folder.path(), &words));
        (recorded["step_flops"].as_u64().unwrap(), object(&highwater(folder.path(), "events w.snap --json")))
    };
    let sum = |events: &Value, name: &str| -> u64 {
        let values = events["events"].as_array().unwrap().iter().filter_map(|event| event["attributes"][name].as_str());
        values.map(|value| value.parse::<u64>().unwrap()).sum()
    };
    let ((step_flops, with), (_, without)) = (events("--costs"), events(""));
    let flops = sum(&with, "op_flops");
    // Operations that allocate nothing, such as updates in place, are left out.
    assert!(flops <= 2 * step_flops && flops > 2 * step_flops / 100 * 95, "{flops} of {step_flops}");
    assert!(sum(&with, "op_bytes_moved") > 0 && sum(&without, "op_flops") == 0);
    let sizes = |events: &Value| -> Vec<Value> {
        events["events"].as_array().unwrap().iter().map(|event| event["size"].clone()).collect()
    };
    assert_eq!(sizes(&with), sizes(&without));
}

#[test]
fn the_processor_and_the_accounting_device_make_the_same_peak() {
    let folder = tempfile::tempdir().unwrap();
    let peak = |device: &str| {
        let words = format!("record mlp --steps 1 --batch 4 --device {device} --out {device}.snap --json");
        object(&highwater(folder.path(), &words))["peaks"]["allocated"]["bytes"].clone()
    };
    assert!(peak("meta").is_u64());
    assert_eq!(peak("meta"), peak("cpu"));
}

#[test]
fn a_run_that_runs_out_of_memory_ends_with_a_recording_that_opens() {
    let folder = tempfile::tempdir().unwrap();
    let output = highwater(folder.path(), "record mlp --capacity 4MiB --json");
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    let recorded = object(&output);
    assert!(recorded["oom"]["requested_bytes"].as_u64().is_some_and(|bytes| bytes > 0), "{recorded}");
    assert_eq!(recorded["file"], "mlp.snap");
    let info = object(&highwater(folder.path(), "info mlp.snap --json"));
    assert_eq!(info["devices"][0]["oom_events"], 1, "{info}");
    let words = highwater(folder.path(), "record mlp --capacity 4MiB");
    assert_eq!(words.status.code(), Some(2));
    assert!(stdout(&words).starts_with("Out of memory"), "{}", stdout(&words));
    assert!(stdout(&highwater(folder.path(), "info mlp.snap")).contains("Out of memory: 1 request failed."));
}

#[test]
fn scenarios_are_listed_and_unknown_ones_refused_with_those_there_are() {
    let folder = tempfile::tempdir().unwrap();
    let list = highwater(folder.path(), "record --list");
    assert_eq!(list.status.code(), Some(0));
    assert!(stdout(&list).contains("vit-l-16"), "{}", stdout(&list));
    refused(folder.path(), "record perpetual-motion", "vit-l-16");
    refused(folder.path(), "record mlp --seq 3", "--seq");
    refused(folder.path(), "record mlp --batch 0", "at least 1");
    refused(folder.path(), "record mlp --alloc-conf nonsense:1", "nonsense");
    refused(folder.path(), "record mlp --out no/such/folder/x.snap", "no/such/folder/x.snap");
    assert!(std::fs::read_dir(folder.path()).unwrap().next().is_none(), "nothing was written");
}

#[test]
fn with_open_and_no_display_the_peak_is_printed() {
    let folder = tempfile::tempdir().unwrap();
    let output = highwater(folder.path(), "record mlp --steps 1 --open");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stdout(&output).contains("\nPeak: "), "{}", stdout(&output));
    assert!(stderr(&output).contains("instead of the app"), "{}", stderr(&output));
}
