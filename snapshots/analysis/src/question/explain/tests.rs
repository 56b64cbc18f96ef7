//! Tests of explanations: sums, counterfactual peaks, and when advice is given.

use super::*;
use crate::tests::fixture::watch;
use crate::{GroupKey, LiveIndex, Matches, Series, Siblings};
use highwater_notation::trace_from_text;
use highwater_snapshots::Phase;
use highwater_snapshots::ids::EventId;
use highwater_snapshots::trace::TraceParts;

pub(super) fn explain(text: &str, keys: &[GroupKey], filter: &str) -> (Trace, Explanation) {
    let trace = trace_from_text(text).expect("the text is a trace");
    let explanation = explain_device(&trace, trace.main_device(), keys, filter);
    (trace, explanation)
}

pub(super) fn explain_device(trace: &Trace, device: DeviceId, keys: &[GroupKey], filter: &str) -> Explanation {
    let filter: Filter = filter.parse().expect("the filter is one");
    let query = Query { keys, top: 3, filter: &filter, siblings: Siblings::Merged };
    Explanation::of(&Source::in_memory(trace), device, Metric::Requested, &query, watch()).unwrap()
}

/// A step whose peak is in the optimizer; without its temporaries it would be in backward.
const STEP: &str = "
    alloc w1 1000 parameter @blocks.0
    alloc w2 1000 parameter @blocks.1
    step 0
    phase forward
    alloc x 10 input
    alloc a1 600 activation #mlp @blocks.0
    alloc a2 700 activation #mlp @blocks.1
    phase backward
    alloc g2 1000 gradient @blocks.1
    free a2
    alloc g1 1000 gradient @blocks.0
    free a1
    phase optimizer
    alloc s1 1000 optimizer_state @blocks.0
    alloc s2 1000 optimizer_state @blocks.1
    alloc t1 1000 temporary #adam.sqrt @blocks.0
    alloc t2 1000 temporary #adam.sqrt @blocks.1
    free t1
    free t2
    phase zero_grad
    free g1
    free g2
";

#[test]
fn groups_and_rest_add_up_to_the_peak_and_each_says_what_would_be_left() {
    let (_, explanation) = explain(STEP, &[GroupKey::Category], "");
    assert_eq!(explanation.peak.bytes, 8010);
    assert_eq!(explanation.peak.phase, Phase::Optimizer);
    let told: Vec<(&str, u64, u64, Phase)> = explanation
        .groups
        .iter()
        .map(|group| (group.key[0].as_str(), group.bytes_at_peak, group.without.bytes, group.without.phase))
        .collect();
    assert_eq!(
        told,
        [
            ("parameter", 2000, 6010, Phase::Optimizer),
            ("gradient", 2000, 6010, Phase::Optimizer),
            ("optimizer_state", 2000, 6010, Phase::Optimizer),
        ]
    );
    let listed: u64 = explanation.groups.iter().map(|group| group.bytes_at_peak).sum();
    assert_eq!((listed + explanation.rest_bytes, explanation.rest_groups), (8010, 2));
}

#[test]
fn what_a_filter_picks_is_also_taken_away_as_a_whole() {
    let (_, explanation) = explain(STEP, &[GroupKey::Category], "category=temporary,gradient,optimizer_state");
    let filtered = explanation.filtered.expect("there is a filter");
    assert_eq!((filtered.bytes_at_peak, filtered.blocks_at_peak), (6000, 6));
    // Then the activations are the peak: 2000 of weights, 10 of input, 1300.
    assert_eq!((filtered.without.bytes, filtered.without.phase), (3310, Phase::Forward));
    assert_eq!(filtered.saved_bytes(&explanation.peak), 4700);
    assert_eq!(explanation.groups.iter().map(|group| group.bytes_at_peak).sum::<u64>(), 6000);
}

#[test]
fn removals_follow_one_another_each_from_what_the_ones_before_have_left() {
    let (_, explanation) = explain(STEP, &[GroupKey::Category], "");
    let told: Vec<(String, u64, u64)> =
        explanation.removals.iter().map(|one| (one.cause.name(), one.bytes_at_peak, one.left.bytes)).collect();
    assert_eq!(told[0], ("gradient from backward".to_owned(), 2000, 6010));
    assert_eq!(told[1].2, 4010);
    let left: Vec<u64> = told.iter().map(|(.., left)| *left).collect();
    assert!(left.is_sorted_by(|a, b| a > b), "{left:?}");
    assert!(told.iter().all(|(name, ..)| !name.starts_with("parameter")), "a program cannot do without");
}

