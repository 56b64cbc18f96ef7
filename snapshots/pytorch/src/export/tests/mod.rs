//! Tests that a small trace can be exported as pickle and as JSON and read back.

mod unpickle;

use std::ops::ControlFlow;

use expect_test::expect;
use serde_json::{Value, json};

use super::*;
use crate::intake::{EventDraft, Intake};
use crate::raw::{Action, Extras, RawSnapshot};
use crate::{EventDigest, recover};
use highwater_notation::{text_from_trace, trace_from_text};
use highwater_snapshots::Error;
use highwater_snapshots::ids::{EventId, StringId};
use highwater_snapshots::trace::{Attribute, DeviceFacts, Owner};
use unpickle::{Unpickled, unpickle};

/// One step with every kind of event, on a device with one segment and some mapped ranges.
const STEP: &str = "
baseline_segment 0x0 4096
baseline w 1000/1024 parameter < load < main
baseline v 500/512 waiting
step 0
phase forward
alloc a 600/1024 activation #linear @layer < forward < main
phase backward
segment_map 0x1000 2048 stream=7 < grow < main
alloc g 100/512 gradient #linear @layer < backward < main
alloc t 1000/1024 stream=7 < backward < main
free_requested t < drop
free a
mark half way
oom 9000000000 free=4096 #linear < backward < main
device_used 12000000000
tag g buffer
used g
used nobody < read
";

fn step() -> Trace {
    trace_from_text(STEP).unwrap().edited(|trace| {
        trace.header.started_unix_us = 1_767_225_600_000_000;
        trace.devices = vec![DeviceFacts {
            settings: vec![("expandable_segments".to_owned(), "True".to_owned())],
            ..DeviceFacts::default()
        }];
    })
}

fn pickled(trace: &Trace) -> (Unpickled, Exported) {
    let mut bytes = Vec::new();
    let exported = write_pickle(&mut bytes, trace, &mut |_| ControlFlow::Continue(())).unwrap();
    (unpickle(&bytes), exported)
}

fn as_json(trace: &Trace) -> (Value, Exported) {
    let mut bytes = Vec::new();
    let exported = write_json(&mut bytes, trace, &mut |_| ControlFlow::Continue(())).unwrap();
    (serde_json::from_slice(&bytes).unwrap(), exported)
}

/// Builds a raw snapshot from the events of `value` through the intake, as any reader does.
fn raw(value: &Value) -> RawSnapshot {
    let mut intake = Intake::default();
    let number = |event: &Value, key: &str| event[key].as_u64().unwrap_or_default();
    let traces = value["device_traces"].as_array().unwrap().iter().chain(value.get("host_traces"));
    for (device, events) in traces.enumerate() {
        let mut rows = Vec::new();
        for event in events.as_array().unwrap() {
            let action = intake.text(event["action"].as_str().unwrap());
            rows.push(intake.event(&EventDraft {
                action,
                address: number(event, "addr"),
                device_free: event.get("device_free").and_then(Value::as_u64),
                size: number(event, "size"),
                time_us: number(event, "time_us"),
                stream: number(event, "stream"),
                extras: Extras::default(),
                ..EventDraft::default()
            }));
        }
        if value["device_traces"].as_array().unwrap().len() == device {
            intake.host_trace(rows);
        } else {
            intake.trace(device, rows);
        }
    }
    let recording = intake.text(value["highwater"].as_str().unwrap());
    intake.highwater(recording);
    intake.finish()
}

#[test]
fn pickle_and_json_say_the_same_and_lose_nothing() {
    let (pickled, exported) = pickled(&step());
    assert_eq!((pickled.value, exported.clone()), as_json(&step()));
    assert_eq!(exported, Exported { events: 16, lost: Vec::new() });
}

#[test]
fn each_event_has_what_pytorch_gives_it() {
    let (value, _) = as_json(&step());
    let time = 1_767_225_600_000_000_u64;
    let frames = |names: &[&str]| {
        let frames = names.iter().map(|name| json!({"name": name, "filename": "??", "line": 0}));
        Value::Array(frames.collect())
    };
    let events = value["device_traces"][0].as_array().unwrap();
    let expected = json!([
        {"action": "alloc", "addr": 1536, "size": 600, "stream": 0, "time_us": time + 3, "category": "activation",
            "frames": frames(&["forward", "main"])},
        {"action": "segment_map", "addr": 4096, "size": 2048, "stream": 7, "time_us": time + 5,
            "category": "unknown", "frames": frames(&["grow", "main"])},
        {"action": "alloc", "addr": 2560, "size": 100, "stream": 0, "time_us": time + 6, "category": "buffer",
            "frames": frames(&["backward", "main"]),
            "forward_frames": ["  File \"??\", line 0, in main\n", "  File \"??\", line 0, in backward\n"]},
        {"action": "alloc", "addr": 3072, "size": 1000, "stream": 7, "time_us": time + 7,
            "frames": frames(&["backward", "main"])},
        {"action": "free_requested", "addr": 3072, "size": 1000, "stream": 7, "time_us": time + 8,
            "frames": frames(&["drop"])},
        {"action": "free_requested", "addr": 1536, "size": 600, "stream": 0, "time_us": time + 9,
            "frames": frames(&["forward", "main"])},
        {"action": "free_completed", "addr": 1536, "size": 600, "stream": 0, "time_us": time + 10,
            "frames": frames(&["forward", "main"])},
        {"action": "oom", "device_free": 4096, "size": 9_000_000_000_u64, "stream": 0, "time_us": time + 12,
            "frames": frames(&["backward", "main"])},
    ]);
    assert_eq!(Value::Array(events.clone()), expected);
}

