//! Tests out-of-memory causes that need a replay, on recordings made by the allocator itself.

use std::fmt::Write as _;

use expect_test::expect;
use highwater_analysis::{Metric, Source};
use highwater_app::answers::prediction::Change;
use highwater_app::answers::replays::predict;
use highwater_notation::trace_from_text;
use highwater_snapshots::trace::DeviceFacts;
use highwater_snapshots::{DeviceId, Trace};
use serde_json::Value;

use crate::sample::{answer, answer_on_terminal, crowded, json, trace};

const MIB: u64 = 1 << 20;

/// What the allocator makes of the requests of `text` on a device of 100 MiB, up to the one that fails.
fn run_out(text: &str, alloc_conf: Option<&str>) -> Trace {
    let trace = trace_from_text(text)
        .unwrap()
        .edited(|trace| trace.devices = vec![DeviceFacts { capacity_bytes: 100 * MIB, ..DeviceFacts::default() }]);
    let change = Change { capacity: Some(100 * MIB), alloc_conf: alloc_conf.map(str::to_owned), ..Change::default() };
    let changed = predict(&Source::in_memory(&trace), &change).unwrap().changed.unwrap();
    assert!(changed.oom.is_some(), "the last request of the text fails");
    changed.recording.facts().clone()
}

/// An `alloc` line for so many MiB.
fn alloc(name: &str, mebibytes: u64, rest: &str) -> String {
    format!("alloc {name} {} {rest}\n", mebibytes * MIB)
}

fn remedy(ooms: &Value, name: &str) -> Option<bool> {
    let remedies = ooms["remedies"].as_array().unwrap();
    remedies
        .iter()
        .find(|one| one["remedy"].as_str().unwrap().starts_with(name))
        .map(|one| one["met"].as_bool().unwrap())
}

fn only(trace: &Trace) -> Value {
    let mut told = json(trace.clone(), "oom a.snap --json");
    assert_eq!(told["ooms"].as_array().unwrap().len(), 1, "{told}");
    told["ooms"][0].take()
}

/// Nine blocks of 10 MiB live, and a request for 20 more: 99% full, as far as whole segments go.
fn full() -> String {
    let mut text = "step 0\nphase forward\n".to_owned();
    for row in 0..9 {
        let (category, frame) = if row < 2 { ("parameter", "build") } else { ("activation", "attention") };
        text += &alloc(&format!("b{row}"), 10, &format!("{category} < {frame} < main"));
    }
    text + &alloc("last", 20, "activation < mlp < main")
}

#[test]
fn a_device_full_of_live_blocks_is_capacity_and_its_holders_are_named() {
    let trace = run_out(&full(), None);
    let oom = only(&trace);
    assert_eq!((&oom["verdict"], &oom["verdict_is_tested"]), (&"capacity".into(), &true.into()), "{oom}");
    assert_eq!(remedy(&oom, "expandable_segments:True"), Some(false));
    assert_eq!(remedy(&oom, "emptying the cache"), Some(false));
    assert_eq!(remedy(&oom, "10 MiB more device memory (110 MiB in all)"), Some(true));
    let keys: Vec<&str> =
        oom["holders"]["groups"].as_array().unwrap().iter().map(|one| one["key"].as_str().unwrap()).collect();
    assert_eq!(keys, ["activation, attention", "parameter, build"]);
    let text = answer_on_terminal(trace, "oom a.snap").unwrap();
    let first: Vec<&str> = text.lines().take(10).collect();
    assert!(first[0].starts_with("Out of memory: 20 MiB requested") && text.contains("90 MiB of 100 MiB"), "{text}");
    let beginning = first.join(" ");
    for what in [
        "activation",
        "Cause (confirmed by replay): the device is too small.",
        "10 MiB more device memory",
        "Would not have helped",
    ] {
        assert!(beginning.contains(what), "{what} is not in the first ten lines:\n{text}");
    }
    assert!(!text.contains("could grow"), "no remedy is promised that does not help: {text}");
    assert!(first.iter().all(|line| line.chars().count() <= 100), "{text}");
}

