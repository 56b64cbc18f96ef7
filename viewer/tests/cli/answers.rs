//! Tests the text output of each command.

use expect_test::{Expect, expect};
use highwater_notation::trace_from_text;
use highwater_snapshots::{Problem, Trace};
use serde_json::Value;

use crate::sample::{answer, json, trace};

fn check(words: &str, expected: &Expect) {
    expected.assert_eq(&answer(trace(), words).unwrap());
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
              events     22, over 21.0 µs

            Device 0: accounting, 8 MiB, meta
              settings   default
              counts     2 steps, 16 events, 6 allocs, 4 frees, 2 segments
              baseline   4 KiB requested before the first event

              total           peak  of device  at event  step  phase            end  counted bytes
              requested  20.98 KiB       0.3%        11     0  optimizer  12.98 KiB  requested by live blocks
              allocated  21.00 KiB       0.3%        11     0  optimizer  13.00 KiB  after rounding
              active     21.00 KiB       0.3%        11     0  optimizer  13.00 KiB  plus awaiting free
              reserved    4.00 MiB      50.0%         9     0  optimizer   4.00 MiB  reserved from the driver

            Complete: nothing was lost, inferred or guessed.

            Next: highwater peak step.snap   to see what is using memory at the peak
        "#]],
    );
}

