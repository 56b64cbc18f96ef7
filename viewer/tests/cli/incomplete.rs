//! Tests the output for recordings that lack events, times or memory, or that contradict themselves.

use std::path::Path;

use highwater_analysis::excerpt::excerpt;
use highwater_notation::trace_from_text;
use highwater_snapshots::format::{read_bytes, write_trace};
use highwater_snapshots::trace::{DeviceFacts, PINNED_DRIVER, UNREGISTERED};
use highwater_snapshots::{DeviceId, Trace};
use serde_json::Value;

use crate::binary::{highwater, stderr, stdout};
use crate::sample::{answer, json, trace};

/// A trace of `text` whose devices, by number and driver, were known before it was built.
fn with_devices(text: &str, devices: &[(u16, &str)]) -> Trace {
    let facts = |&(device, driver): &(u16, &str)| DeviceFacts {
        device: DeviceId(device),
        driver: driver.to_owned(),
        ..DeviceFacts::default()
    };
    let trace = trace_from_text(text).unwrap().edited(|trace| trace.devices = devices.iter().map(facts).collect());
    read_bytes(&write_trace(Vec::new(), &trace).unwrap()).unwrap()
}

fn write(folder: &Path, name: &str, trace: &Trace) {
    std::fs::write(folder.join(name), write_trace(Vec::new(), trace).unwrap()).unwrap();
}

#[test]
fn blocks_that_exceed_their_segments_lead_every_answer_and_are_a_problem_in_json() {
    let folder = tempfile::tempdir().unwrap();
    let text = "baseline_segment 0x0 2048\nalloc a 1024\nalloc b 4096 < load < main\nfree b\n";
    write(folder.path(), "a.snap", &trace_from_text(text).unwrap());
    let dump = r#"{"segments": [{"device": 0, "address": 4096, "total_size": 2048, "allocated_size": 2048,
        "active_size": 2048, "stream": 0, "segment_type": "small", "blocks": [
            {"size": 1024, "requested_size": 1000, "state": "active_allocated"},
            {"size": 4096, "requested_size": 4000, "state": "active_allocated"}]}], "device_traces": [[]]}"#;
    std::fs::write(folder.path().join("a.json"), dump).unwrap();
    let problem =
        "device 0: live blocks exceed the segments from event 1 on, by up to 3 KiB: 5 KiB active, 2 KiB reserved";
    let state = "device 0: live blocks exceed the segments before the first event, by up to 3 KiB: 5 KiB active, 2 KiB \
                 reserved";
    for (file, problem) in [("a.snap", problem), ("a.json", state)] {
        for command in ["info", "peak", "explain", "whatif", "oom", "phases", "events", "check --max-peak 1GiB"] {
            let text = stdout(&highwater(folder.path(), &format!("{command} {file}")));
            let lines: Vec<&str> = text.lines().take(4).collect();
            let is_first = lines.iter().any(|line| line.starts_with(&format!("Contradictory recording: {problem}")));
            assert!(is_first, "{command} {file}: {text}");
            let output = highwater(folder.path(), &format!("{command} {file} --json"));
            let object: Value =
                serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", stderr(&output)));
            let problems = object["problems"].as_array().unwrap_or_else(|| panic!("{command}: {object}"));
            assert!(problems.iter().any(|told| told == problem), "{command}: {problems:?}");
        }
        assert_eq!(highwater(folder.path(), &format!("verify {file}")).status.code(), Some(2));
    }
    let totals = stdout(&highwater(folder.path(), "info a.json"));
    assert!(totals.contains("in 1 segment, allocated_size is not the sum of the blocks: 2 KiB in the file, 5 KiB"));
}

