//! Reasons: what `explain` and `diff` print, for people and for programs.

use expect_test::{Expect, expect};
use highwater_snapshots::text::trace_from_text;
use serde_json::Value;

use crate::sample::{answer, json, trace};

fn check(words: &str, expected: &Expect) {
    expected.assert_eq(&answer(trace(), words).unwrap());
}

fn sum(rows: &Value, key: &str) -> i64 {
    rows.as_array().unwrap().iter().map(|row| row[key].as_i64().unwrap()).sum()
}

#[test]
fn explain_says_what_the_peak_is_made_of_and_what_could_be_done() {
    check("explain step.snap", &expect![[""]]);
}

#[test]
fn explain_tells_what_would_be_left_without_chosen_blocks() {
    check("explain step.snap --by scope --where 'category=gradient,temporary'", &expect![[""]]);
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
    check("diff step.snap wide.snap", &expect![[""]]);
}

#[test]
fn diff_matches_stacks_through_a_function_that_was_put_in_and_says_so() {
    check("diff step.snap wide.snap --at step:0 --by stack --where category=activation", &expect![[""]]);
}

#[test]
fn diff_of_one_recording_tells_what_lives_on() {
    check("diff step.snap", &expect![[""]]);
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