#[test]
fn one_request_more_says_little_where_live_blocks_fill_the_device() {
    let of = |mebibytes| {
        let text = alloc("big", mebibytes, "parameter") + &alloc("last", 100 - mebibytes + 2, "temporary");
        answer(run_out(&text, None), "oom a.snap").unwrap().replace('\n', " ")
    };
    let caution = "Live blocks fill 98% of the device: later requests may still fail.";
    assert!(of(98).contains(caution), "{}", of(98));
    assert!(!of(90).contains("Live blocks fill") && of(90).contains("Would have let"), "{}", of(90));
}

#[test]
fn fragmentation_is_named_only_where_settings_without_it_let_the_request_through() {
    let split = alloc("x", 60, "") + "free x\n" + &alloc("pin", 12, "temporary") + &alloc("last", 80, "");
    let trace = run_out(&split, None);
    let oom = only(&trace);
    assert_eq!((&oom["verdict"], &oom["verdict_is_tested"]), (&"fragmentation".into(), &true.into()), "{oom}");
    assert_eq!(remedy(&oom, "expandable_segments:True"), Some(true));
    let text = answer(trace.clone(), "oom a.snap").unwrap();
    let text = text.replace('\n', " ");
    assert!(text.contains("Would have let the request succeed: expandable_segments:True; "), "{text}");
    let list = text.split_once("Would have let the request succeed: ").unwrap().1.split_once('.').unwrap().0;
    let at = |what: &str| list.find(what).unwrap_or_else(|| panic!("{what} is not in {list}"));
    assert!(at("expandable_segments") < at("more device memory") && at("more device memory") < at("freeing"), "{list}");
    let of_pytorch = trace.clone().edited(|of_pytorch| of_pytorch.header.recorder = "PyTorch".to_owned());
    let told = answer(of_pytorch, "oom a.snap").unwrap().replace('\n', " ");
    assert!(told.contains("succeed: PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True; "), "{told}");
    assert_eq!(told.matches("PYTORCH_CUDA_ALLOC_CONF").count(), 1, "{told}");
    // The prediction of the whole recording agrees.
    let change = Change { alloc_conf: Some("expandable_segments:True".to_owned()), ..Change::default() };
    assert_eq!(predict(&Source::in_memory(&trace), &change).unwrap().changed.unwrap().oom, None);
    // A live block in every page: as many bytes are free, and no setting brings them together.
    let mut pinned = String::new();
    for row in 0..20 {
        pinned += &alloc(&format!("b{row}"), 5, "");
    }
    (0..20).filter(|row| row % 4 > 0).for_each(|row| writeln!(pinned, "free b{row}").unwrap());
    let oom = only(&run_out(&(pinned + &alloc("last", 40, "")), None));
    assert_eq!(remedy(&oom, "expandable_segments:True"), Some(false));
    assert_eq!((&oom["verdict"], &oom["verdict_is_tested"]), (&"capacity".into(), &true.into()), "{oom}");
    assert_eq!(remedy(&oom, "freeing 10 MiB in 2 blocks first"), Some(true), "{oom}");
    let why = oom["reasons"][1].as_str().unwrap();
    assert!(why.starts_with("Why: even with expandable segments the request fails: "), "{why}");
}

#[test]
fn a_device_without_room_for_a_segment_is_too_small_and_not_fragmented() {
    let text = "segment_alloc 0x10000000 2097152 small\nalloc a 512 small\noom 1572864 free=18063984\n";
    let oom = only(&trace_from_text(text).unwrap());
    assert_eq!(oom["verdict"], "capacity", "{oom}");
    let why = "nothing is free in the large pool, and a segment for the request needs 20 MiB, but the device has \
               17.23 MiB free";
    assert!(oom["reasons"].to_string().contains(why), "{oom}");
}

#[test]
fn memory_that_another_stream_holds_is_found_though_the_stream_of_the_request_is_not_recorded() {
    let text = alloc("x", 60, "stream=7") + "free x\n" + &alloc("pin", 12, "stream=7") + &alloc("last", 45, "");
    let trace = run_out(&text, None);
    let oom = only(&trace);
    assert_eq!((&oom["verdict"], &oom["verdict_is_tested"]), (&"elsewhere".into(), &true.into()), "{oom}");
    assert_eq!(remedy(&oom, "the free memory of the large pool, stream 7"), Some(true), "{oom}");
}

