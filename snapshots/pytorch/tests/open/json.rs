//! Tests of snapshots as JSON: complete, old, unusual and invalid files.

use std::ops::ControlFlow;

use highwater_pytorch::json::{read_json, read_json_bytes};
use highwater_pytorch::pickle::read_pickle;
use highwater_pytorch::raw::{Action, BlockState};
use highwater_pytorch::{RawSnapshot, Sequences};
use highwater_snapshots::Error;
use serde_json::json;

use crate::made::{contents, go, pickle, snapshot};

/// Reads `text` from memory and from a stream, which must agree.
fn read(text: &str) -> Result<RawSnapshot, String> {
    let read = read_json_bytes(text.as_bytes(), &mut go).map_err(|error| error.to_string());
    let streamed = read_json(text.as_bytes(), &mut go).map_err(|error| error.to_string());
    // A stream may have been read one byte further.
    let without_place = |error: &String| error.split_once(": ").map(|(_, what)| what.to_owned());
    assert_eq!(
        read.as_ref().map(contents).map_err(without_place),
        streamed.as_ref().map(contents).map_err(without_place)
    );
    read
}

fn problems(raw: &RawSnapshot) -> Vec<String> {
    raw.problems.iter().map(ToString::to_string).collect()
}

#[test]
fn json_and_pickle_say_the_same() {
    let text = snapshot().to_string();
    let from_text = read(&text).unwrap();
    let from_pickle = read_pickle(&pickle(&snapshot(), 4), &mut go).unwrap();
    assert_eq!(contents(&from_text), contents(&from_pickle));
    assert_eq!(problems(&from_text), [""; 0]);
    assert_eq!(from_text.traces.iter().map(Vec::len).collect::<Vec<_>>(), [5, 1]);
    assert_eq!(from_text.highwater.as_deref(), Some("kept"));
    assert_eq!(from_text.host_segments[0].device, -1);
    let oom = from_text.traces[1][0];
    assert_eq!((oom.action, oom.address, oom.size), (Action::Oom, 4096, 8192));
    let pretty = serde_json::to_string_pretty(&snapshot()).unwrap();
    assert_eq!(contents(&read(&pretty).unwrap()), contents(&from_text));
}

#[test]
fn shapes_and_sources_of_torch_snapkit_are_read_from_json_and_pickles() {
    let mut value = snapshot();
    value["shape_data"] = json!([{}, {
        "0x7f00": [
            ["aten.mm.default", [4, 8], "torch.bfloat16"],
            ["aten.t.default", [8, 4], "torch.bfloat16"],
            ["aten.add_.Tensor", [4, 8], "torch.bfloat16"],
            ["aten.add.out", [4, 8], "torch.bfloat16"],
            ["aten.sum.default", [], "torch.float32"],
            ["aten.zeros.default", [1, 2, 3], "torch.int64"],
            ["aten.zeros.default", [1], "torch.unknown"],
        ],
        "7f00": [],
    }]);
    value["source_code"] =
        json!({"/net.py": "import torch\n", "/copy.py": "import torch\n", "/line.py": "mm", "/none.py": null});
    let from_text = read(&value.to_string()).unwrap();
    let from_pickle = read_pickle(&pickle(&value, 4), &mut go).unwrap();
    for raw in [from_text, from_pickle] {
        let shapes: Vec<_> =
            raw.logged_shapes.iter().map(|one| (one.device, one.address, one.bytes, &*one.shape)).collect();
        let expected =
            [(1, 0x7f00, 64, "[4, 8] bfloat16"), (1, 0x7f00, 4, "[] float32"), (1, 0x7f00, 48, "[1, 2, 3] int64")];
        assert_eq!(shapes, expected);
        let sources: Vec<_> = raw.sources.iter().map(|one| (&*one.path, &*one.text)).collect();
        assert_eq!(sources.len(), 3);
        for file in [("/net.py", "import torch\n"), ("/copy.py", "import torch\n"), ("/line.py", "mm")] {
            assert!(sources.contains(&file), "{sources:?}");
        }
        assert!(raw.strings.iter().all(|text| text != "import torch\n"), "a text is there once");
        assert_eq!(problems(&raw).len(), 3, "{:?}", problems(&raw));
    }
}

