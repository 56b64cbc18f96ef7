//! Tests the output about reserved memory by pool and its growth.

use highwater_notation::trace_from_text;
use highwater_snapshots::Trace;

use crate::sample::{answer, json};

/// Weights, and graphs that are each captured into a private pool: all blocks of a graph are freed at its end.
fn graphs() -> Trace {
    let mut text = "segment_alloc 0x10000000 6291456\nalloc w 6291456 parameter < model.py:3 init\n".to_owned();
    for graph in 1..4_u64 {
        let (address, bytes) = (0x1000_0000 + graph * 0x100_0000, graph << 20);
        text += &format!(
            "segment_alloc {address} {bytes} < capture.py:8 capture\nattribute segment_pool_id \"(0, {graph})\"\n\
             alloc g{graph} {bytes} < capture.py:8 capture\nfree g{graph}\n"
        );
    }
    trace_from_text(&text)
        .unwrap()
        .edited(|trace| trace.blocks.address = (0..4).map(|row| 0x1000_0000 + row * 0x100_0000).collect())
}

/// Steps that each use their own stream.
fn streams() -> Trace {
    let step = |step: u64| {
        format!(
            "step {step}\nphase forward\nsegment_alloc {} 268435456 stream={step} < loader.py:9 prefetch\n\
             alloc a{step} 268435456 stream={step} < loader.py:9 prefetch\nfree a{step}\n",
            step << 32
        )
    };
    trace_from_text(&(0..8).map(step).collect::<String>()).unwrap()
}

#[test]
fn reserved_memory_is_grouped_by_the_pool_that_it_lies_in() {
    let text = answer(graphs(), "peak a.snap --metric reserved --by pool").unwrap();
    assert!(text.starts_with("Peak: 12 MiB reserved"), "{text}");
    for line in ["large  6 MiB", "(0,3)  3 MiB", "(0,2)  2 MiB", "(0,1)  1 MiB"] {
        let words: Vec<&str> = line.split_whitespace().collect();
        let is_row = |row: &str| row.split_whitespace().take(words.len()).eq(words.iter().copied());
        assert!(text.lines().any(is_row), "{line}: {text}");
    }
    let apart = "3 private pools ((0,1) (0,2) (0,3)) are never in use at the same time: 6 MiB reserved, at most 3 MiB";
    assert!(text.contains(apart), "{text}");
    assert!(text.lines().any(|row| row.split_whitespace().eq(["pool", "bytes", "share", "free", "blocks"])), "{text}");
    let found = json(graphs(), "peak a.snap --metric reserved --by pool,size --json");
    let groups = found["groups"].as_array().unwrap();
    let sum: u64 = groups.iter().map(|group| group["bytes"].as_u64().unwrap()).sum();
    assert_eq!((sum, &found["bytes"]), (12 << 20, &serde_json::json!(12 << 20)));
    let free = groups.iter().find(|group| group["keys"]["pool"] == "(0,2)").unwrap();
    assert_eq!(free["keys"]["size"], "(free in segments of 2 MiB)");
    assert_eq!((&free["free_bytes"], &free["blocks"]), (&serde_json::json!(2 << 20), &serde_json::json!(0)));
    let never: Vec<&str> =
        found["pools"][2]["never_in_use_with"].as_array().unwrap().iter().filter_map(|name| name.as_str()).collect();
    assert_eq!(never.len(), 2, "{found}");
    // By other keys they are a separate group.
    let found = json(graphs(), "peak a.snap --metric reserved --by category --json");
    let keys: Vec<&str> =
        found["groups"].as_array().unwrap().iter().filter_map(|group| group["key"].as_str()).collect();
    assert_eq!(keys, ["parameter", "(free in segments)"], "{found}");
    assert!(found["pools"].is_null());
}