#[test]
fn a_limit_below_the_device_is_named() {
    let text = (0..4).map(|row| alloc(&format!("b{row}"), 10, "")).collect::<String>() + &alloc("last", 20, "");
    let trace = run_out(&text, Some("per_process_memory_fraction:0.5"));
    assert_eq!(only(&trace)["verdict"], "limit");
    // Set by a call: then the recording has no such setting.
    let oom = only(&trace.edited(|trace| trace.devices[0].settings.clear()));
    assert_eq!((&oom["verdict"], &oom["verdict_is_tested"]), (&"limit".into(), &true.into()), "{oom}");
    assert_eq!(remedy(&oom, "a higher limit (60 MiB was free on the device)"), Some(true));
    assert_eq!(remedy(&oom, "expandable_segments:True"), Some(false));
}

/// As of PyTorch's snapshots under `set_per_process_memory_fraction`.
#[test]
fn a_limit_below_the_device_is_its_memory_in_every_answer() {
    let split = alloc("x", 60, "") + "free x\n" + &alloc("pin", 12, "buffer") + &alloc("last", 80, "");
    for text in [full(), split] {
        let trace = run_out(&text, None).edited(|trace| trace.devices[0].capacity_bytes = 0);
        let most = highwater_analysis::Series::build(&trace, DeviceId(0)).peak(&trace, Metric::Reserved).0;
        let trace = trace.edited(|trace| trace.ooms[0].device_free = 200 * MIB);
        let oom = only(&trace);
        assert_eq!((&oom["verdict"], &oom["capacity_bytes"]), (&"limit".into(), &most.into()), "{oom}");
        let device = &json(trace.clone(), "info a.snap --json")["devices"][0];
        assert_eq!((&device["capacity_bytes"], &device["capacity_is_inferred"]), (&most.into(), &true.into()));
        let tried = json(trace.clone(), "whatif a.snap --json")["tried"].take();
        for one in tried.as_array().unwrap() {
            let settings = one["alloc_conf"].as_str().unwrap();
            assert_eq!(remedy(&oom, settings), Some(one["oom_event"].is_null()), "{settings}: {oom} {tried}");
        }
        let told = answer(trace, "whatif a.snap --alloc-conf max_split_size_mb:64").unwrap();
        assert!(told.contains("the maximum of reserved memory: a limit below the device's memory"), "{told}");
    }
}

/// Remedies follow from the recorded allocator.
#[test]
fn an_allocator_without_settings_gets_no_advice_on_settings() {
    let arena = || {
        let text = format!("{}oom {} free={}\n", alloc("a", 60, "< main"), 8 * MIB, 4 * MIB);
        trace_from_text(&text)
            .unwrap()
            .edited(|trace| trace.devices = vec![DeviceFacts { capacity_bytes: 64 * MIB, ..DeviceFacts::default() }])
    };
    let driver = || {
        let text = format!("segment_alloc 0x0 {0}\nalloc a {0} < main\noom {1} free={2}\n", 60 * MIB, 8 * MIB, 4 * MIB);
        let (name, value) = highwater_snapshots::trace::DRIVER_CALLS;
        let settings = vec![(name.to_owned(), value.to_owned())];
        let facts = DeviceFacts { capacity_bytes: 64 * MIB, settings, ..DeviceFacts::default() };
        trace_from_text(&text).unwrap().edited(|trace| trace.devices = vec![facts])
    };
    for trace in [arena as fn() -> Trace, driver] {
        let oom = only(&trace());
        assert_eq!((&oom["verdict"], &oom["verdict_is_tested"]), (&"capacity".into(), &false.into()), "{oom}");
        assert_eq!((&oom["outside_bytes"], &oom["from_driver_bytes"]), (&0.into(), &(8 * MIB).into()), "{oom}");
        for words in ["oom a.snap", "whatif a.snap", "explain a.snap", "plan a.snap --budget 64MiB"] {
            let told = match words.split_once(' ') {
                Some(("plan", _)) => {
                    let folder = tempfile::tempdir().unwrap();
                    let bytes = highwater_snapshots::format::write_trace(Vec::new(), &trace()).unwrap();
                    std::fs::write(folder.path().join("a.snap"), bytes).unwrap();
                    crate::binary::stdout(&crate::binary::highwater(folder.path(), words))
                }
                _ => answer(trace(), words).unwrap(),
            };
            assert!(!told.contains("expandable") && !told.contains("max_split"), "{words}: {told}");
            assert!(
                !told.contains("PyTorch does not") && !told.contains("per_process_memory_fraction"),
                "{words}: {told}"
            );
        }
    }
}