#[test]
fn one_text_under_many_paths_is_copied_to_64_mib_at_most() {
    let text = "x = 1\n".repeat(1 << 20);
    let put = |text: &str| [&b"X"[..], &(text.len() as u32).to_le_bytes(), text.as_bytes()].concat();
    let mut bytes = [&b"\x80\x04}("[..], &put("segments"), b"]", &put("source_code"), b"}("].concat();
    for number in 0..20 {
        bytes.extend(put(&format!("/{number}.py")));
        // The text is memoized at its first path.
        bytes.extend(if number == 0 { [put(&text), b"q\0".to_vec()].concat() } else { b"h\0".to_vec() });
    }
    bytes.extend(b"uu.");
    let raw = read_pickle(&bytes, &mut go).unwrap();
    assert_eq!(raw.sources.len(), 10, "of 6 MiB each");
    assert!(raw.sources.iter().all(|one| one.text == text));
    let problems = problems(&raw);
    let is_counted = |problem: &String| {
        problem.contains("10 times: an entry of 'source_code' was skipped: the texts exceed 64 MiB in all")
    };
    assert!(problems.iter().any(is_counted), "{problems:?}");
}

#[test]
fn settings_in_dicts_are_laid_flat_and_read_as_pytorch_prints_them() {
    let raw = read(
        r#"{"segments": [], "allocator_settings": {"a": {"1": 0, "b": {"c": -1}}, "on": true, "off": false,
            "share": 0.5, "zero": 0.0, "none": null, "list": [1, "x"], "a": {"1": 2}}}"#,
    )
    .unwrap();
    let settings: Vec<(&str, &str)> = raw.settings.iter().map(|(name, value)| (&**name, &**value)).collect();
    let expected = [
        ("a.1", "2"),
        ("a.b.c", "-1"),
        ("on", "True"),
        ("off", "False"),
        ("share", "0.5"),
        ("zero", "0.0"),
        ("none", "None"),
        ("list", "[1, x]"),
    ];
    assert_eq!(settings, expected);
}

#[test]
fn an_old_list_of_segments_with_histories_is_a_snapshot() {
    let raw = read(
        r#"[{"device": 1, "address": 1000, "total_size": 1536, "segment_type": "large", "blocks": [
              {"size": 512, "state": "active_allocated", "history": [
                 {"addr": 1000, "real_size": 500, "frames": [{"name": "new", "filename": "a.py", "line": 1}]},
                 {"addr": 1000, "real_size": 400, "frames": []}]},
              {"size": 1024, "state": "inactive", "history": null}]}]"#,
    )
    .unwrap();
    assert_eq!(problems(&raw), [""; 0]);
    assert_eq!((raw.segments[0].device, raw.segments[0].is_small), (1, false));
    let [first, second] = &raw.blocks[..] else { panic!("two blocks") };
    assert_eq!((first.address, first.requested_size, first.state), (1000, 500, BlockState::Allocated));
    assert_eq!(raw.strings[raw.frames[raw.stacks.get(first.stack)[0] as usize].name.0 as usize], "new");
    assert_eq!((second.address, second.requested_size, second.stack), (1512, 1024, Sequences::NONE));
    assert!(read("[]").unwrap().segments.is_empty());
}

#[test]
fn what_is_missing_or_null_is_empty() {
    let raw = read(
        r#"{"device_traces": [null, [], [{"action": "alloc"}, {}, {"action": null, "frames": null, "pool_id": null}]],
            "segments": null, "external_annotations": null, "allocator_settings": null, "host_traces": null}"#,
    )
    .unwrap();
    assert_eq!(raw.traces.iter().map(Vec::len).collect::<Vec<_>>(), [0, 0, 3]);
    assert_eq!((raw.traces[2][0].action, raw.traces[2][0].stack), (Action::Alloc, Sequences::NONE));
    assert_eq!(problems(&raw), ["2 times: unknown action '(none)' (kept as a mark)"]);
}