#[test]
fn advice_is_given_where_the_recording_supports_it() {
    let (_, explanation) = explain(STEP, &[GroupKey::Category], "");
    let remedies: Vec<Remedy> = explanation.advice.iter().map(|one| one.remedy).collect();
    for due in [Remedy::FusedOptimizer, Remedy::StepInBackward, Remedy::SmallerState] {
        assert!(remedies.contains(&due), "{due:?} is not in {remedies:?}");
    }
    // At the peak no activation is live, nothing waits or is outside, and the origin of the baseline is known.
    assert_eq!(remedies.len(), 3, "{:?}", explanation.advice);
    let fused = explanation.advice.iter().find(|one| one.remedy == Remedy::FusedOptimizer).expect("it is there");
    assert_eq!((fused.bytes, fused.without.map(|without| without.bytes)), (2000, Some(6010)));
    assert!(fused.text.contains("adam.sqrt") && fused.text.contains("25%"), "{}", fused.text);
}

#[test]
fn activations_of_numbered_modules_can_be_checkpointed() {
    let text = "
        alloc w 100 parameter
        step 0
        phase forward
        alloc a0 600 activation #mlp @net.blocks.0.mlp
        alloc a1 700 activation #mlp @net.blocks.1.mlp
        alloc h 50 activation #head @head
        phase backward
        free h
        free a1
        free a0
    ";
    let (_, explanation) = explain(text, &[GroupKey::Scope], "");
    let [advice] = &explanation.advice[..] else { panic!("one piece: {:?}", explanation.advice) };
    assert_eq!(advice.remedy, Remedy::Checkpoint);
    assert_eq!((advice.bytes, advice.without), (1300, None), "recomputation brings some of them back");
    assert!(advice.text.contains("(at most 700 B each)"), "{}", advice.text);
    assert_eq!(advice.condition.as_deref(), Some("category=activation scope~net.blocks."));
    assert!(advice.text.contains("2 modules net.blocks.*") && advice.text.contains("67%"), "{}", advice.text);
}

#[test]
fn the_condition_of_advice_picks_the_blocks_that_it_is_about_and_no_others() {
    let beside = "alloc n 20 activation @blocks.norm\nphase backward";
    for (text, pieces) in [(STEP.to_owned(), 3), (STEP.replace("phase backward", beside), 3)] {
        let (trace, explanation) = explain(&text, &[GroupKey::Category], "");
        let live = LiveIndex::build(&trace, trace.main_device());
        let at_peak = live.before_position(&trace, Metric::Requested, explanation.peak.position());
        let mut count = 0;
        for advice in explanation.advice {
            let Some(condition) = advice.condition else { continue };
            let matches = Matches::of(&trace, &condition.parse().expect("it is a filter"));
            let matched = at_peak.iter().filter(|id| matches.contains(**id));
            let bytes: u64 = matched.map(|id| bytes_of(&trace, Metric::Requested, *id)).sum();
            assert_eq!(bytes, advice.bytes, "{condition}");
            count += 1;
        }
        assert_eq!(count, pieces);
    }
}

#[test]
fn the_condition_of_numbered_modules_leaves_out_those_beside_them_or_is_not_given() {
    let text = |beside: &str| {
        format!(
            "
            phase forward
            alloc a0 600 activation @net.blocks.0.mlp
            alloc a1 700 activation @net.blocks.1.mlp
            alloc n 5 activation @{beside}
            "
        )
    };
    let condition = |beside: &str| {
        let (_, explanation) = explain(&text(beside), &[GroupKey::Scope], "");
        let advice = explanation.advice.into_iter().find(|one| one.remedy == Remedy::Checkpoint);
        advice.expect("activations of numbered modules are most of the peak").condition
    };
    assert_eq!(condition("net.head").as_deref(), Some("category=activation scope~net.blocks."));
    let by_digit = condition("net.blocks.norm").expect("digits tell them apart");
    assert!(by_digit.starts_with("category=activation scope~net.blocks.0,net.blocks.1,"), "{by_digit}");
    assert_eq!(condition("other.net.blocks.0"), None, "it would be found too");
}

