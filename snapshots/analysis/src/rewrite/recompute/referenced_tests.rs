//! Tests of recomputed modules on small recordings with references.

use expect_test::expect;
use highwater_notation::{text_from_trace, trace_from_text};
use highwater_snapshots::{DeviceId, Trace};

use super::*;

/// `a` saves its input and `a1`, and reduces a gradient at the end; its result `a2` is saved by `b`.
const FIRST: &str = "
    baseline w 100 parameter @a
    step 0
    phase forward
    alloc x 10
    attribute references \"end 2\\ninput 0 a\\nsaved 0 4 - 6 a\"
    alloc a1 50 activation @a
    attribute references \"end 1\\nsaved 0 3 4 5 a\"
    alloc a2 20 activation @a
    attribute references \"end 1\\nsaved 0 1 - 2 b\"
    alloc b1 30 @b
    phase backward
    alloc g1 20 temporary @b
    free a2
    free b1
    alloc g2 50 temporary @a
    alloc g3 5 temporary @a
    free a1
    free x
    free g1
    free g2
    free g3
    phase optimizer
    alloc o 7
    free o
";

/// The step without what is known of it.
fn unknown(step: &str) -> String {
    let lines = step.lines().filter(|line| !line.contains("attribute") && !line.contains("baseline"));
    lines.map(|line| format!("{line}\n")).collect::<String>().replace("step 0", "step 1")
}

fn with_a_recomputed(text: &str) -> Trace {
    let trace = trace_from_text(text).unwrap();
    let members = Members::matching(&trace, &["a".parse().unwrap()]);
    apply(&trace, DeviceId(0), &effects(&trace, DeviceId(0), &members)).trace
}

/// The text from the beginning of a step on, with blocks named after the allocation that they are in the step.
fn events_of_step(trace: &Trace, step: u32) -> String {
    let text = text_from_trace(trace);
    let mut names: Vec<String> = Vec::new();
    let lines = text.lines().skip_while(|line| *line != format!("step {step}")).skip(1);
    let lines = lines.take_while(|line| !line.starts_with("step")).filter(|line| !line.starts_with("attribute"));
    let rename = |line: &str| {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        if words[0] == "alloc" {
            names.push(words[1].clone());
        }
        let of = |word: &String| names.iter().position(|name| name == word).map(|index| format!("n{index}"));
        let words: Vec<String> = words.into_iter().map(|word| of(&word).unwrap_or(word)).collect();
        format!("{}\n", words.join(" "))
    };
    lines.map(rename).collect()
}