#[test]
fn what_a_recording_lacks_leaves_budgets_unconfirmed() {
    let cut_off = trace().edited(|cut_off| cut_off.trust.unfinished = true);
    let of_ring = trace().edited(|of_ring| of_ring.trust.events_lost = 1234);
    let state = || trace_from_text("baseline w 4096 parameter\nbaseline_segment 0x0 2097152").unwrap();
    let nothing = || with_devices("step 0\nphase forward\nstep 1\n", &[(0, "cuda")]);
    let elsewhere = || with_devices("alloc a 4096 device=1\n", &[(0, "cuda"), (1, "cuda")]);
    for (trace, words, why) in [
        (cut_off.clone(), "", "the recording was cut off, or is still being written"),
        (of_ring, "", "1,234 events are missing"),
        (state(), "", "the recording has no events, only the state at its end"),
        (nothing(), "", "the recording has no blocks"),
        (elsewhere(), "--device 0", "the recording has no blocks on device 0 of 2"),
    ] {
        let words = format!("check a.snap --max-peak 1GiB {words}");
        let text = answer(trace.clone(), &words).unwrap();
        let verdict = format!("Failed: {why}, so 1 of 1 budget cannot be confirmed.");
        assert!(text.starts_with(&verdict) && text.contains("unconfirmed"), "{text}");
        let figures = json(trace, &format!("{words} --json"));
        assert_eq!((&figures["passed"], &figures["undecided"][0]["rule"]), (&false.into(), &"max-peak".into()));
        assert_eq!(figures["rules"][0]["unconfirmed_because"], why);
    }
    let text = answer(elsewhere(), "check a.snap --max-peak 1GiB").unwrap();
    assert!(text.starts_with("Passed: 1 budget met on device 1 of 2."), "{text}");
    let exceeded = json(cut_off, "check a.snap --max-peak 1KiB --json");
    assert_eq!(exceeded["broken"][0]["rule"], "max-peak", "what is exceeded is exceeded");
    assert_eq!(exceeded["rules"][0]["unconfirmed_because"], Value::Null);
}

#[test]
fn a_check_that_is_not_confirmed_exits_as_one_that_ended_out_of_memory() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "state.snap", &trace_from_text("baseline w 4096").unwrap());
    assert_eq!(highwater(folder.path(), "check state.snap --max-peak 1GiB").status.code(), Some(1));
}

#[test]
fn a_device_without_memory_is_the_default_one_of_no_command() {
    let mut text = String::new();
    for step in 0..4 {
        text +=
            &format!("step {step}\nphase forward\nalloc a{step} 4096 device=127 < main\nalloc b{step} 9 device=127\n");
        text += &format!("free b{step} device=127\n");
    }
    let heap = || with_devices(&text, &[(0, "meta"), (127, PINNED_DRIVER)]);
    for command in ["peak", "phases", "explain", "growth", "check --max-peak 1GiB"] {
        let figures = json(heap(), &format!("{command} a.snap --json"));
        assert_eq!(figures["device"], 127, "{command}");
    }
    let peak = answer(heap(), "peak a.snap").unwrap();
    assert!(peak.starts_with("Peak in host memory: 16.01 KiB requested"), "{peak}");
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "a.snap", &with_devices("alloc a 2202009\n", &[(0, "meta"), (1, "meta")]));
    write(folder.path(), "b.snap", &with_devices("alloc b 4096 device=1\n", &[(1, "meta")]));
    for (files, devices) in [("a.snap b.snap", [0, 1]), ("b.snap a.snap", [1, 0])] {
        let output = highwater(folder.path(), &format!("diff {files} --json"));
        let figures: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!([&figures["a"]["device"], &figures["b"]["device"]], devices, "{files}");
    }
}

#[test]
fn a_recording_without_times_prints_none() {
    let text = "alloc a 4096 t=0us\noom 9999 free=0 t=0us\nalloc b 10 t=0us\nfree b t=0us\n";
    let bare = || trace_from_text(text).unwrap();
    let info = answer(bare(), "info a.snap").unwrap();
    assert!(info.contains("events     5, without times") || info.contains("events     4, without times"), "{info}");
    for command in ["info", "peak", "explain", "oom", "events", "phases"] {
        let text = answer(bare(), &format!("{command} a.snap")).unwrap();
        assert!(!text.contains("0 ns") && !text.contains("0.000000") && !text.contains("seconds"), "{command}: {text}");
    }
    assert_eq!(json(bare(), "peak a.snap --json")["time_us"], Value::Null);
    assert_eq!(json(bare(), "info a.snap --json")["devices"][0]["first_time_us"], Value::Null);
    assert_eq!(json(bare(), "events a.snap --json")["events"][0]["time_us"], 0);
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "a.snap", &bare());
    if cfg!(feature = "gui") {
        let output = highwater(folder.path(), "render a.snap --out a.svg --axis time");
        assert!(stderr(&output).contains("--axis time: the recording has no times; use --axis event"));
        assert_eq!(output.status.code(), Some(2));
    }
}