#[test]
fn where_all_is_parameters_there_is_no_advice() {
    let (_, explanation) = explain("alloc w 1000 parameter\nalloc v 10 parameter", &[GroupKey::Category], "");
    assert_eq!(explanation.advice, []);
    assert_eq!(explanation.removals, []);
    assert_eq!(explanation.groups[0].without.bytes, 0);
}

#[test]
fn layers_add_up_from_what_was_asked_for_to_the_device() {
    let text = "
        segment_alloc 0x200000 2097152
        alloc a 1000/1024
        alloc b 500/512
        device_used 9000000
        free_requested b
        alloc c 700/1024
    ";
    let (trace, explanation) = explain(text, &[GroupKey::Category], "");
    let layers = explanation.layers.expect("the recording is sound");
    let series = Series::build(&trace, explanation.peak.device);
    let totals = series.before_position(&trace, explanation.peak.position());
    assert_eq!(layers.requested + layers.rounding + layers.waiting, totals.active);
    assert_eq!(layers.waiting, 512);
    assert_eq!(layers.requested + layers.rounding + layers.waiting + layers.free_in_segments, totals.reserved);
    assert_eq!(layers.outside, Some(9_000_000 - 2_097_152));
}

/// Two steps that keep their logits through backward, and a block that is never used.
const USED: &str = "
    alloc w 1000 parameter @fc
    used w
    alloc spare 70 buffer
    step 0
    phase forward
    alloc a 400 activation @fc
    used w
    used a
    alloc logits 600 temporary @head
    used a
    used logits
    alloc loss 10 temporary
    used logits
    used loss
    phase backward
    alloc g 900 gradient @fc
    used a
    used g
    free a
    free loss
    free logits
    phase optimizer
    used g
    used w
    free g
    step 1
    used w
    alloc kept 30 temporary
    used kept
    used w
";

#[test]
fn what_is_held_but_not_used_again_is_reported_with_the_peak_without_it() {
    let (trace, explanation) = explain(USED, &[GroupKey::Category], "");
    assert_eq!((explanation.peak.bytes, explanation.peak.phase), (2980, Phase::Backward));
    let idle = explanation.idle.expect("the recording says when blocks are used");
    let told: Vec<(&[String], u64)> = idle.breakdown.groups.iter().map(|group| (&group.key[..], group.bytes)).collect();
    let key = |category: &str, scope: &str| [category.to_owned(), scope.to_owned()];
    // Whether the weights are used after the last step is unknown. The spare block is unused through all of step 0.
    let expected = [(&key("temporary", "head")[..], 600), (&key("buffer", "(none)")[..], 70)];
    assert_eq!(told[..2], expected, "{told:?}");
    assert_eq!((idle.bytes(), idle.blocks.len()), (680, 3));
    for breakdown in [&idle.breakdown, &idle.by_category] {
        assert_eq!(breakdown.groups.iter().map(|group| group.bytes).sum::<u64>(), 680);
    }
    // In backward, 1000, 400 and 900 remain.
    assert_eq!((idle.without.bytes, idle.without.phase), (2300, Phase::Backward));
    let advice = explanation.advice.iter().find(|one| one.remedy == Remedy::FreeAfterLastUse).expect("it is much");
    assert!(
        advice.text.starts_with("680 B (23%) are live but not used again: temporary 610 B, buffer 70 B. "),
        "{}",
        advice.text
    );
    assert!(advice.text.contains("without them the peak is 2.25 KiB, 680 B less"), "{}", advice.text);
    assert!(trace.trust.is_complete());
}

#[test]
fn blocks_that_are_kept_count_only_when_a_whole_step_went_by_without_them() {
    let idle = |text: &str| explain(text, &[GroupKey::Category], "").1.idle.expect("it says").bytes();
    let kept = "alloc a 500\nused a\nstep 0\nalloc b 100\nused b\n";
    assert_eq!(idle(kept), 0, "step 0 may go on");
    assert_eq!(idle(&format!("{kept}step 1\nalloc c 1\nused c")), 500, "of step 1 nobody knows, but step 0 is whole");
    assert_eq!(idle(&format!("{kept}step 1\nalloc c 1\nused a")), 0);
    let baseline = "baseline a 500\nbaseline w 30 workspace\nstep 0\nalloc b 100\nused b\nstep 1\nalloc c 1\nused c\n";
    assert_eq!(idle(baseline), 500, "kernels do not name their workspace");
}