#[test]
fn forward_frees_what_only_the_graph_refers_to_and_backward_what_a_node_has_dropped() {
    let expected = expect![[r#"
        phase forward
        alloc n0 10/10 unknown large
        alloc n1 50/50 activation @a large
        alloc n2 20/20 activation @a large
        free_requested n1
        free_completed n1
        alloc n3 30/30 unknown @b large
        phase backward
        alloc n4 20/20 temporary @b large
        free_requested n2
        free_completed n2
        free_requested n3
        free_completed n3
        alloc n5 50/50 activation @a large
        alloc n6 50/50 temporary @a large
        free_requested n5
        free_completed n5
        alloc n7 5/5 temporary @a large
        free_requested n0
        free_completed n0
        free_requested n4
        free_completed n4
        free_requested n6
        free_completed n6
        free_requested n7
        free_completed n7
        phase optimizer
        alloc n8 7/7 unknown large
        free_requested n8
        free_completed n8
    "#]];
    expected.assert_eq(&events_of_step(&with_a_recomputed(FIRST), 0));
}

#[test]
fn a_later_step_that_allocates_the_same_has_the_same_references() {
    let trace = with_a_recomputed(&format!("{FIRST}{}", unknown(FIRST)));
    assert_eq!(events_of_step(&trace, 1), events_of_step(&trace, 0));
}

#[test]
fn a_later_step_has_the_references_of_the_followed_step_that_allocates_the_same() {
    let longer = FIRST.replace("    baseline w 100 parameter @a\n", "").replace("alloc b1 30", "alloc b1 31");
    let text = format!("{FIRST}{}{}", longer.replace("step 0", "step 1"), unknown(FIRST).replace("step 1", "step 2"));
    let trace = with_a_recomputed(&text);
    assert_eq!(events_of_step(&trace, 2), events_of_step(&trace, 0));
    let why = |text: &str| Evidence::shortfall(&trace_from_text(text).unwrap(), DeviceId(0));
    assert_eq!(why(&text), None);
    let other = unknown(FIRST).replace("step 1", "step 3").replace("alloc b1 30", "alloc b1 32");
    let expected = "in 1 of 4 steps, allocations differ from the steps whose references were recorded";
    assert_eq!(why(&format!("{text}{other}")).as_deref(), Some(expected));
}

#[test]
fn a_step_that_allocates_otherwise_is_predicted_from_lifetimes() {
    let other = unknown(FIRST).replace("alloc b1 30", "alloc b1 31");
    let trace = with_a_recomputed(&format!("{FIRST}{other}"));
    let text = events_of_step(&trace, 1);
    assert!(text.contains("alloc n5 50/50 activation @a") && text.contains("alloc n7 5/5"), "{text}");
    assert_ne!(text.replace("31/31", "30/30"), events_of_step(&trace, 0), "the dropped block ends as recorded");
}

#[test]
fn the_evidence_is_the_best_that_a_recording_has() {
    let evidence = |text: &str| Evidence::of(&trace_from_text(text).unwrap(), DeviceId(0));
    assert_eq!(evidence(FIRST), Evidence::References);
    assert_eq!(evidence(&unknown(FIRST)), Evidence::Lifetimes);
    let other = unknown(FIRST).replace("alloc b1 30", "alloc b1 31");
    assert_eq!(evidence(&format!("{FIRST}{other}")), Evidence::Lifetimes, "of the second step nothing is known");
    for number in ["18446744073709551615", "99"] {
        // Whatever a file says, it is read.
        with_a_recomputed(&format!("{}{}", FIRST.replace("end 1", &format!("end {number}")), unknown(FIRST)));
        with_a_recomputed(&format!(
            "{}{}",
            FIRST.replace(" 3 4 5 a", &format!(" {number} {number} 0 a")),
            unknown(FIRST)
        ));
    }
    assert_eq!(evidence(&FIRST.replace("free a2\n", "used a2\nfree a2\n")), Evidence::Uses);
}

#[test]
fn scratch_memory_of_a_library_is_allocated_once_more_by_the_first_recomputed_operation_and_kept() {
    // The operation of `a1` also allocates scratch memory of two sizes, of which backward has the smaller one already.
    let text = "
        baseline w 100 parameter @a
        step 0
        phase forward
        alloc x 10
        attribute references \"end 4\\ninput 0 a\\nsaved 0 7 - 9 a\"
        alloc a1 50 activation @a < linear.py:134 forward
        attribute references \"end 3\\nsaved 0 6 7 8 a\"
        alloc s 9 @a < linear.py:134 forward
        alloc t 3 @a < linear.py:134 forward
        alloc a2 20 activation @a
        attribute references \"end 1\\nsaved 0 1 - 3 b\"
        alloc b1 30 @b
        phase backward
        alloc t2 3 @b
        alloc g1 20 temporary @b
        free a2
        free b1
        alloc g2 50 temporary @a
        alloc g3 5 temporary @a
        free a1
        free x
        free g1
        free g2
        free g3
    ";
    let trace = trace_from_text(text).unwrap();
    let recomputed = with_a_recomputed(text);
    let sizes = |trace: &Trace, bytes: u64| {
        let kept = trace.blocks.ids().filter(|block| trace.blocks.requested[block.0 as usize] == bytes);
        kept.map(|block| trace.blocks.free_requested[block.0 as usize].is_some()).collect::<Vec<_>>()
    };
    assert_eq!((sizes(&trace, 9), sizes(&trace, 3)), (vec![false], vec![false; 2]));
    assert_eq!((sizes(&recomputed, 9), sizes(&recomputed, 3)), (vec![false; 2], vec![false; 2]));
}