/// As of PyTorch's snapshots.
#[test]
fn the_memory_that_a_failed_request_shows_is_the_capacity_in_every_answer() {
    let trace = run_out(&full(), None).edited(|trace| trace.devices[0].capacity_bytes = 0);
    let oom = only(&trace);
    assert_eq!((&oom["capacity_bytes"], &oom["capacity_is_inferred"]), (&(100 * MIB).into(), &true.into()), "{oom}");
    assert_eq!(remedy(&oom, "10 MiB more device memory (110 MiB in all)"), Some(true));
    let device = &json(trace.clone(), "info a.snap --json")["devices"][0];
    assert_eq!(
        (&device["capacity_bytes"], &device["capacity_is_inferred"]),
        (&(100 * MIB).into(), &true.into()),
        "{device}"
    );
    let told = answer(trace.clone(), "info a.snap").unwrap();
    assert!(told.contains("100 MiB (inferred)"), "{told}");
    let told = answer(trace, "whatif a.snap --alloc-conf expandable_segments:True").unwrap();
    assert!(told.contains("Memory: 100 MiB, the reserved and free memory when the recorded request failed."), "{told}");
}

#[test]
fn what_cannot_be_replayed_is_marked_as_a_guess() {
    let oom = only(&trace_from_text("alloc a 1024\noom 4096 free=0").unwrap());
    assert_eq!((&oom["verdict_is_tested"], &oom["remedies"]), (&false.into(), &Value::Null));
    assert!(oom["reasons"][0].as_str().unwrap().contains("Not tested: the recording has no segments"), "{oom}");
    let trace = run_out(&full(), None).edited(|trace| trace.blocks.address[1] += 512);
    let text = answer(trace, "oom a.snap").unwrap();
    assert!(text.contains("Probable cause: ") && text.contains("differs from the recording"), "{text}");
}

#[test]
fn an_earlier_request_that_failed_may_fail_again() {
    // The program catches the failure of a large request and goes on.
    let text = full().replace("alloc last", "alloc l0").replace("< mlp", "< first");
    let first = run_out(&text, None);
    let again = highwater_notation::text_from_trace(&first);
    let oom = again.lines().last().unwrap().to_owned();
    let trace = trace_from_text(&format!("{again}{oom}\n")).unwrap().edited(|trace| {
        trace.devices = first.devices.clone();
        trace.blocks.address.clone_from(&first.blocks.address);
    });
    let told = json(trace, "oom a.snap --json");
    let causes: Vec<&Value> = told["ooms"].as_array().unwrap().iter().map(|one| &one["verdict_is_tested"]).collect();
    assert_eq!(causes, [&Value::Bool(true), &Value::Bool(true)], "{told}");
}

#[test]
fn a_device_smaller_than_the_segments_at_the_start_does_not_fit() {
    let text = format!("baseline_segment {:#x} {1}\nbaseline w {1}\nphase forward\nalloc a 1024\n", 64 * MIB, 60 * MIB);
    let trace = trace_from_text(&text)
        .unwrap()
        .edited(|trace| trace.devices = vec![DeviceFacts { capacity_bytes: 100 * MIB, ..DeviceFacts::default() }]);
    let fits = |capacity: u64| {
        let change = Change { capacity: Some(capacity * MIB), ..Change::default() };
        predict(&Source::in_memory(&trace), &change).unwrap().changed.unwrap().fits()
    };
    assert_eq!((fits(32), fits(80)), (Some(false), Some(true)));
}

#[test]
fn the_recorded_stream_of_a_request_is_no_guess() {
    let text = |stream: &str| {
        let all = "segment_alloc 0x0 10485760 large\nalloc a 8388608 large stream=3\noom 20971520 free=1048576";
        answer(trace_from_text(&format!("{all}{stream}\n")).unwrap(), "oom a.snap").unwrap()
    };
    assert!(text(" stream=7").contains("of the large pool, on stream 7\n"), "{}", text(" stream=7"));
    assert!(text("").contains("of the large pool, probably on stream 3\n"), "{}", text(""));
}

