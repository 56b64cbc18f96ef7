//! Tests of recomputed modules on small recordings.

use expect_test::{Expect, expect};
use highwater_notation::{text_from_trace, trace_from_text};
use highwater_snapshots::{DeviceId, EventId};

use super::*;

/// Two modules, of which `b` saves the result of `a`.
const STEP: &str = "
    baseline w 100 parameter @a
    step 0
    phase forward
    alloc x 10 activation
    alloc a1 50 activation @a
    alloc a2 7 temporary @a.inner
    free a2
    alloc a3 20 activation @a
    alloc b1 30 activation @b
    alloc b2 20 temporary @b
    phase backward
    alloc g1 20 temporary @b
    free b1
    free a3
    free b2
    alloc g2 50 temporary @a
    free a1
    free g1
    free x
    free g2
";

fn recomputed(text: &str, pattern: &str, extent: Extent) -> Recomputed {
    let recorder = if extent == Extent::Whole { "highwater" } else { "" };
    let trace = trace_from_text(text).unwrap().edited(|trace| trace.header.recorder = recorder.to_owned());
    let members = Members::matching(&trace, &[pattern.parse().unwrap()]);
    apply(&trace, DeviceId(0), &effects(&trace, DeviceId(0), &members))
}

fn check(text: &str, pattern: &str, extent: Extent, expected: &Expect) {
    let recomputed = recomputed(text, pattern, extent);
    assert!(recomputed.trace.trust.is_complete(), "{:?}", recomputed.trace.trust);
    let lines = text_from_trace(&recomputed.trace);
    let kept: Vec<&str> = lines.lines().filter(|line| !line.starts_with("free_completed")).collect();
    expected.assert_eq(&(kept.join("\n") + "\n"));
}