#[test]
fn what_pytorch_does_not_record_stays_out_of_the_history_that_its_viewer_shows() {
    let (value, _) = as_json(&step());
    let known: Vec<&str> = Action::known().iter().map(|action| action.name()).collect();
    let events = value["device_traces"][0].as_array().unwrap();
    assert!(events.iter().all(|event| known.contains(&event["action"].as_str().unwrap())), "{events:?}");
    let annotations = value["external_annotations"].as_array().unwrap().iter();
    let named: Vec<String> = annotations.map(|end| format!("{} {}", end["stage"], end["name"])).collect();
    for name in ["ProfilerStep#0", "forward", "backward", "half way"] {
        for stage in ["START", "END"] {
            assert!(named.contains(&format!("\"{stage}\" \"{name}\"")), "{named:?}");
        }
    }
    let whole = recover(&raw(&value)).unwrap().unwrap();
    assert_eq!(text_from_trace(&whole), text_from_trace(&step()), "and nothing is lost on the way back");
}

#[test]
fn the_final_state_is_reported_segment_by_segment_without_gaps() {
    let (value, _) = as_json(&step());
    let blocks = |segment: usize| -> Vec<String> {
        let text = |block: &Value| {
            let state = block["state"].as_str().unwrap();
            format!("{} {} {} {state}", block["address"], block["size"], block["requested_size"])
        };
        value["segments"][segment]["blocks"].as_array().unwrap().iter().map(text).collect()
    };
    let first = [
        "0 1024 1000 active_allocated",
        "1024 512 500 active_pending_free",
        "1536 1024 0 inactive",
        "2560 512 100 active_allocated",
        "3072 1024 1000 active_pending_free",
    ];
    assert_eq!(blocks(0), first);
    assert_eq!(blocks(1), ["4096 2048 0 inactive"]);
    let mut segment = value["segments"][1].clone();
    segment.as_object_mut().unwrap().remove("blocks");
    let expected = json!({
        "device": 0, "address": 4096, "total_size": 2048, "allocated_size": 0, "active_size": 0, "requested_size": 0,
        "stream": 7, "segment_type": "large", "segment_pool_id": [0, 0], "is_expandable": true,
        "frames": [{"name": "grow", "filename": "??", "line": 0}, {"name": "main", "filename": "??", "line": 0}],
    });
    assert_eq!(segment, expected);
    let sizes = |key: &str| value["segments"][0][key].as_u64().unwrap();
    assert_eq!([sizes("allocated_size"), sizes("active_size"), sizes("requested_size")], [1536, 3072, 2600]);
    assert_eq!(value["allocator_settings"], json!({"expandable_segments": true}));
    assert_eq!(value["external_annotations"].as_array().unwrap().len(), 8);
    assert_eq!(value.get("host_traces"), None);
}