#[test]
fn an_excerpt_and_events_without_an_allocator_are_sound_but_confirm_no_budget() {
    let part = excerpt(&trace(), 2..trace().events.len());
    let of_others = with_fact(UNREGISTERED, "1234");
    let one = with_fact(UNREGISTERED, "1");
    for (trace, why) in [
        (part, "the recording is an excerpt of another one, events 2 to 21 of 22"),
        (of_others, "1,234 events of allocators that were not registered are missing"),
        (one, "1 event of an allocator that was not registered is missing"),
    ] {
        let text = answer(trace.clone(), "check a.snap --max-peak 1GiB").unwrap();
        assert!(text.starts_with(&format!("Failed: {why}, so 1 of 1 budget cannot be confirmed.")), "{text}");
        assert!(answer(trace, "verify a.snap").unwrap().starts_with("Sound: "));
    }
    let info = answer(excerpt(&trace(), 2..22), "info a.snap").unwrap();
    assert!(info.contains("Note: an excerpt: events 2 to 21 of 22, numbered from 0 here."), "{info}");
}

#[test]
fn what_a_recording_without_events_lacks_is_why_no_budget_is_confirmed() {
    let never = trace_from_text("")
        .unwrap()
        .edited(|never| never.header.facts.push((UNREGISTERED.to_owned(), "2400".to_owned())));
    let text = answer(never, "check a.snap --max-peak 1GiB").unwrap();
    assert!(text.starts_with("Failed: 2,400 events of allocators that were not registered are missing, so"), "{text}");
}

#[test]
fn a_damaged_recording_is_not_stated_to_be_cut_off() {
    let folder = tempfile::tempdir().unwrap();
    let whole = write_trace(Vec::new(), &trace()).unwrap();
    let with_flipped_bit = |at: usize| {
        let mut bytes = whole.clone();
        bytes[at] ^= 4;
        bytes
    };
    let is_damaged = |bytes: &Vec<u8>| {
        let read = read_bytes(bytes);
        read.is_ok_and(|trace| {
            trace.is_partial() && !trace.trust.unfinished && !trace.lacks_index_only() && trace.event_count() > 0
        })
    };
    let damaged = (0..whole.len()).map(with_flipped_bit).find(is_damaged).expect("a section that is not needed");
    std::fs::write(folder.path().join("a.snap"), damaged).unwrap();
    let text = stdout(&highwater(folder.path(), "check a.snap --max-peak 1GiB"));
    assert!(text.contains("Failed: the recording is damaged, and part of it could not be read, so"), "{text}");
    let is_cut = |bytes: &&[u8]| read_bytes(bytes).is_ok_and(|trace| trace.event_count() > 0 && trace.trust.unfinished);
    let cut = (0..whole.len()).map(|len| &whole[..len]).find(is_cut).expect("the events are there");
    std::fs::write(folder.path().join("a.snap"), cut).unwrap();
    let text = stdout(&highwater(folder.path(), "check a.snap --max-peak 1GiB"));
    assert!(text.contains("Failed: the recording was cut off, or is still being written, so"), "{text}");
}

/// The sample with a fact of its recorder.
fn with_fact(name: &str, value: &str) -> Trace {
    trace().edited(|trace| trace.header.facts.push((name.to_owned(), value.to_owned())))
}

#[test]
fn a_state_is_not_called_a_peak() {
    let state = || trace_from_text("baseline w 4096 parameter\nbaseline_segment 0x0 2097152").unwrap();
    for command in ["peak", "explain"] {
        let text = answer(state(), &format!("{command} a.snap")).unwrap();
        assert!(text.starts_with("State at the dump: 4 KiB requested.\n"), "{text}");
        assert!(!text.contains("before the first event") && !text.contains("the peak"), "{text}");
    }
    let info = answer(state(), "info a.snap").unwrap();
    assert!(info.starts_with("State at the dump, without events: 4 KiB requested in 1 block."), "{info}");
    let waiting = trace_from_text("baseline a 4096\nbaseline b 512 waiting\nbaseline c 512 waiting\n").unwrap();
    let info = answer(waiting, "info a.snap").unwrap();
    let told = "State at the dump, without events: 4 KiB requested in 1 block, and 2 blocks awaiting free.";
    assert!(info.starts_with(told), "{info}");
    assert!(!info.contains("baseline") && !info.contains("peak  "), "{info}");
}