#[test]
fn peak_names_who_holds_memory() {
    check(
        "peak step.snap",
        &expect![[r#"
            Peak: 20.98 KiB requested, at event 11, step 0, optimizer.

              category             bytes   share            blocks
              optimizer_state   8.00 KiB   38.1%  ███████▋       1
              parameter         4.00 KiB   19.1%  ███▊           1
              gradient          4.00 KiB   19.1%  ███▊           1
              temporary         4.00 KiB   19.1%  ███▊           1
              input               1000 B    4.7%  ▉              1
              total            20.98 KiB  100.0%

            Next: highwater peak step.snap --by scope,op   for the modules and operations behind it
        "#]],
    );
}

#[test]
fn peak_takes_the_reserved_bytes_apart_too() {
    check(
        "peak step.snap --metric reserved --by category,scope --top 2",
        &expect![[r#"
            Peak: 4 MiB reserved, at event 9, step 0, optimizer.

              category            scope                  bytes   share                        blocks
              (free in segments)  (free in segments)  3.99 MiB   99.8%  ███████████████████▉
              parameter           layer               4.00 KiB    0.1%  ▏                          1
              2 more groups                           5.00 KiB    0.1%  ▏
              total                                   4.00 MiB  100.0%

            Next: highwater peak step.snap --by pool,stream,size --metric reserved   for the segments behind it, by pool and stream
        "#]],
    );
}

#[test]
fn peak_looks_at_any_event_and_at_chosen_blocks() {
    check(
        "peak step.snap --at 3 --by op --where 'category=activation,input size>=2KiB'",
        &expect![[r#"
            At event 3, step 0, forward: 7.91 KiB requested.
            Of these, 2.93 KiB (37.1%) are in blocks with category=activation,input size>=2KiB.

              op         bytes   share                        blocks
              linear  2.93 KiB  100.0%  ████████████████████       1
              total   2.93 KiB  100.0%

            Next: highwater peak step.snap --by frame --at 3 --where 'category=activation,input size>=2KiB'   for the lines of code behind it
        "#]],
    );
}

#[test]
fn phases_say_what_each_did() {
    check(
        "phases step.snap",
        &expect![[r#"
            Peak: 20.98 KiB requested, at event 11, step 0, optimizer; 5 phases in 2 steps.

              step  phase          start       peak                  end  at its peak
                 0  forward     4.00 KiB   7.91 KiB  ██▎        7.91 KiB  parameter 4 KiB, activation 2.93 KiB, input 1000 B
                 0  backward    7.91 KiB  11.91 KiB  ███▍       8.98 KiB  parameter 4 KiB, gradient 4 KiB, activation 2.93 KiB, others 1000 B
                 0  optimizer   8.98 KiB  20.98 KiB  ██████ ◀  16.00 KiB  optimizer_state 8 KiB, parameter 4 KiB, gradient 4 KiB, others 4.98 KiB
                 0  zero_grad  16.00 KiB  16.00 KiB  ████▌     12.00 KiB  optimizer_state 8 KiB, parameter 4 KiB, gradient 4 KiB
                 1  other      12.00 KiB  12.98 KiB  ███▋      12.98 KiB  optimizer_state 8 KiB, parameter 4 KiB, input 1000 B

            Next: highwater peak step.snap --by scope,op   to see what is using memory at the peak
        "#]],
    );
}

#[test]
fn phases_of_some_steps_are_listed_alone() {
    check(
        "phases step.snap --from-step 1",
        &expect![[r#"
        Peak: 20.98 KiB requested, at event 11, step 0, optimizer; 1 phase in 1 step listed.

          step  phase   start       peak                end  at its peak
             1  other  12 KiB  12.98 KiB  ██████  12.98 KiB  optimizer_state 8 KiB, parameter 4 KiB, input 1000 B

        Next: highwater peak step.snap --by scope,op   to see what is using memory at the peak
    "#]],
    );
    let last = answer(trace(), "phases step.snap --to-step 0").unwrap();
    assert!(last.contains("4 phases in 1 step listed") && last.contains('◀') && !last.contains(" other "), "{last}");
    let error = answer(trace(), "phases step.snap --from-step 2").unwrap_err().to_string();
    assert_eq!(error, "--from-step 2: the recording has no such step; it has steps 0 to 1");
}

#[test]
fn the_marked_phase_is_the_one_that_the_headline_names() {
    let step = |number: u32| {
        format!("step {number}\nphase forward\nalloc a{number} 900 activation\nphase backward\nfree a{number}\n")
    };
    let text = answer(trace_from_text(&format!("{}{}", step(0), step(1))).unwrap(), "phases step.snap").unwrap();
    assert!(text.contains("step 1, forward; 4 phases in 2 steps"), "{text}");
    let marked: Vec<&str> = text.lines().filter(|line| line.contains('◀')).collect();
    let [row] = marked[..] else { panic!("one row: {text}") };
    assert!(row.trim_start().starts_with("1  forward"), "{text}");
}

#[test]
fn growth_of_an_empty_recording_has_nothing_to_compare() {
    let text = answer(trace_from_text("").unwrap(), "growth step.snap").unwrap();
    assert!(text.starts_with("The recording has no events and no blocks: there is nothing to compare.\n"), "{text}");
    assert!(!text.contains("grow") && !text.contains("no steps"), "{text}");
    let state = answer(trace_from_text("baseline w 100").unwrap(), "growth step.snap").unwrap();
    assert!(state.starts_with("The recording has no events, so growth is unknown."), "{state}");
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

            Next: highwater peak step.snap --at 21   to see what is using memory after this event
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

            Next: highwater peak step.snap --at 7 --where scope=layer   to see what is using memory after this event
        "#]],
    );
}

/// Two devices with marks of their own, as an imported recording has them, and phases of which one is guessed.
const IMPORTED: &str = r#"
begin ProfilerStep#3
begin forward
alloc a 1000 < conv < main
attribute user_metadata "layer \"3\""
attribute compile_context 0/0
end forward
mark snapshot
alloc b 500 device=1
mark snapshot device=1
begin backward guessed
free a
attribute user_metadata ""
"#;

#[test]
fn imported_events_have_their_attributes_and_marks_their_device() {
    let listed = |words: &str| answer(trace_from_text(IMPORTED).unwrap(), words).unwrap();
    expect![[r#"
        On device 0 of 2: Events 0 to 5 of 6:

          event   seconds  kind            what
              0  0.000001  alloc           b0 1000/1000 unknown large
                           < conv
                           < main
                           compile_context: 0/0
                           user_metadata: layer "3"
              1  0.000002  mark            snapshot
              4  0.000005  free_requested  b0
              5  0.000006  free_completed  b0
                           user_metadata: 

        Note: phases are guessed from stacks.

        Next: highwater peak step.pickle --at 5 --device 0   to see what is using memory after this event
    "#]]
    .assert_eq(&listed("events step.pickle --device 0 --stacks"));
    assert!(!listed("events step.pickle --device 1").contains("alloc           b0"));
    assert_eq!(listed("events step.pickle --device 1").matches("snapshot device=1").count(), 1);
    let object = json(trace_from_text(IMPORTED).unwrap(), "events step.pickle --json");
    let events = object["events"].as_array().unwrap();
    let expected = serde_json::json!({"compile_context": "0/0", "user_metadata": "layer \"3\""});
    assert_eq!(events[0]["attributes"], expected);
    assert!(events[1].get("attributes").is_none());
    assert_eq!((&events[0]["step"], &events[0]["phase"]), (&3.into(), &"forward".into()));
    assert_eq!(events[5]["phase"], "backward");
    let ours = trace_from_text(IMPORTED).unwrap().edited(|ours| ours.header.recorder = "highwater 0.1.0".to_owned());
    let text = answer(ours, "events step.snap --device 1").unwrap();
    assert_eq!(text.matches("snapshot").count(), 2, "our own recorder's marks concern every device: {text}");
}

#[test]
fn guessed_phases_limit_trust_and_annotations_are_counted() {
    let imported = || trace_from_text(IMPORTED).unwrap();
    let text = answer(imported(), "info step.pickle").unwrap();
    assert!(text.contains("  annotated  3 ranges, 1 of them guessed\n"), "{text}");
    assert!(text.contains("Note: phases are guessed from stacks.") && !text.contains("Complete:"), "{text}");
    let object = json(imported(), "info step.pickle --json");
    assert_eq!(object["annotations"], 3);
    let trust = &object["devices"][0]["trust"];
    assert_eq!((&trust["phases_guessed"], &trust["complete"]), (&true.into(), &false.into()));
    let object = json(trace(), "info step.snap --json");
    assert_eq!((&object["annotations"], &object["devices"][0]["trust"]["phases_guessed"]), (&0.into(), &false.into()));
    assert!(answer(imported(), "verify step.pickle").unwrap().contains("Note: phases are guessed"));
}

#[test]
fn verify_distinguishes_sound_recordings_from_others() {
    check(
        "verify step.snap",
        &expect![[r#"
            Sound: 22 events, 7 blocks; all checksums match, and no contradiction was found.

            Next: highwater info step.snap   for its contents
        "#]],
    );
    let damaged = trace().edited(|damaged| {
        damaged.problems.push(Problem::at(4096, "a section of events is damaged: 12 events are missing"));
        damaged.trust.events_lost = 12;
    });
    expect![[r#"
        Not sound: 1 problem; what could be read: 22 events, 7 blocks.

          at byte 4096: a section of events is damaged: 12 events are missing

        Trust: 12 events are missing: totals include events dropped from a full ring, but not events lost to a slow disk or damage.

        Next: highwater info step.snap   for its contents
    "#]]
    .assert_eq(&answer(damaged, "verify step.snap").unwrap());
}

#[test]
fn doubts_are_reported_with_every_answer() {
    let doubtful = trace().edited(|doubtful| {
        doubtful.trust.unfinished = true;
        doubtful.problems.push(Problem::at(4096, "the file ends within a section"));
    });
    for command in ["info", "peak", "phases", "events"] {
        let text = answer(doubtful.clone(), &format!("{command} step.snap")).unwrap();
        assert!(text.contains("Trust: the recording was cut off"), "{text}");
        assert!(text.contains("Problem: at byte 4096: the file ends within a section"), "{text}");
        let object = json(doubtful.clone(), &format!("{command} step.snap --json"));
        assert_eq!(object["problems"][0], "at byte 4096: the file ends within a section", "{command}");
    }
}

#[test]
fn a_state_without_events_is_described_as_one() {
    let state = || trace_from_text("baseline w 4096 parameter\nbaseline_segment 0x0 2097152").unwrap();
    let text = answer(state(), "info step.snap").unwrap();
    assert!(text.starts_with("State at the dump, without events: 4 KiB requested in 1 block."), "{text}");
    let peak = json(state(), "peak step.snap --json");
    assert_eq!((&peak["bytes"], &peak["event"], &peak["phase"]), (&4096.into(), &Value::Null, &"setup".into()));
    assert!(answer(state(), "events step.snap").unwrap().starts_with("No events"));
    assert!(answer(state(), "phases step.snap").unwrap().starts_with("No phase"));
    assert_eq!(json(state(), "events step.snap --json")["events"], Value::Array(vec![]));
    let empty = answer(Trace::default(), "info step.snap").unwrap();
    assert!(empty.starts_with("An empty recording"), "{empty}");
}

#[test]
fn modules_are_grouped_to_a_depth_by_every_command_that_groups() {
    let text = "step 0\nphase forward\nalloc a 100 activation @net.a.x < main\nalloc b 200 activation @net.a.y < main\n\
                alloc c 400 activation @net.b.x.z < main\nalloc d 800 activation @net < main\nstep 1\nphase forward\n\
                alloc e 100 activation @net.a.y < main\nstep 2\nphase forward\nalloc f 100 activation @net.a.x < main\n";
    let trace = || trace_from_text(text).unwrap();
    let groups = |words: &str, key: &str, bytes: &str| -> Vec<(String, i64)> {
        let told = json(trace(), words);
        let groups = told["groups"].as_array().unwrap_or_else(|| panic!("{told}")).iter();
        groups.map(|group| (group[key].as_str().unwrap().to_owned(), group[bytes].as_i64().unwrap())).collect()
    };
    let named =
        |rows: &[(&str, i64)]| rows.iter().map(|(name, bytes)| ((*name).to_owned(), *bytes)).collect::<Vec<_>>();
    assert_eq!(
        groups("peak a.snap --by scope:2 --json", "key", "bytes"),
        named(&[("net", 800), ("net.a", 500), ("net.b", 400)])
    );
    assert_eq!(groups("peak a.snap --by scope:1 --json", "key", "bytes"), named(&[("net", 1700)]));
    let explained = groups("explain a.snap --by scope:2 --json", "key", "bytes_at_peak");
    assert!(explained.contains(&("net.a".to_owned(), 500)), "{explained:?}");
    let grown = groups("diff a.snap --at step:0 --at-b step:2 --by scope:2 --json", "key", "delta_bytes");
    assert!(grown.contains(&("net.a".to_owned(), 200)), "{grown:?}");
}

/// A server that was running: each request keeps what `kept` says.
fn server(kept: impl Fn(u32) -> String) -> Trace {
    let request = |number: u32| {
        let bytes = 1000 + 100 * (number % 3);
        format!(
            "alloc x{number} {bytes} < serve.py:8 answer\nalloc y{number} {bytes} < serve.py:9 answer\n{}free x{number}\nfree y{number}\n",
            kept(number)
        )
    };
    trace_from_text(&format!("baseline w 50000\n{}", (0..20).map(request).collect::<String>())).unwrap()
}

#[test]
fn between_idle_moments_a_server_leaks_what_its_bursts_keep_throughout() {
    let leaks = |number| format!("alloc k{number} 400 < serve.py:12 remember\n");
    let text = answer(server(leaks), "growth a.snap --between idle").unwrap();
    let first = "serve.py:12 remember leaks 400 B a burst: 7.42 KiB from 19 bursts (1 to 19) is still live.\n";
    assert!(text.starts_with(first), "{text}");
    // What a cache replaces is freed later.
    let caches = |number: u32| {
        let drop = if number < 4 { String::new() } else { format!("free k{}\n", number - 4) };
        format!("{drop}alloc k{number} 400 < serve.py:12 remember\n")
    };
    let text = answer(server(caches), "growth a.snap --between idle").unwrap();
    assert!(text.starts_with("No leak: no source line leaves memory live after every burst.\n"), "{text}");
    let object = json(server(caches), "growth a.snap --between idle --json");
    assert_eq!((&object["between"], &object["steps"]), (&"idle".into(), &19.into()), "{object}");
    let error = answer(trace(), "growth a.snap --between idle").unwrap_err().to_string();
    assert!(error.starts_with("--between idle: there are no bursts to compare, because memory does not"), "{error}");
}
