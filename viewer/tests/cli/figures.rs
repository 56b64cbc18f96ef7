//! Tests the JSON output of each command, and that its numbers add up.

use clap::CommandFactory as _;
use highwater::Arguments;
use highwater_analysis::{Filter, GroupKey};
use serde_json::Value;

use crate::sample::{answer, json, trace};

#[test]
fn groups_and_rest_sum_to_the_total_for_every_metric_key_and_moment() {
    let sum = |peak: &Value| {
        let groups: u64 = peak["groups"].as_array().unwrap().iter().map(|group| group["bytes"].as_u64().unwrap()).sum();
        groups + peak["rest_bytes"].as_u64().unwrap()
    };
    for metric in ["requested", "allocated", "active", "reserved"] {
        for keys in ["category", "op,scope", "stack", "frame", "size", "lifetime,phase,step", "stream,pool"] {
            for options in ["", "--at 5", "--at start", "--at end", "--top 1", "--top 0"] {
                let words = format!("peak step.snap --json --metric {metric} --by {keys} {options}");
                let peak = json(trace(), &words);
                assert_eq!(sum(&peak), peak["bytes"].as_u64().unwrap(), "{words}: {peak}");
                let peak = json(trace(), &format!("{words} --where category=gradient,parameter"));
                assert_eq!(sum(&peak), peak["filtered_bytes"].as_u64().unwrap(), "{words}: {peak}");
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
    let numbers = ["device", "capacity_bytes", "events", "allocs", "frees", "segments", "baseline_bytes", "oom_events"];
    for key in numbers.into_iter().chain(["steps", "first_time_us", "last_time_us"]) {
        assert!(device[key].is_u64(), "{key}: {device}");
    }
    assert_eq!(device["first_time_us"], 1_767_225_600_000_003_u64);
    assert_eq!(device["trust"]["complete"], true);
    assert_eq!(device["end"]["requested"], 4096 + 8192 + 1000);
    let peak = json(trace(), "peak step.snap --json --by category,scope");
    assert_eq!(device["peaks"]["requested"]["bytes"], peak["bytes"]);
    assert_eq!(device["peaks"]["requested"]["event"], peak["event"]);
    assert_eq!(device["peaks"]["requested"]["time_us"], peak["time_us"]);
    let peaks = device["peaks"].as_object().unwrap();
    assert_eq!(peaks.len(), 5, "a key for each total");
    assert!(peaks["device_used"].is_null(), "not sampled");
    assert_eq!(peak["groups"][0]["key"], "optimizer_state, layer");
    assert_eq!(peak["groups"][0]["keys"]["scope"], "layer");
    let phases = json(trace(), "phases step.snap --json");
    let rows = phases["rows"].as_array().unwrap();
    let highest = rows.iter().map(|row| row["peak_bytes"].as_u64().unwrap()).max();
    assert_eq!(highest, peak["bytes"].as_u64());
    for row in rows {
        let parts: u64 = row["at_peak"].as_object().unwrap().values().map(|bytes| bytes.as_u64().unwrap()).sum();
        assert_eq!(parts, row["peak_bytes"].as_u64().unwrap(), "{row}");
    }
    let events = json(trace(), "events step.snap --json");
    let events = events["events"].as_array().unwrap();
    assert_eq!(events.len(), trace().events.len());
    let alloc = events.iter().find(|event| event["op"] == "linear").unwrap();
    assert_eq!(alloc["stack"], serde_json::json!(["forward", "train", "main"]));
    assert_eq!((&alloc["size"], &alloc["category"], &alloc["step"]), (&3000.into(), &"activation".into(), &0.into()));
}

#[test]
fn a_filter_leaves_out_blocks_of_phases_and_totals() {
    let row = &json(trace(), "phases step.snap --json --where category=gradient")["rows"][1];
    assert_eq!((&row["phase"], &row["peak_bytes"]), (&"backward".into(), &4096.into()));
    assert_eq!(row["at_peak"], serde_json::json!({ "gradient": 4096 }));
    let info = json(trace(), "info step.snap --json --where category=gradient");
    assert_eq!(info["devices"][0]["peaks"]["requested"]["bytes"], 4096);
    assert_eq!(info["devices"][0]["peaks"]["reserved"]["bytes"], 4 << 20);
}

#[test]
fn questions_that_a_recording_cannot_answer_are_refused() {
    let why = |words: &str| answer(trace(), words).unwrap_err().to_string();
    assert!(why("peak step.snap --device 7").contains("no such device; its only device is 0"));
    assert!(why("info step.snap --device 7").contains("no such device; its only device is 0"));
    assert!(why("peak step.snap --at 999").contains("expected an event from 0 to"));
    assert!(why("peak step.snap --metric device_used").contains("no samples"));
    assert!(why("phases step.snap --metric reserved --where size>1").contains("not a sum over blocks"));
    assert!(why("events step.snap --from 999").contains("expected an event from 0 to"));
    assert!(why("events step.snap --from 5 --to 4").contains("after the last"));
}

#[test]
fn texts_list_the_keys_that_conditions_and_groups_have() {
    let why = "colour=red".parse::<Filter>().unwrap_err();
    let known: Vec<&str> = why.split_once("keys are ").unwrap().1.split(", ").collect();
    let (mut numbers, mut texts): (Vec<&str>, Vec<&str>) =
        known.into_iter().partition(|key| format!("{key}<1").parse::<Filter>().is_ok());
    let help = Arguments::command().find_subcommand("peak").unwrap().clone().render_long_help().to_string();
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ").replace(',', "");
    let app = include_str!("../../../docs/app.md").replace('`', "");
    for listed in [&help, &app] {
        for (kind, known) in [("ext keys (", &mut texts), ("umeric keys (", &mut numbers)] {
            let start = listed.split_once(kind).unwrap_or_else(|| panic!("{kind}")).1;
            let mut keys: Vec<&str> = start.split_once(')').unwrap().0.split(' ').collect();
            keys.sort_unstable();
            known.sort_unstable();
            assert_eq!(keys, *known);
        }
    }
    let commands = include_str!("../../../docs/commands.md");
    let mut keys: Vec<&str> = commands.split_once("Keys: `").unwrap().1.split_once('`').unwrap().0.split(' ').collect();
    let mut known: Vec<&str> = GroupKey::ALL.iter().map(|key| key.name()).collect();
    keys.sort_unstable();
    known.sort_unstable();
    assert_eq!(keys, known);
}