#[test]
fn recordings_without_uses_on_the_device_say_nothing_of_them() {
    let without = |text: &str| explain(text, &[GroupKey::Category], "").1.idle;
    assert_eq!(without("alloc a 500\nalloc b 100\nfree a"), None);
    assert_eq!(without("alloc a 500\nalloc b 100\nfree a\nalloc x 5 device=1\nused x device=1"), None);
}

#[test]
fn activations_without_modules_are_named_by_line_with_the_peak_without_each() {
    let text = "
        alloc w 100 parameter < build < main
        phase forward
        alloc a 600 activation < attention < main
        alloc b 250 activation < mlp < main
        alloc c 50 activation
        phase backward
        free c
        free b
        free a
    ";
    let (_, explanation) = explain(text, &[GroupKey::Category], "");
    let [advice] = &explanation.advice[..] else { panic!("one piece: {:?}", explanation.advice) };
    assert_eq!((advice.remedy, advice.bytes, advice.without), (Remedy::FewerActivations, 900, None));
    let told = "900 B (90%) are activations kept for backward: 600 B at attention (without them the peak is 400 B); \
                250 B at mlp (without them the peak is 750 B). ";
    assert!(advice.text.starts_with(told), "{}", advice.text);
}

/// A step that is cut off by a failed request in its optimizer, when `state` of two states are allocated.
fn failed_in_optimizer(state: &str) -> String {
    let (before, _) = STEP.split_once("    alloc s1").expect("the step has an optimizer");
    format!("{before}{state}\noom 4096 free=0\nfree g1\nfree g2\n")
}

#[test]
fn figures_of_a_recording_that_ends_in_an_oom_reach_up_to_the_failed_request() {
    let text = failed_in_optimizer("alloc t1 1000 temporary #adam.sqrt\nalloc t2 1000 temporary #adam.sqrt");
    let (_, explanation) = explain(&text, &[GroupKey::Category], "");
    let fused = explanation.advice.iter().find(|one| one.remedy == Remedy::FusedOptimizer).expect("it is there");
    let left = "without them the peak up to the failed request is 4.50 KiB, 1.37 KiB less";
    assert!(fused.text.contains(left), "{}", fused.text);
    assert_eq!(explanation.reach, Reach::UpToFailure);
    let (_, whole) = explain(STEP, &[GroupKey::Category], "");
    assert!(whole.advice.iter().all(|one| !one.text.contains("up to")), "{:?}", whole.advice);
}

#[test]
fn figures_of_a_moment_after_the_failed_request_are_not_limited_to_what_precedes_it() {
    let text = failed_in_optimizer("alloc t1 1000 temporary #adam.sqrt\nalloc t2 1000 temporary #adam.sqrt");
    let advice = |explanation: &Explanation| -> Vec<String> {
        explanation.advice.iter().map(|one| one.text.clone()).filter(|text| text.contains("without them")).collect()
    };
    // The program goes on with less than it had requested, and peaks.
    let later = format!("{text}alloc big 3500 temporary #adam.sqrt\n");
    let (_, explanation) = explain(&later, &[GroupKey::Category], "");
    let before = trace_from_text(&text).unwrap().events.len();
    assert_eq!((explanation.peak.event.and_then(EventId::index), explanation.reach), (Some(before), Reach::Recorded));
    let texts = advice(&explanation);
    assert!(!texts.is_empty() && texts.iter().all(|text| text.contains("the recorded peak is")), "{texts:?}");
    // The peak precedes the failed request, but without the temporaries there the next one follows it.
    let (_, explanation) = explain(&format!("{text}alloc late 1900 input\n"), &[GroupKey::Category], "");
    assert_eq!(explanation.reach, Reach::Recorded, "{:?}", explanation.groups);
    let (_, explanation) = explain(&format!("{text}free t1\nalloc scalar 8 temporary\n"), &[GroupKey::Category], "");
    assert_eq!(explanation.reach, Reach::UpToFailure, "{:?}", explanation.groups);
}