#[test]
fn what_does_not_fit_is_counted_and_taken_as_missing() {
    let raw = read(
        r#"{"segments": [{"is_expandable": 3, "segment_type": "huge", "device": 1e30, "address": 1, "blocks":
              [{"state": "asleep", "size": "512"}]}],
            "device_traces": [[
              {"action": "alloc", "addr": -5, "size": 1.5, "time_us": 99999999999999999999, "stream": [1, [2]],
               "pool_id": [1], "frames": [{"line": 99999999999, "name": {"a": 1}}], "new": {"deep": [1, 2]}},
              {"action": "alloc", "new": 1, "user_metadata": 4}]],
            "external_annotations": [{"stage": "MIDDLE", "name": "a"}],
            "future": [1, {"a": [null]}]}"#,
    )
    .unwrap();
    let found = problems(&raw);
    for part in [
        "2 times: unexpected key 'new' in events (ignored)",
        "once: unexpected key 'future' in the snapshot (ignored)",
        "'addr': expected a non-negative integer below 2^64, got an integer (treated as missing)",
        "'size': expected a non-negative integer below 2^64, got a float",
        "'time_us': expected a non-negative integer below 2^64, got a float",
        "'stream': expected a non-negative integer below 2^64, got a list",
        "'pool_id': expected two integers, got a list",
        "'line': expected a non-negative integer below 2^32, got an integer",
        "'name': expected a string, got a dict",
        "'user_metadata': expected a string, got an integer",
        "'is_expandable': expected a bool, got an integer",
        "'segment_type' is 'huge', not 'small' or 'large' (treated as 'large')",
        "'device': expected a device's ordinal, got a float",
        "unknown block state 'asleep'",
        "'size': expected a non-negative integer below 2^64, got a string",
        "'stage' is 'MIDDLE', not 'START' or 'END' (treated as 'END')",
    ] {
        assert!(found.iter().any(|problem| problem.contains(part)), "{part} in {found:#?}");
    }
    let event = raw.traces[0][0];
    assert_eq!((event.address, event.size, event.time_us, event.stream, event.extras), (0, 0, 0, 0, 0));
    assert_eq!(raw.frames[0].line, 0);
}

#[test]
fn the_last_of_keys_that_are_there_twice_counts() {
    let raw = read(
        r#"{"segments": [{"address": 1, "blocks": []}, {"address": 2}], "device_traces": [[{"size": 1}], [{"size": 2}]],
            "segments": [{"address": 3, "blocks": [{"size": 1}], "address": 4, "blocks": [{"size": 2}, {"size": 3}]}],
            "device_traces": [[{"action": "alloc", "size": 3, "size": 4}]]}"#,
    )
    .unwrap();
    assert_eq!(raw.segments.iter().map(|segment| segment.address).collect::<Vec<_>>(), [4]);
    assert_eq!(raw.blocks.iter().map(|block| block.size).collect::<Vec<_>>(), [2, 3]);
    assert_eq!(raw.traces.iter().flatten().map(|event| event.size).collect::<Vec<_>>(), [4]);
}