#[test]
fn what_a_module_saved_is_freed_in_forward_and_allocated_again_before_its_backward() {
    check(
        STEP,
        "a",
        Extent::UntilSaved,
        &expect![[r#"
        baseline b0 100/100 parameter @a large
        step 0
        phase forward
        alloc b1 10/10 activation large
        alloc b2 50/50 activation @a large
        alloc b3 7/7 temporary @a.inner large
        free_requested b3
        alloc b4 20/20 activation @a large
        free_requested b2
        alloc b5 30/30 activation @b large
        alloc b6 20/20 temporary @b large
        phase backward
        alloc b7 20/20 temporary @b large
        free_requested b5
        free_requested b4
        free_requested b6
        alloc b8 50/50 activation @a large
        alloc b9 50/50 temporary @a large
        free_requested b8
        free_requested b7
        free_requested b1
        free_requested b9
    "#]],
    );
}

#[test]
fn the_engine_repeats_the_whole_forward_and_pytorch_only_until_all_is_saved_again() {
    check(
        STEP,
        "a",
        Extent::Whole,
        &expect![[r#"
        baseline b0 100/100 parameter @a large
        step 0
        phase forward
        alloc b1 10/10 activation large
        alloc b2 50/50 activation @a large
        alloc b3 7/7 temporary @a.inner large
        free_requested b3
        alloc b4 20/20 activation @a large
        free_requested b2
        alloc b5 30/30 activation @b large
        alloc b6 20/20 temporary @b large
        phase backward
        alloc b7 20/20 temporary @b large
        free_requested b5
        free_requested b4
        free_requested b6
        alloc b8 50/50 activation @a large
        alloc b9 7/7 temporary @a.inner large
        free_requested b9
        alloc b10 20/20 activation @a large
        free_requested b10
        alloc b11 50/50 temporary @a large
        free_requested b8
        free_requested b7
        free_requested b1
        free_requested b11
    "#]],
    );
}

#[test]
fn uses_show_when_forward_last_needs_a_block_and_which_input_is_kept() {
    let text = "
        baseline w 100 parameter @a
        step 0
        phase forward
        alloc x 10 temporary
        used x
        alloc a1 50 activation @a
        used a1
        used x
        alloc a2 20 temporary @a
        used a2
        used a1
        free x
        alloc a3 20 activation @a
        used a3
        used a2
        free a2
        alloc b1 30 activation @b
        used b1
        used a3
        phase backward
        alloc g1 20 temporary @b
        used g1
        used a3
        free b1
        free a3
        alloc g2 5 gradient @a
        used g2
        used g1
        alloc g3 50 temporary @a
        used g3
        used g1
        used w
        used a1
        free a1
        free g1
        free g3
    ";
    check(
        text,
        "a",
        Extent::Whole,
        &expect![[r#"
        baseline b0 100/100 parameter @a large
        step 0
        phase forward
        alloc b1 10/10 temporary large
        used b1
        alloc b2 50/50 activation @a large
        used b2
        used b1
        alloc b3 20/20 temporary @a large
        used b3
        used b2
        free_requested b2
        alloc b4 20/20 activation @a large
        used b4
        used b3
        free_requested b3
        alloc b5 30/30 activation @b large
        used b5
        used b4
        phase backward
        alloc b6 20/20 temporary @b large
        used b6
        used b4
        free_requested b5
        free_requested b4
        alloc b7 5/5 gradient @a large
        used b7
        used b6
        alloc b8 50/50 activation @a large
        alloc b9 20/20 temporary @a large
        alloc b10 20/20 activation @a large
        free_requested b9
        free_requested b10
        free_requested b1
        alloc b11 50/50 temporary @a large
        used b11
        used b6
        used b0
        used b8
        free_requested b8
        free_requested b6
        free_requested b11
    "#]],
    );
}

#[test]
fn a_result_that_the_module_saves_too_is_kept_for_later_modules_and_repeated() {
    let text = "
        step 0
        phase forward
        alloc a1 50 activation @a
        alloc a2 20 activation @a
        alloc b1 30 activation @b
        phase backward
        alloc g1 20 temporary @b
        free b1
        alloc g2 20 temporary @a
        free a2
        free g1
        free a1
        free g2
    ";
    check(
        text,
        "a",
        Extent::UntilSaved,
        &expect![[r#"
        step 0
        phase forward
        alloc b0 50/50 activation @a large
        alloc b1 20/20 activation @a large
        free_requested b0
        alloc b2 30/30 activation @b large
        phase backward
        alloc b3 20/20 temporary @b large
        free_requested b2
        alloc b4 50/50 activation @a large
        alloc b5 20/20 activation @a large
        free_requested b1
        alloc b6 20/20 temporary @a large
        free_requested b5
        free_requested b3
        free_requested b4
        free_requested b6
    "#]],
    );
}

#[test]
fn a_recording_that_ends_in_forward_frees_early_and_repeats_nothing() {
    let text = "
        step 0
        phase forward
        alloc a1 50 activation @a
        alloc a2 20 temporary @a
        alloc b1 30 activation @b
        oom 1000 free=10
    ";
    check(
        text,
        "{a,b}",
        Extent::UntilSaved,
        &expect![[r#"
            step 0
            phase forward
            alloc b0 50/50 activation @a large
            alloc b1 20/20 temporary @a large
            free_requested b0
            alloc b2 30/30 activation @b large
            oom 1000 free=10
        "#]],
    );
}

#[test]
fn every_call_of_a_module_is_recomputed_for_its_own_backward_in_every_step() {
    let once = STEP.replace("    baseline w 100 parameter @a\n", "");
    let text = format!("{once}{}", once.replace("step 0", "step 1"));
    let trace = trace_from_text(&text).unwrap();
    let members = Members::matching(&trace, &["*".parse().unwrap()]);
    let found = effects(&trace, DeviceId(0), &members);
    let calls: Vec<(usize, bool)> = found.iter().map(|effect| (effect.module, effect.at.is_some())).collect();
    assert_eq!(calls, [(0, true), (1, true), (0, true), (1, true)]);
    assert!(found.windows(2).all(|pair| pair[0].at != pair[1].at));
}

#[test]
fn modules_within_a_chosen_module_belong_to_it_and_unused_ones_are_not_listed() {
    let trace = trace_from_text(STEP).unwrap();
    let paths: Vec<String> = modules(&trace).into_iter().map(|(_, path)| path).collect();
    assert_eq!(paths, ["a", "a.inner", "b"]);
    let members = Members::matching(&trace, &["a".parse().unwrap(), "a.*".parse().unwrap()]);
    assert_eq!(members.modules.len(), 1);
}

#[test]
fn every_event_says_which_recorded_event_it_comes_from() {
    let trace = trace_from_text(STEP).unwrap();
    let changed = recomputed(STEP, "a", Extent::UntilSaved);
    assert_eq!(changed.source.len(), changed.trace.events.len());
    assert!(changed.source.is_sorted());
    for event in trace.events.ids() {
        let place = changed.event_of(event);
        assert_eq!(changed.source[place.0 as usize], event);
        assert_eq!(changed.trace.events.kind[place.0 as usize], trace.events.kind[event.0 as usize]);
    }
    assert_eq!(changed.event_of(EventId::NONE), EventId::default());
}