#[test]
fn optimizer_state_is_compared_with_the_parameters_only_once_all_of_it_is_made() {
    let text_of = |text: &str| {
        let (_, explanation) = explain(text, &[GroupKey::Category], "");
        explanation.advice.into_iter().find(|one| one.remedy == Remedy::SmallerState).expect("it is much").text
    };
    let partial = ["when memory ran out", "at the peak"]
        .map(|when| format!("which was still being created {when}: the complete state is larger. An 8-bit optimizer"));
    let half = "alloc s1 1000 optimizer_state @blocks.0";
    assert!(text_of(&failed_in_optimizer(half)).contains(&partial[0]), "{}", text_of(&failed_in_optimizer(half)));
    // A temporary may fail after all state is made.
    let second = |bytes| format!("{half}\nalloc s2 {bytes} optimizer_state\nalloc count 4 optimizer_state");
    let failed = [1000, 900].map(|bytes| text_of(&failed_in_optimizer(&second(bytes))));
    assert!(failed[0].contains("1.0 times the parameters.") && failed[1].contains(&partial[0]), "{failed:?}");
    // The peak of a whole recording may precede the last state.
    assert!(text_of(STEP).contains("state, 1.0 times the parameters."), "{}", text_of(STEP));
    let second = "    alloc s2 1000 optimizer_state @blocks.1\n";
    let later = STEP.replace(second, "").replace("    phase zero_grad", &format!("{second}    phase zero_grad"));
    assert!(text_of(&later).contains(&partial[1]), "{}", text_of(&later));
    // State from an earlier step is complete.
    let next = "step 1\nphase forward\nalloc a3 9000 activation\noom 4096 free=0\n";
    assert!(text_of(&format!("{STEP}{next}")).contains("1.0 times the parameters."));
}

#[test]
fn checkpointing_repeats_a_share_of_all_operations_only_where_all_are_recorded() {
    let text = "
        step 0
        phase forward
        alloc a0 600 activation #mlp @net.blocks.0.mlp
        alloc a1 700 activation #mlp @net.blocks.1.mlp
    ";
    let text_of = |text: &str| explain(text, &[GroupKey::Scope], "").1.advice.remove(0).text;
    assert!(text_of(text).contains("which repeats"), "{}", text_of(text));
    let failed = text_of(&format!("{text}oom 4096 free=0\n"));
    assert!(failed.ends_with("(at most 700 B each)."), "{failed}");
}

#[test]
fn activations_that_no_backward_uses_are_reported_to_be_avoidable() {
    let forward = "phase forward\nalloc a 600 activation < attention < main\nalloc b 250 activation < mlp < main\n";
    let told = |text: &str| {
        let (_, explanation) = explain(text, &[GroupKey::Category], "");
        explanation.advice[0].text.contains("`torch.no_grad()`")
    };
    assert!(told(&format!("{forward}free a\nfree b\n")));
    assert!(!told(forward), "backward may come after the recording");
    assert!(!told(&format!("{forward}oom 4096 free=0\nfree a\nfree b\n")), "an exception freed them");
    assert!(!told(&format!("{forward}phase backward\nalloc g 5 gradient\nfree a\nfree b\n")));
}

#[test]
fn what_an_exception_frees_is_not_reported_as_unused() {
    let step = "alloc w 1000 parameter\nused w\nstep 0\nphase forward\nalloc a 400 activation\nused a\nused w\n\
                alloc b 600 activation\nused b\n";
    let idle = |text: &str| explain(text, &[GroupKey::Category], "").1.idle.expect("it says").bytes();
    assert_eq!(idle(&format!("{step}free a\nfree b\n")), 400, "a was freed after b was made, and is not used");
    assert_eq!(idle(&format!("{step}oom 4096 free=0\nfree a\nfree b\n")), 0, "backward would have used it");
}