#[test]
fn parts_within_parts_of_their_kind_are_left_out() {
    let blocks = vec![r#"{"size": 1}"#; 600].join(",");
    let nested = r#"{"size": 2, "state": "inactive", "blocks": [{"size": 7}, {"size": 8}], "history": [null, 3]}"#;
    assert!(read(&format!(r#"{{"segments": [{{"address": 1, "blocks": [{nested}]}}]}}"#)).is_err(), "3 is no tenant");
    let nested = nested.replace(", 3]", "]");
    let raw = read(&format!(
        r#"{{"segments": [{{"address": 1, "blocks": [{blocks}, {nested}, {{"size": 3, "device_traces": [[{{}}]]}}]}}],
            "device_traces": [[{{"action": "alloc", "blocks": [{{}}], "segments": [{{"address": 1}}],
              "frames": [{{"name": "f", "frames": [{{"name": "g"}}]}}, {{"name": "h"}}]}}]]}}"#
    ))
    .unwrap();
    assert_eq!(raw.blocks.len(), 602);
    assert_eq!(raw.blocks[599..].iter().map(|block| block.size).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!((raw.traces[0].len(), raw.segments.len()), (1, 1));
    let names = raw.stacks.get(raw.traces[0][0].stack).iter().map(|row| raw.frames[*row as usize].name.0 as usize);
    assert_eq!(names.map(|name| raw.strings[name].as_str()).collect::<Vec<_>>(), ["f", "h"]);
}

#[test]
fn something_else_where_a_list_or_dict_must_be_is_damage_with_its_place() {
    let cases = [
        (
            r#"{"segments": 5}"#,
            "damaged at byte 13: in the JSON text: invalid type: integer `5`, expected a list of segments",
        ),
        (r#"{"device_traces": {"a": 1}}"#, "expected a list of the devices' lists of events"),
        (
            "{\"device_traces\":\n [\n  [7]]}",
            "damaged at byte 24: in the JSON text: invalid type: integer `7`, expected a dict in events",
        ),
        (r#"{"device_traces": [[{"frames": "x"}]]}"#, "expected a list of frames"),
        (r#"{"segments": [{"blocks": [[]]}]}"#, "expected a dict in blocks"),
        (r#"{"segments": []} x"#, "damaged at byte 17"),
        (r#"{"segments": ["#, "the JSON text ends early"),
        (r#"5"#, "expected a memory snapshot"),
        (r#"{"segments" []}"#, "expected `:`"),
    ];
    for (text, expected) in cases {
        let error = read(text).unwrap_err();
        assert!(error.contains(expected), "{text}: {error}");
    }
    let long = format!(r#"{{"segments": "{}"}}"#, "x".repeat(1 << 20));
    assert!(read(&long).unwrap_err().len() < 400);
}

#[test]
fn json_of_something_else_is_recognized_by_its_keys() {
    let error = read(r#"{"schemaVersion": 1, "traceEvents": [{"ph": "X"}]}"#).unwrap_err();
    assert!(error.contains("a JSON dict with the keys 'schemaVersion', 'traceEvents'"), "{error}");
    assert!(
        read(r#"[{"a": 1}, {"b": 2}]"#)
            .unwrap_err()
            .contains("a JSON list of other values, the first of which is a dict")
    );
    assert!(read("{}").unwrap_err().contains("an empty JSON dict"));
}

#[test]
fn nesting_without_end_ends_in_an_error() {
    let deep = |open: &str, shut: &str| open.repeat(5000) + "1" + &shut.repeat(5000);
    assert!(read(&deep("[", "]")).is_err());
    assert!(read(&format!(r#"{{"segments": {}}}"#, deep("[", "]"))).is_err());
    let settings = format!(r#"{{"segments": [], "allocator_settings": {}}}"#, deep(r#"{"a":"#, "}"));
    assert!(read(&settings).unwrap_err().contains("recursion limit"));
    // What is not known is passed over, however deep.
    assert_eq!(problems(&read(&format!(r#"{{"segments": [], "x": {}}}"#, deep("[", "]"))).unwrap()).len(), 1);
}

#[test]
fn long_names_and_many_settings_take_little() {
    let many: Vec<String> = (0..10_000).map(|number| format!("\"s{number}\": 1")).collect();
    let long = "k".repeat(100_000);
    let text = format!(
        r#"{{"segments": [], "allocator_settings": {{"{long}": {{"a": 1}}, {}}}, "{long}": 1}}"#,
        many.join(",")
    );
    let raw = read(&text).unwrap();
    assert_eq!(raw.settings.len(), 4096);
    assert!(problems(&raw).iter().all(|problem| problem.len() < 200));
    assert_eq!(raw.problems.len(), 3);
}

#[test]
fn the_listener_hears_how_far_reading_is_and_stops_it() {
    let event = json!({"action": "alloc", "addr": 4096, "size": 512, "frames": [{"name": "a", "line": 1}]}).to_string();
    let text = format!(r#"{{"segments": [], "device_traces": [[{}]]}}"#, vec![event; 60_000].join(","));
    for is_stream in [false, true] {
        let mut heard = Vec::new();
        let mut listener = |now: highwater_snapshots::format::Progress| {
            heard.push((now.bytes_read, now.events));
            if now.events > 30_000 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let read = if is_stream {
            read_json(text.as_bytes(), &mut listener)
        } else {
            read_json_bytes(text.as_bytes(), &mut listener)
        };
        assert!(matches!(read, Err(Error::Cancelled)));
        assert!(heard.windows(2).all(|pair| pair[0] < pair[1] && pair[1].0 - pair[0].0 < 2 << 20), "{heard:?}");
        let &(bytes, events) = heard.last().unwrap();
        assert!(heard.len() >= 3 && (30_000..60_000).contains(&events), "{heard:?}");
        assert!(bytes < text.len() as u64 && bytes > text.len() as u64 / 2);
    }
}
