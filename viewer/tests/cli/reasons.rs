//! Tests the text and JSON output of `explain` and `diff`.

use expect_test::{Expect, expect};
use highwater_notation::trace_from_text;
use highwater_snapshots::format::write_trace;
use serde_json::Value;

use crate::binary::{highwater, stdout};
use crate::sample::{answer, json, trace};

fn check(words: &str, expected: &Expect) {
    expected.assert_eq(&answer(trace(), words).unwrap());
}

fn sum(rows: &Value, key: &str) -> i64 {
    rows.as_array().unwrap().iter().map(|row| row[key].as_i64().unwrap()).sum()
}

#[test]
fn explain_says_what_the_peak_is_made_of_and_what_could_be_done() {
    check(
        "explain step.snap",
        &expect![[r#"
            Peak: 20.98 KiB requested, at event 11, step 0, optimizer.

            • 8 KiB (38%) are optimizer state, 2.0 times the parameters. An 8-bit optimizer, or sharding the state over
              ranks, needs less.
            • 4 KiB (19%) are gradients kept until the optimizer step. An optimizer step in backward updates each
              parameter as soon as its gradient is complete, and frees the gradient at once: without them the peak is
              16.98 KiB, 4 KiB less.

            Composition of the peak, and the peak without each group:
              category         phase                 at the peak   share                blocks  without it   saves  new peak in
              optimizer_state  optimizer                8.00 KiB   38.1%  ████▌              1   12.98 KiB   8 KiB  optimizer, step 0
              parameter        before the recording     4.00 KiB   19.1%  ██▎                1   16.98 KiB   4 KiB  optimizer, step 0
              gradient         backward                 4.00 KiB   19.1%  ██▎                1   16.98 KiB   4 KiB  optimizer, step 0
              temporary        optimizer                4.00 KiB   19.1%  ██▎                1   16.98 KiB   4 KiB  optimizer, step 0
              input            forward                    1000 B    4.7%  ▌                  1   20.00 KiB  1000 B  optimizer, step 0
              total                                    20.98 KiB  100.0%  ████████████

            Removing parts that the program may do without, each time the one that lowers the peak most:
              without                   size at that peak  peak without it  new peak in
              gradient from backward                4 KiB        16.98 KiB  optimizer, step 0
              temporary from optimizer              4 KiB        12.98 KiB  optimizer, step 0

            At that moment: 20.98 KiB requested + 24 B rounding + 3.98 MiB free in segments = 4 MiB reserved.

            Next: highwater explain step.snap --by scope,op   for the modules and operations behind it
            Next: highwater plan step.snap --budget SIZE   for the cheapest changes that fit
        "#]],
    );
}

#[test]
fn explain_of_a_recording_that_ends_in_an_oom_reaches_up_to_the_failed_request_and_advises_nothing_that_fails_too() {
    let mebibytes = |count: u64| count << 20;
    let lines = format!(
        "segment_alloc 0x10000000 {0}\nalloc a {0} large\nsegment_alloc 0x20000000 {0}\nalloc b {0} large\n\
         free a\nfree b\nsegment_alloc 0x30000000 {1}\nalloc c {1} large\n",
        mebibytes(100),
        mebibytes(250)
    );
    let text = |lines: &str| {
        let trace = trace_from_text(lines)
            .unwrap()
            .edited(|trace| trace.blocks.address = vec![0x1000_0000, 0x2000_0000, 0x3000_0000]);
        let text = answer(trace, "explain step.snap").unwrap();
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let whole = text(&lines);
    assert!(whole.contains("the peak of reserved memory is 260 MiB, 190 MiB less"), "{whole}");
    assert!(whole.contains("and the peak without each group:"), "{whole}");
    // The allocator releases what is cached before it gives up.
    let released = format!("segment_free 0x10000000 {0}\nsegment_free 0x20000000 {0}\n", mebibytes(100));
    let failed = text(&format!("{lines}{released}oom 1073741824 free={}\n", mebibytes(700)));
    assert!(!failed.contains("expandable_segments"), "with them the same request fails: {failed}");
    assert!(failed.contains("and the peak up to the failed request without each group:"), "{failed}");
}

#[test]
fn explain_shows_what_would_be_left_without_chosen_blocks() {
    check(
        "explain step.snap --by scope --where 'category=gradient,temporary'",
        &expect![[r#"
            Peak: 20.98 KiB requested, at event 11, step 0, optimizer.
            Of these, 8 KiB (38.1%) are in blocks with category=gradient,temporary. Without all such blocks the peak would be 12.98 KiB, 8 KiB less, at event 10, step 0, optimizer.

            For the whole peak:
            • 8 KiB (38%) are optimizer state, 2.0 times the parameters. An 8-bit optimizer, or sharding the state over
              ranks, needs less.
            • 4 KiB (19%) are gradients kept until the optimizer step. An optimizer step in backward updates each
              parameter as soon as its gradient is complete, and frees the gradient at once: without them the peak is
              16.98 KiB, 4 KiB less.

            Composition of the peak, and the peak without each group:
              scope   at the peak   share                blocks  without it  saves  new peak in
              layer         4 KiB   50.0%  ██████             1   16.98 KiB  4 KiB  optimizer, step 0
              (none)        4 KiB   50.0%  ██████             1   16.98 KiB  4 KiB  optimizer, step 0
              total         8 KiB  100.0%  ████████████
            (none): no scope is recorded for these blocks, such as those live before the recording.

            Removing parts of the whole peak that the program may do without, each time the one that lowers the peak most:
              without                   size at that peak  peak without it  new peak in
              gradient from backward                4 KiB        16.98 KiB  optimizer, step 0
              temporary from optimizer              4 KiB        12.98 KiB  optimizer, step 0

            At that moment: 20.98 KiB requested + 24 B rounding + 3.98 MiB free in segments = 4 MiB reserved.

            Next: highwater explain step.snap --by frame --where category=gradient,temporary   for the lines of code behind it
            Next: highwater plan step.snap --budget SIZE   for the cheapest changes that fit
        "#]],
    );
}

#[test]
fn explain_shows_what_is_held_but_not_used_again_where_that_was_recorded() {
    let text = "alloc w 4096 parameter @fc\nused w\nstep 0\nphase forward\nalloc a 1024 activation @fc\nused w\n\
                used a\nalloc logits 2048 temporary @head\nused a\nused logits\nphase backward\n\
                alloc g 4096 gradient @fc\nused a\nused g\nfree logits\nfree a";
    let trace = trace_from_text(text).unwrap();
    let words = answer(trace.clone(), "explain used.snap").unwrap();
    let told = words
        .split("\n\n")
        .find(|part| part.starts_with("Live at the peak but not used again"))
        .unwrap_or_else(|| panic!("{words}"));
    expect![[r#"
        Live at the peak but not used again: 2 KiB (18.2%), temporary 2 KiB. Were all blocks freed after their last use, the peak would be 9 KiB, 2 KiB less, at event 11, step 0, backward.
          category   scope   held   share                blocks
          temporary  head   2 KiB  100.0%  ████████████       1"#]]
    .assert_eq(told);
    assert!(words.contains("• 2 KiB (18%) are live but not used again: temporary 2 KiB. Free"), "{words}");
    let figures = json(trace, "explain used.snap --json");
    assert_eq!((&figures["idle"]["bytes"], &figures["idle"]["peak"]["bytes"]), (&2048.into(), &9216.into()));
    let all_used = "alloc a 1024 activation\nused a\nalloc b 512\nused a\nused b\nfree a";
    let words = answer(trace_from_text(all_used).unwrap(), "explain used.snap").unwrap();
    assert!(
        words.contains("\nAll memory that is live at the peak is used again later, or may be used after"),
        "{words}"
    );
    let events = answer(trace_from_text(all_used).unwrap(), "events used.snap --kind used").unwrap();
    assert_eq!(events.lines().filter(|line| line.contains("  used  ")).count(), 3, "{events}");
}

#[test]
fn explained_groups_and_rest_sum_to_the_peak() {
    for metric in ["requested", "allocated", "active"] {
        for keys in ["category", "op,scope", "stack", "category,phase", "size"] {
            for top in ["0", "1", "100"] {
                let words = format!("explain step.snap --json --metric {metric} --by {keys} --top {top}");
                let explained = json(trace(), &words);
                let listed = sum(&explained["groups"], "bytes_at_peak") + explained["rest_bytes"].as_i64().unwrap();
                assert_eq!(listed, explained["peak"]["bytes"].as_i64().unwrap(), "{words}: {explained}");
                for group in explained["groups"].as_array().unwrap() {
                    let left = group["peak_without"].as_i64().unwrap() + group["saved_bytes"].as_i64().unwrap();
                    assert_eq!(left, explained["peak"]["bytes"].as_i64().unwrap(), "{group}");
                }
            }
        }
    }
}

#[test]
fn diff_says_what_makes_the_difference() {
    check(
        "diff step.snap wide.snap",
        &expect![[r#"
            B takes 4 KiB less than A: 16.98 KiB requested against 20.98 KiB.
            A: step.snap, at event 11, step 0, optimizer.
            B: wide.snap, at event 10, step 0, optimizer.

              set differently  in A   in B
              program          train  train --wide

            Peaks of the whole recordings:
              total              A          B  difference
              requested  20.98 KiB  16.98 KiB   −4.00 KiB
              allocated  21.00 KiB  17.00 KiB   −4.00 KiB
              active     21.00 KiB  17.00 KiB   −4.00 KiB
              reserved    4.00 MiB   4.00 MiB         0 B

            Peaks of 3 differing phases.
              step  phase              A          B  difference
              0     forward     7.91 KiB  10.84 KiB   +2.93 KiB
              0     backward   11.91 KiB  14.84 KiB   +2.93 KiB
              0     optimizer  20.98 KiB  16.98 KiB   −4.00 KiB

            Differences:
              category                 A          B  difference
              temporary         4.00 KiB        0 B   −4.00 KiB  only in A
              optimizer_state   8.00 KiB   8.00 KiB         0 B
              gradient          4.00 KiB   4.00 KiB         0 B
              parameter         4.00 KiB   4.00 KiB         0 B
              input               1000 B     1000 B         0 B
              total            20.98 KiB  16.98 KiB   −4.00 KiB

            Next: highwater diff step.snap wide.snap --by scope,op   for the modules and operations behind it
        "#]],
    );
}

#[test]
fn diff_matches_stacks_through_a_function_that_was_put_in_and_says_so() {
    check(
        "diff step.snap wide.snap --at step:0 --by stack --where category=optimizer_state,temporary",
        &expect![[r#"
            B takes 4 KiB less than A: 16.98 KiB requested against 20.98 KiB.
            A: step.snap, at event 11, step 0, optimizer.
            B: wide.snap, at event 10, step 0, optimizer.

              set differently  in A   in B
              program          train  train --wide

            Peaks of the whole recordings:
              total              A          B  difference
              requested  20.98 KiB  16.98 KiB   −4.00 KiB
              allocated  21.00 KiB  17.00 KiB   −4.00 KiB
              active     21.00 KiB  17.00 KiB   −4.00 KiB
              reserved    4.00 MiB   4.00 MiB         0 B

            Peaks of 3 differing phases.
              step  phase              A          B  difference
              0     forward     7.91 KiB  10.84 KiB   +2.93 KiB
              0     backward   11.91 KiB  14.84 KiB   +2.93 KiB
              0     optimizer  20.98 KiB  16.98 KiB   −4.00 KiB

            Of this, −4 KiB in blocks with category=optimizer_state,temporary:
              stack         A      B  difference
              step     12 KiB  8 KiB      −4 KiB  (calls changed)
              wrapped
              train
              main
              total    12 KiB  8 KiB      −4 KiB
            1 group was matched loosely: functions were inserted into the stacks, or renamed.

            Next: highwater diff step.snap wide.snap --by scope,op --at step:0 --where category=optimizer_state,temporary   for the modules and operations behind it
        "#]],
    );
}

#[test]
fn diff_of_one_recording_compares_its_last_two_whole_steps() {
    let mut text = "baseline w 4096 parameter\n".to_owned();
    for step in 0..3 {
        text += &format!(
            "step {step}\nphase forward\nalloc x{step} 1000 input\nalloc a{step} 500 activation\nfree a{step}\n"
        );
    }
    text += "step 3\nphase forward\nalloc x3 1000 input\nalloc a3 500 activation\noom 9000 free=0\n";
    let printed = answer(trace_from_text(&text).unwrap(), "diff step.snap").unwrap();
    expect![[r#"
        B takes 1000 B more than A: 6.93 KiB requested against 5.95 KiB.
        A: step.snap, at event 11, step 1, forward.
        B: step.snap, at event 17, step 2, forward.

        Differences:
          category          A         B  difference
          input      1.95 KiB  2.93 KiB     +1000 B
          parameter  4.00 KiB  4.00 KiB         0 B
          total      5.95 KiB  6.93 KiB     +1000 B

        Next: highwater diff step.snap --by frame   for the lines of code behind it
    "#]]
    .assert_eq(&printed);
    let why = answer(trace(), "diff step.snap").unwrap_err().to_string();
    assert!(why.contains("fewer than two whole steps"), "{why}");
}

#[test]
fn diff_names_single_blocks_that_one_side_alone_holds() {
    let figures = json(trace(), "diff a.snap b.snap --blocks 2 --json");
    let blocks = figures["blocks"].as_array().unwrap();
    let told: Vec<_> = blocks.iter().map(|one| (one["only_in"].as_str().unwrap(), one["bytes"].as_u64())).collect();
    assert_eq!(told, [("a", Some(4096))], "the optimizer's temporary; the rest has its like");
    let lone = ["lone_b_bytes", "lone_a_bytes"].map(|key| figures[key].as_i64().unwrap());
    assert_eq!(lone[0] - lone[1], figures["delta_bytes"].as_i64().unwrap());
    assert_eq!(json(trace(), "diff a.snap b.snap --json")["blocks"], Value::Null);
    let text = answer(trace(), "diff a.snap b.snap --blocks 2").unwrap();
    assert!(text.contains("Blocks on one side only: "), "{text}");
}

#[test]
fn differences_sum_for_every_metric_key_and_moment() {
    for metric in ["requested", "allocated", "active", "reserved"] {
        for keys in ["category", "op,scope", "stack", "frame", "lifetime,phase,step"] {
            for options in ["", "--at end", "--at step:0", "--at step-end:1 --at-b peak", "--top 1", "--top 0"] {
                let words = format!("diff step.snap wide.snap --json --metric {metric} --by {keys} {options}");
                let diff = json(trace(), &words);
                let listed = sum(&diff["groups"], "delta_bytes") + diff["rest_delta_bytes"].as_i64().unwrap();
                assert_eq!(listed, diff["delta_bytes"].as_i64().unwrap(), "{words}: {diff}");
                let sides = diff["b"]["bytes"].as_i64().unwrap() - diff["a"]["bytes"].as_i64().unwrap();
                assert_eq!(sides, diff["delta_bytes"].as_i64().unwrap());
            }
        }
    }
}

#[test]
fn questions_about_two_recordings_that_cannot_be_answered_are_refused() {
    let why = |words: &str| answer(trace(), words).unwrap_err().to_string();
    assert!(why("diff step.snap wide.snap --at step:9").contains("step:9 of A"));
    assert!(why("diff step.snap wide.snap --at-b step:9").contains("step:9 of B"));
    assert!(why("diff step.snap wide.snap --device-b 3").starts_with("B: --device 3"));
    assert!(why("diff step.snap --at end").contains("--at-b"));
    let one_step = trace_from_text("step 0\nalloc a 10").unwrap();
    assert!(answer(one_step, "diff step.snap").unwrap_err().to_string().contains("fewer than two"));
}

#[test]
fn of_many_differing_phases_those_that_differ_most_are_listed_in_their_order() {
    let folder = tempfile::tempdir().unwrap();
    let steps = |last: u32| -> String {
        let step = |number: u32| {
            let bytes = if number == 13 { last } else { last / 2 };
            format!("step {number}\nphase forward\nalloc a{number} {bytes}\nfree a{number}\n")
        };
        (0..14).map(step).collect()
    };
    for (name, last) in [("a.snap", 1000), ("b.snap", 4000)] {
        let trace = trace_from_text(&steps(last)).unwrap();
        std::fs::write(folder.path().join(name), write_trace(Vec::new(), &trace).unwrap()).unwrap();
    }
    let text = stdout(&highwater(folder.path(), "diff a.snap b.snap"));
    let (_, listed) = text.split_once("Peaks of 14 differing phases. The 12 that differ most:\n").expect("a table");
    let rows: Vec<&str> = listed.lines().skip(1).take_while(|line| !line.is_empty()).collect();
    assert_eq!(rows.len(), 12, "{text}");
    assert!(rows[11].trim_start().starts_with("13 ") && rows[11].ends_with("+2.93 KiB"), "{text}");
}