#[test]
fn what_leaks_is_named_at_the_peak_beside_its_category() {
    let step = |n: u32| {
        format!("step {n}\nphase forward\nalloc k{n} 10240 < cache.py:7 put < main\nalloc t{n} 50 < main\nfree t{n}\n")
    };
    let leaking = || trace_from_text(&(0..5).map(step).collect::<String>()).unwrap();
    let text = answer(leaking(), "peak a.snap").unwrap();
    assert!(text.contains("Of these, 50 KiB (") && text.contains("cache.py:7 put leaks 10 KiB a step"), "{text}");
    let row = text.lines().find(|line| line.trim_start().starts_with("unknown")).unwrap();
    assert!(row.trim_end().ends_with("50 KiB"), "{text}");
    let figures = json(leaking(), "peak a.snap --json");
    assert_eq!((&figures["leaked_bytes"], &figures["groups"][0]["leaked_bytes"]), (&51200.into(), &51200.into()));
    assert_eq!(figures["groups"][0]["key"], "unknown", "no category is made up");
    assert_eq!(json(trace(), "peak a.snap --json")["leaked_bytes"], 0);
    assert!(!answer(trace(), "peak a.snap").unwrap().contains("leaking"));
}

#[test]
fn no_verdict_is_confirmed_by_a_part_of_a_run() {
    let folder = tempfile::tempdir().unwrap();
    let whole = trace_from_text("segment_alloc 0x10000000 20971520 large\nalloc a 10485760 large\nfree a\n").unwrap();
    let of_ring = whole.clone().edited(|of_ring| of_ring.trust.events_lost = 1234);
    write(folder.path(), "ring.snap", &of_ring);
    write(folder.path(), "part.snap", &excerpt(&whole, 1..3));
    write(folder.path(), "whole.snap", &whole);
    let figures = |words: &str| -> (Option<i32>, Value) {
        let output = highwater(folder.path(), &format!("{words} --json"));
        (output.status.code(), serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", stderr(&output))))
    };
    for (file, why) in [("ring", "1,234 events are missing"), ("part", "the recording is an excerpt of another one")] {
        let plan = format!("plan {file}.snap --budget 100MiB");
        let (status, found) = figures(&plan);
        assert_eq!((status, &found["fits"], &found["reach"]), (Some(1), &Value::Null, &"recorded".into()), "{found}");
        assert!(found["unconfirmed_because"].as_str().unwrap().starts_with(why), "{found}");
        let text = stdout(&highwater(folder.path(), &plan));
        assert!(text.contains(&format!("Cannot be confirmed to fit in 100 MiB as it is: {why}")), "{text}");
        let whatif = format!("whatif {file}.snap --capacity 100MiB");
        assert_eq!(figures(&whatif).1["fits"], Value::Null);
        let text = stdout(&highwater(folder.path(), &whatif));
        let expected = format!("All recorded requests succeed with 100 MiB of memory, but more may be needed: {why}");
        assert!(text.contains(&expected), "{text}");
        let (_, found) = figures(&format!("whatif {file}.snap --capacity 5MiB"));
        assert_eq!(found["fits"], false, "what is recorded does not fit");
    }
    assert_eq!(figures("plan whole.snap --budget 100MiB").1["fits"], true);
    assert_eq!(figures("whatif whole.snap --capacity 100MiB").1["fits"], true);
}

#[test]
fn a_state_is_not_replayed_and_has_no_peak() {
    let folder = tempfile::tempdir().unwrap();
    let text = "baseline w 4096 parameter\nbaseline_segment 0x0 209715200 large\n";
    write(folder.path(), "state.snap", &trace_from_text(text).unwrap());
    for words in ["plan state.snap --budget 1GiB", "whatif state.snap --capacity 1GiB"] {
        let output = highwater(folder.path(), words);
        let why = "the recording has no events, only the state at its end: there is nothing to replay";
        assert!(output.status.code() == Some(2) && stderr(&output).contains(why), "{words}: {}", stderr(&output));
    }
    let whatif = stdout(&highwater(folder.path(), "whatif state.snap"));
    assert!(whatif.starts_with("No settings are tried: the recording is a state without events"), "{whatif}");
    assert!(!whatif.contains("0 events replayed") && whatif.contains("not replayed"), "{whatif}");
    let explain = stdout(&highwater(folder.path(), "explain state.snap --where category=parameter"));
    let told = explain.split("Next:").next().unwrap();
    assert!(!told.contains("peak") && !told.contains("expandable") && !told.contains("before recording"), "{explain}");
    for command in ["oom", "growth", "whatif"] {
        let text = stdout(&highwater(folder.path(), &format!("{command} state.snap")));
        assert!(text.contains("Next: highwater peak state.snap   to see what is using memory"), "{text}");
    }
}