#[test]
fn differences_of_reserved_memory_name_pools_and_sizes_of_segments() {
    let found = json(graphs(), "diff a.snap --at end --at-b peak --metric reserved --by pool,size --json");
    assert_eq!(found["delta_bytes"], 0);
    let by_default = json(graphs(), "diff a.snap --at end --at-b peak --metric reserved --json");
    assert_eq!(by_default["groups"], found["groups"]);
    let text = answer(graphs(), "explain a.snap").unwrap();
    assert!(text.contains("free in segments of pool"), "{text}");
    let found = json(graphs(), "explain a.snap --json");
    assert_eq!(found["free_in_segments"].as_array().unwrap().len(), 2, "{found}");
}

#[test]
fn growth_of_reserved_memory_is_named_with_its_cause_and_line() {
    let text = answer(streams(), "growth a.snap").unwrap();
    assert!(text.starts_with("Live memory does not grow"), "{text}");
    let but = "But reserved memory grows by 1.75 GiB in these steps, 256 MiB a step on average: 1.50 GiB are free in 6 segments \
               cached for 6 streams";
    assert!(text.replace('\n', " ").contains(but), "{text}");
    let text = answer(streams(), "growth a.snap --metric reserved").unwrap();
    assert!(
        text.starts_with("Reserved memory grows from the start of step 1 to the end of step 7: 1.75 GiB"),
        "{text}"
    );
    assert!(
        text.contains("loader.py:9 prefetch reserves segments that are kept in every step, 256 MiB a step"),
        "{text}"
    );
    assert!(text.contains("one stream would need 256 MiB in all"), "{text}");
    let found = json(streams(), "growth a.snap --json");
    assert_eq!(found["reserved"]["growth_bytes"], 7_u64 << 28);
    assert_eq!(found["reserved"]["causes"][0]["cause"], "unused_stream");
    let found = json(streams(), "growth a.snap --metric reserved --json");
    assert_eq!(
        (&found["growth_bytes"], &found["leaks"][0]["line"]),
        (&serde_json::json!(7_u64 << 28), &serde_json::json!("loader.py:9 prefetch"),)
    );
    assert!(answer(streams(), "growth a.snap --metric reserved --where size>1").is_err());
}

#[test]
fn growth_of_reserved_memory_is_named_without_steps_too() {
    let step = |step: u64| {
        format!(
            "segment_alloc {} 2097152 stream={step}\nalloc a{step} 2097152 stream={step}\nfree a{step}\n",
            step << 32
        )
    };
    let trace = || trace_from_text(&(0..20).map(step).collect::<String>()).unwrap();
    let text = answer(trace(), "growth a.snap").unwrap().replace('\n', " ");
    let but =
        "But reserved memory grows by 40 MiB in the recording: 36 MiB are free in 18 segments cached for 18 streams";
    assert!(text.contains(but), "{text}");
    let found = json(trace(), "growth a.snap --metric reserved --json");
    let causes = found["causes"].as_array().unwrap();
    let sum: i64 = causes.iter().map(|cause| cause["bytes"].as_i64().unwrap()).sum();
    assert_eq!((sum, causes[0]["cause"].as_str()), (40 << 20, Some("unused_stream")), "{found}");
}

#[test]
fn a_budget_of_the_growth_of_reserved_memory_names_streams_and_line() {
    let found = json(streams(), "check a.snap --max-reserved-growth 0B --max-step-growth 0B --json");
    let broken = found["broken"].as_array().unwrap();
    assert_eq!((broken.len(), &broken[0]["rule"]), (1, &serde_json::json!("max-reserved-growth")));
    assert_eq!(broken[0]["actual_bytes"], 1 << 28);
    let culprit = broken[0]["culprit"].as_str().unwrap();
    assert!(culprit.contains("6 streams") && culprit.contains("`loader.py:9 prefetch` 256 MiB a step"), "{culprit}");
    assert_eq!(json(streams(), "check a.snap --max-reserved-growth 256MiB --json")["passed"], true);
}