#[test]
fn sizes_that_differ_by_little_do_not_read_the_same() {
    let text = "segment_alloc 0x0 2097152 large\nalloc a 1048576 large\noom 4947181568 free=4945084416\n";
    let text = answer(trace_from_text(text).unwrap(), "oom a.snap").unwrap();
    for row in
        ["needed from the driver                   4718.00 MiB", "free on the device                       4716.00 MiB"]
    {
        assert!(text.contains(row), "{text}");
    }
}

#[test]
fn oom_says_why_a_request_failed_and_who_stood_in_its_way() {
    let told = answer(crowded(), "oom crowded.snap --top 1").unwrap();
    expect![[r#"
            Out of memory: 20 MiB requested by matmul of net.fc, at event 17, step 0, forward; 40 MiB of 70 MiB allocated in live blocks.
              category    frame   live  share  blocks
              activation  op_b   8 MiB  20.0%       1
              activation  op_c   8 MiB  20.0%       1
              activation  op_e   8 MiB  20.0%       1
              activation  op_f   8 MiB  20.0%       1
              activation  op_h   8 MiB  20.0%       1
            Probable cause: fragmentation. Not tested: the replay differs from the recording from event 3 on, and does not fail there.
            Why: 24 MiB are free in the large pool, but in ranges of at most 8 MiB, and the device has 6 MiB free of the 20 MiB needed.

              at that moment                            bytes
              request, rounded                         20 MiB  of the large pool, probably on stream 0
              largest free range of its pool            8 MiB  then 8 MiB, 8 MiB
              needed from the driver                   20 MiB
              free on the device                        6 MiB  of 70 MiB
              reserved                                 64 MiB
                in live blocks                         40 MiB
                awaiting free                             0 B
                free in the request's pool and stream  24 MiB
                free in other pools or streams            0 B
              outside the allocator                       0 B

            Smallest set of live blocks to free: 16 MiB in 2 blocks. Without them, a range of 24 MiB at 0x0 becomes free.
              category    frame  bytes  blocks
              activation  op_b   8 MiB       1
              activation  op_c   8 MiB       1

            Requested at
              matmul
              forward
              main

            1 more request failed, at event 18: --event N shows one.

            Next: highwater render crowded.snap --out segments.png --view segments --at 17   for a picture of the segments at that event
        "#]].assert_eq(&told);
}

#[test]
fn oom_shows_one_event_where_it_is_asked_and_says_so_where_there_is_none() {
    let told = json(crowded(), "oom crowded.snap --json --event 18");
    let ooms = told["ooms"].as_array().unwrap();
    assert_eq!((ooms.len(), &ooms[0]["event"], &ooms[0]["verdict"]), (1, &18.into(), &"fragmentation".into()));
    assert_eq!((&ooms[0]["op"], &ooms[0]["step"]), (&"".into(), &0.into()));
    let smallest_eviction = &ooms[0]["way_out"];
    assert_eq!(
        (&smallest_eviction["bytes"], &smallest_eviction["kind"], &smallest_eviction["blocks"]),
        (&(16 << 20).into(), &"neighbours".into(), &2.into())
    );
    let told = json(crowded(), "oom crowded.snap --json --top 1");
    assert_eq!((told["ooms"].as_array().unwrap().len(), &told["rest_events"]), (1, &serde_json::json!([18])));
    let why = |words: &str| answer(crowded(), words).unwrap_err().to_string();
    assert!(why("oom crowded.snap --event 3").contains("the failed requests are events 17; 18"));
    let told = answer(trace(), "oom step.snap").unwrap();
    expect![[r#"
            No request failed in this recording.

            Next: highwater explain step.snap   for the peak, and ways to lower it
        "#]]
    .assert_eq(&told);
    assert!(answer(trace(), "oom step.snap --event 3").unwrap_err().to_string().contains("no request failed"));
    assert_eq!(json(trace(), "oom step.snap --json")["ooms"], serde_json::json!([]));
}