#[test]
fn a_leak_comes_first_with_what_leaks_at_the_peak_and_what_earlier_steps_left_of_it() {
    let step = |step: u32| {
        format!(
            "step {step}\nphase forward\nalloc a{step} 500 activation < model.py:3 forward < main\n\
             alloc log{step} 100 < train.py:9 log < main\nfree a{step}\n"
        )
    };
    let text: String = (0..5).map(step).collect();
    let (_, explanation) = explain(&text, &[GroupKey::Category], "");
    // In step 4, the logs of four earlier steps and its own are live.
    let [leak, ..] = &explanation.advice[..] else { panic!("a leak: {:?}", explanation.advice) };
    assert_eq!((leak.remedy, leak.bytes, explanation.peak.bytes), (Remedy::FixLeak, 500, 1000));
    let told = "500 B (50%) at the peak leak: train.py:9 log leaks 100 B a step. 400 B of these were kept from steps \
                0 to 3; without them the peak is 600 B, 400 B less. `highwater growth` shows where.";
    assert_eq!(leak.text, told);
    let frees: String = (0..5).map(|number| step(number) + &format!("free log{number}\n")).collect();
    let (_, explanation) = explain(&frees, &[GroupKey::Category], "");
    assert!(explanation.advice.iter().all(|one| one.remedy != Remedy::FixLeak));
}

#[test]
fn buffers_are_named_by_line_and_as_a_kv_cache_only_where_code_says_so() {
    let line_of_cache = "_allocate_kv_cache";
    let text_of = |text: &str| {
        let trace = trace_from_text(text).expect("the text is a trace").edited(|TraceParts { tables, .. }| {
            let cached = tables.lines.iter().filter(|line| tables.strings[line.function.0 as usize] == line_of_cache);
            let files: Vec<usize> = cached.map(|line| line.file.0 as usize).collect();
            files.into_iter().for_each(|file| {
                tables.strings[file] = "/env/lib/python3.12/site-packages/vllm/worker/cache_engine.py".to_owned();
            });
        });
        let explanation = explain_device(&trace, DeviceId(0), &[GroupKey::Category], "");
        let found = explanation.advice.into_iter().find(|one| one.remedy == Remedy::SmallerBuffers);
        found.map(|one| one.text).unwrap_or_default()
    };
    let block = |name: &str, size: u64, stack: &str| format!("alloc {name} {size} buffer < {stack}\n");
    let cache = format!("cache_engine.py:7 {line_of_cache} < serve.py:4 main");
    let cached = block("a", 500, &cache) + &block("b", 400, &cache) + "alloc w 100 parameter\n";
    let kv = "900 B (90%) are buffers allocated at serve.py:4 main (2 blocks). A KV cache needs less with fewer or \
              smaller blocks, or with an 8-bit dtype.";
    assert_eq!(text_of(&cached), kv);
    let plain = block("a", 600, "m.py:7 build") + &block("b", 300, "n.py:7 build") + "alloc w 100 parameter\n";
    let two = "900 B (90%) are buffers (2 blocks), of which 600 B at m.py:7 build (1 block), 300 B at n.py:7 build (1 \
               block).";
    assert_eq!(text_of(&plain), two);
    assert_eq!(text_of("alloc a 100 buffer\nalloc w 900 parameter"), "", "too little");
}

#[test]
fn a_failed_request_of_another_device_does_not_end_the_figures_of_this_one() {
    let text = "alloc w 100 parameter\nphase optimizer\nalloc t1 400 temporary < adam.py:3 step\n\
                alloc t2 400 temporary < adam.py:3 step\nfree t1\nfree t2\noom 4096 free=0 device=1\n";
    let trace = trace_from_text(text).expect("the text is a trace");
    let explanation = explain_device(&trace, DeviceId(0), &[GroupKey::Category], "");
    assert!(!explanation.advice.is_empty());
    assert!(explanation.advice.iter().all(|one| !one.text.contains("failed request")), "{:?}", explanation.advice);
}

#[test]
fn the_peak_without_equal_modules_is_that_without_all_of_them() {
    let text = "
        alloc a0 100 activation @h.0
        alloc a1 100 activation @h.1
        alloc b 30 activation @head
        free a0
        free a1
        alloc c 90 gradient @h.1
    ";
    let (_, explanation) = explain(text, &[GroupKey::Scope], "");
    let merged = &explanation.groups[0];
    assert_eq!((merged.key[0].as_str(), merged.bytes_at_peak, merged.blocks_at_peak), ("h.{0-1}", 200, 2));
    assert_eq!(merged.members, [["h.0"], ["h.1"]]);
    // Of the blocks of both modules, none are left at any time.
    assert_eq!((merged.without.bytes, merged.saved_bytes(&explanation.peak)), (30, 200));
    let (_, explanation) = explain(&text.replace("gradient @h.1", "gradient @tail"), &[GroupKey::Scope], "");
    assert_eq!(explanation.groups[0].without.bytes, 120);
}