#[test]
fn a_small_pickle_is_made_of_few_opcodes() {
    let trace = trace_from_text("segment_alloc 0x0 2097152 small < f\nalloc a 70000 < f").unwrap();
    let mut bytes = Vec::new();
    write_pickle(&mut bytes, &trace, &mut |_| ControlFlow::Continue(())).unwrap();
    let listing = unpickle(&bytes).listing;
    let (listing, embedded) = listing.split_once("SHORT_BINUNICODE \"highwater\"").unwrap();
    assert!(embedded.contains("BINUNICODE \"snap1:"), "{embedded}");
    expect![[r#"
        PROTO 4
        EMPTY_DICT
        MARK
          SHORT_BINUNICODE "segments"
          BINPUT 0
          EMPTY_LIST
          MARK
            EMPTY_DICT
            MARK
              SHORT_BINUNICODE "device"
              BINPUT 1
              BININT1 0
              SHORT_BINUNICODE "address"
              BINPUT 2
              BININT1 0
              SHORT_BINUNICODE "total_size"
              BINPUT 3
              BININT 2097152
              SHORT_BINUNICODE "allocated_size"
              BINPUT 4
              BININT 70000
              SHORT_BINUNICODE "active_size"
              BINPUT 5
              BININT 70000
              SHORT_BINUNICODE "requested_size"
              BINPUT 6
              BININT 70000
              SHORT_BINUNICODE "stream"
              BINPUT 7
              BININT1 0
              SHORT_BINUNICODE "segment_type"
              BINPUT 8
              SHORT_BINUNICODE "small"
              BINPUT 9
              SHORT_BINUNICODE "segment_pool_id"
              BINPUT 10
              BININT1 0
              BININT1 0
              TUPLE2
              BINPUT 128
              SHORT_BINUNICODE "is_expandable"
              BINPUT 11
              NEWFALSE
              SHORT_BINUNICODE "frames"
              BINPUT 12
              EMPTY_LIST
              MARK
                EMPTY_DICT
                MARK
                  SHORT_BINUNICODE "name"
                  BINPUT 13
                  SHORT_BINUNICODE "f"
                  BINPUT 129
                  SHORT_BINUNICODE "filename"
                  BINPUT 14
                  SHORT_BINUNICODE "??"
                  BINPUT 15
                  SHORT_BINUNICODE "line"
                  BINPUT 16
                  BININT1 0
                SETITEMS
                BINPUT 130
              APPENDS
              BINPUT 131
              SHORT_BINUNICODE "blocks"
              BINPUT 17
              EMPTY_LIST
              MARK
                EMPTY_DICT
                MARK
                  BINGET 2
                  BININT1 0
                  SHORT_BINUNICODE "size"
                  BINPUT 18
                  BININT 70000
                  BINGET 6
                  BININT 70000
                  SHORT_BINUNICODE "state"
                  BINPUT 19
                  SHORT_BINUNICODE "active_allocated"
                  BINPUT 20
                  BINGET 12
                  BINGET 131
                SETITEMS
                EMPTY_DICT
                MARK
                  BINGET 2
                  BININT 70000
                  BINGET 18
                  BININT 2027152
                  BINGET 6
                  BININT1 0
                  BINGET 19
                  SHORT_BINUNICODE "inactive"
                  BINPUT 21
                  BINGET 12
                  EMPTY_LIST
                SETITEMS
              APPENDS
            SETITEMS
          APPENDS
          SHORT_BINUNICODE "device_traces"
          BINPUT 22
          EMPTY_LIST
          MARK
            EMPTY_LIST
            MARK
              EMPTY_DICT
              MARK
                SHORT_BINUNICODE "action"
                BINPUT 23
                SHORT_BINUNICODE "segment_alloc"
                BINPUT 24
                SHORT_BINUNICODE "addr"
                BINPUT 25
                BININT1 0
                BINGET 18
                BININT 2097152
                BINGET 7
                BININT1 0
                SHORT_BINUNICODE "time_us"
                BINPUT 26
                BININT1 1
                BINGET 12
                BINGET 131
              SETITEMS
              EMPTY_DICT
              MARK
                BINGET 23
                SHORT_BINUNICODE "alloc"
                BINPUT 27
                BINGET 25
                BININT1 0
                BINGET 18
                BININT 70000
                BINGET 7
                BININT1 0
                BINGET 26
                BININT1 2
                BINGET 12
                BINGET 131
              SETITEMS
            APPENDS
          APPENDS
          SHORT_BINUNICODE "allocator_settings"
          BINPUT 28
          EMPTY_DICT
          SHORT_BINUNICODE "external_annotations"
          BINPUT 29
          EMPTY_LIST
  "#]]
    .assert_eq(listing.trim_end_matches(' '));
}

#[test]
fn the_recording_comes_back_whole_from_what_was_written() {
    for (value, _) in [as_json(&step()), (pickled(&step()).0.value, pickled(&step()).1)] {
        let raw = raw(&value);
        let back = recover(&raw).unwrap().unwrap();
        assert_eq!(text_from_trace(&back), text_from_trace(&step()));
        assert_eq!((&back.header, &back.devices), (&step().header, &step().devices));
        let mut edited = raw;
        edited.traces[0].pop();
        assert!(recover(&edited).unwrap().is_err());
    }
}

#[test]
fn devices_have_their_places_and_host_memory_its_own() {
    let text = "segment_alloc 0x0 512 device=2\nalloc a 512 device=2\nsegment_alloc 0x0 512 device=255\n\
                alloc p 256/512 device=255\nmark here\nfree a device=2";
    let (value, exported) = as_json(&trace_from_text(text).unwrap());
    let lengths: Vec<usize> =
        value["device_traces"].as_array().unwrap().iter().map(|events| events.as_array().unwrap().len()).collect();
    assert_eq!(lengths, [0, 0, 4]);
    let mark = &value["external_annotations"][0];
    assert_eq!((&mark["name"], &mark["device"]), (&"here".into(), &2.into()), "a mark goes where the events are");
    assert_eq!(value["host_traces"].as_array().unwrap().len(), 2);
    assert_eq!((&value["segments"][0]["device"], &value["host_segments"][0]["device"]), (&2.into(), &(-1).into()));
    assert_eq!(exported.events, 7, "the mark among them");
    let digest = EventDigest::of(&raw(&value));
    assert!(value["highwater"].as_str().unwrap().starts_with(&format!("snap1:{digest:08x}:")));
    let (nothing, _) = as_json(&Trace::default());
    assert_eq!((&nothing["device_traces"], &nothing["segments"]), (&json!([[]]), &json!([])));
}

#[test]
fn facts_that_a_snapshot_brought_along_are_given_back() {
    let text = "mark teleport\nmark annotate\nmark free_completed\nalloc a 512 < f";
    let trace = trace_from_text(text).unwrap().edited(|trace| {
        let mut give = |event: u32, name: &str, value: &str| {
            let strings = &mut trace.tables.strings;
            strings.extend([name.to_owned(), value.to_owned()]);
            let row = strings.len() as u32;
            let (owner, name, value) = (Owner::Event(EventId(event)), StringId(row - 2), StringId(row - 1));
            trace.attributes.push(Attribute { owner, name, value });
        };
        give(0, "action", "teleport");
        give(1, "action", "annotate");
        give(1, "addr", "4096");
        give(1, "size", "512");
        give(1, "user_metadata", "saved");
        give(2, "action", "free_completed");
        give(3, "compile_context", "Torch-Compiled Region: 0/0");
        give(3, "pool_id", "(0, 1)");
        give(3, "category", "ACTIVATION");
        give(3, "forward_frames", "  File \"a.py\", line 1, in f\n");
    });
    let (value, _) = as_json(&trace);
    let mut events = value["device_traces"][0].clone();
    for event in events.as_array_mut().unwrap() {
        event.as_object_mut().unwrap().retain(|key, _| !["time_us", "stream", "frames"].contains(&key.as_str()));
    }
    let expected = json!([
        {"action": "teleport", "addr": 0, "size": 0, "category": "unknown"},
        {"action": "annotate", "addr": 4096, "size": 512, "user_metadata": "saved"},
        {"action": "alloc", "addr": 0, "size": 512, "compile_context": "Torch-Compiled Region: 0/0", "pool_id": [0, 1],
            "category": "ACTIVATION", "forward_frames": ["  File \"a.py\", line 1, in f\n"]},
    ]);
    assert_eq!(events, expected, "a mark never becomes an action that changes blocks");
    assert_eq!(pickled(&trace).0.value, value);
}

#[test]
fn what_does_not_fit_is_reported() {
    let text = "alloc a 100\nalloc a 50\nfree a\nfree_requested gone\nalloc b 10";
    let (value, exported) = as_json(&trace_from_text(text).unwrap());
    let actions: Vec<&str> =
        value["device_traces"][0].as_array().unwrap().iter().map(|event| event["action"].as_str().unwrap()).collect();
    let frees = ["free_requested", "free_completed"];
    assert_eq!(actions, [&["alloc"][..], &frees, &["alloc"], &frees, &["alloc"]].concat());
    let lost = exported.lost.join("\n");
    assert!(lost.contains("1 segment invented (160 B)"), "{lost}");
    assert!(lost.contains("1 free left out") && lost.contains("1 block freed right before"), "{lost}");
    assert_eq!(exported.lost.len(), 3);
}

#[test]
fn where_every_event_has_a_category_a_snapshot_event_says_unknown() {
    let (value, _) = as_json(&trace_from_text("alloc a 100/512 parameter").unwrap());
    let last = &value["device_traces"][0][1];
    assert_eq!(
        (&last["action"], &last["category"], &last["size"]),
        (&"snapshot".into(), &"unknown".into(), &512.into())
    );
    assert!(recover(&raw(&value)).unwrap().is_ok());
}

#[test]
fn long_traces_are_written_in_batches_and_can_be_called_off() {
    let text: String = (0..2500).map(|at| format!("alloc b{at} 512 < f{} < main\n", at % 3)).collect();
    let trace = trace_from_text(&text).unwrap();
    let (pickled, exported) = pickled(&trace);
    assert_eq!((pickled.largest_batch, exported.events), (1000, 2500));
    let stacks = pickled.listing.matches("\"f1\"").count();
    assert_eq!(stacks, 1, "a stack is written once");
    let stopped = write_pickle(Vec::new(), &trace, &mut |_| ControlFlow::Break(()));
    assert!(matches!(stopped, Err(Error::Cancelled)));
}
