//! Tests of budgets on small recordings: measured values and named causes.

use super::*;
use crate::tests::fixture::{Fixture, watch};
use highwater_snapshots::DeviceId;

struct Run(Fixture);

impl Run {
    fn of(text: &str) -> Self {
        Self(Fixture::of(text))
    }

    fn check_all(&self, baseline: Option<&Self>, metric: Metric, budgets: &[Budget]) -> Vec<Measurement<Outcome>> {
        let checked = |source| Checked::of(source, DeviceId(0), metric, budgets, watch()).unwrap();
        let baseline = baseline.map(|run| checked(&run.0.source));
        check(&checked(&self.0.source), baseline.as_ref(), budgets).unwrap()
    }

    fn check(&self, baseline: Option<&Self>, budget: Budget) -> Outcome {
        self.check_all(baseline, Metric::Requested, &[budget]).remove(0).unwrap()
    }

    fn blame(&self, baseline: Option<&Self>, budget: Budget) -> String {
        self.check(baseline, budget).culprit.expect("the budget is broken").text
    }
}

/// A training step of a network of `layers` layers, with `width` elements in the middle of layer 2, and 100 in the
/// others.
fn net(layers: usize, width: u64, optimizer: &str) -> String {
    let mut text = String::new();
    let wide = |layer: usize| if layer == 2 { width } else { 100 };
    for layer in 0..layers {
        text += &format!("baseline w{layer} {} parameter @blocks.{layer}.mlp\n", 10 * wide(layer));
    }
    text += "step 0\nphase forward\n";
    for layer in 0..layers {
        text += &format!("alloc a{layer} {} activation #gelu @blocks.{layer}.mlp < forward\n", 30 * wide(layer));
        text += &format!("alloc b{layer} 500 activation #norm @blocks.{layer}.norm < forward\n");
    }
    text += "phase backward\n";
    for layer in (0..layers).rev() {
        text += &format!(
            "alloc g{layer} {} gradient #linear @blocks.{layer}.mlp\nfree a{layer}\nfree b{layer}\n",
            10 * wide(layer)
        );
    }
    text + "phase optimizer\n" + optimizer
}

#[test]
fn the_one_layer_that_was_widened_is_blamed_for_the_growth() {
    let (before, now) = (Run::of(&net(6, 100, "")), Run::of(&net(6, 400, "")));
    let text = now.blame(Some(&before), Budget::Growth(Allowance::Share(1_000_000)));
    assert_eq!(
        text,
        "activations of scope `blocks.2.mlp` grew 8.79 KiB at the peak (from 2.93 KiB to 11.72 KiB), by op `gelu`; that \
         scope grew 11.72 KiB in all: activations 8.79 KiB, parameters 2.93 KiB"
    );
    let outcome = now.check(Some(&before), Budget::Growth(Allowance::Bytes(1000)));
    assert_eq!(outcome.limit_bytes, outcome.baseline_bytes.unwrap() + 1000);
    assert!(outcome.is_broken() && outcome.headroom() < 0);
    assert!(!before.check(Some(&now), Budget::Growth(Allowance::Share(0))).is_broken(), "shrinking is allowed");
}

#[test]
fn a_peak_of_a_category_that_steps_repeat_is_that_of_the_second() {
    let step = |number: u32| {
        let marks = format!("step {number}\nphase forward\n");
        marks + "alloc a{n} 500 activation\nfree a{n}\n".replace("{n}", &number.to_string()).as_str()
    };
    let event = |text: String| Run::of(&text).check(None, Budget::Category(Category::Activation, 1)).moment.event;
    assert_eq!(event(step(0) + &step(1) + &step(2)).map(|event| event.0), Some(7));
    assert_eq!(event(step(0) + &step(1).replace("forward", "backward")).map(|event| event.0), Some(2));
}

#[test]
fn layers_that_all_grew_are_blamed_together() {
    let wider = |text: &str| text.replace(" 3000 activation", " 9000 activation");
    let before = net(6, 100, "");
    let text = Run::of(&wider(&before)).blame(Some(&Run::of(&before)), Budget::Growth(Allowance::Bytes(0)));
    assert!(text.starts_with("activations of scopes `blocks.*.mlp` grew 35.16 KiB at the peak"), "{text}");
}

#[test]
fn a_peak_that_moved_says_so_and_blames_what_is_new_there() {
    let before = Run::of(&net(6, 100, ""));
    let now = Run::of(&net(6, 100, "alloc t 99000 temporary #foreach < step\nfree t\n"));
    let text = now.blame(Some(&before), Budget::Peak(50_000));
    assert!(
        text.starts_with("temporaries grew 96.68 KiB at the peak (from 0 B to 96.68 KiB), by op `foreach`"),
        "{text}"
    );
    assert!(text.ends_with("the peak has moved from backward to optimizer"), "{text}");
}

#[test]
fn without_a_baseline_what_holds_most_is_blamed_and_who_stands_out() {
    let run = Run::of(&net(6, 400, ""));
    let text = run.blame(None, Budget::Peak(1));
    assert!(text.starts_with("activations of scopes `blocks.*.mlp` take 26.37 KiB of the "), "{text}");
    assert!(text.ends_with("; `blocks.2.mlp` alone takes 11.72 KiB"), "{text}");
    let same = Run::of(&net(6, 100, "")).blame(None, Budget::Peak(1));
    assert!(!same.contains("alone"), "{same}");
}

#[test]
fn categories_and_phases_have_peaks_of_their_own() {
    let run = Run::of(&net(4, 100, "alloc t 1 temporary\nfree t\n"));
    let gradient = run.check(None, Budget::Category(Category::Gradient, 4_000));
    assert_eq!((gradient.actual_bytes, gradient.is_broken(), gradient.culprit.is_some()), (4_000, false, false));
    let activation = run.check(None, Budget::Category(Category::Activation, 13_999));
    assert_eq!((activation.actual_bytes, activation.is_broken()), (14_000, true));
    assert!(activation.culprit.unwrap().text.contains("at the maximum of activation"));
    let optimizer = run.check(None, Budget::Phase(Phase::Optimizer, 1));
    assert_eq!((optimizer.actual_bytes, optimizer.moment.phase), (8_001, Phase::Optimizer));
    assert!(optimizer.culprit.unwrap().text.contains("at the peak of optimizer"));
    // 4 × 1000 of weights, and all activations but none of backward.
    assert_eq!(run.check(None, Budget::Phase(Phase::Forward, 0)).actual_bytes, 18_000);
    assert_eq!(run.check(None, Budget::Category(Category::Workspace, 0)).actual_bytes, 0);
}

#[test]
fn the_peak_of_a_phase_is_that_of_a_later_step_where_it_repeats_the_first() {
    let step = |step: u32| format!("step {step}\nphase optimizer\nalloc t{step} 70 temporary\nfree t{step}\n");
    let moment_of = |text: &str| {
        let run = Run::of(text);
        let of_phase = run.check(None, Budget::Phase(Phase::Optimizer, 0)).moment;
        (of_phase, run.0.peak(Metric::Requested))
    };
    let (of_phase, peak) = moment_of(&(step(0) + &step(1) + &step(2)));
    assert_eq!((of_phase, of_phase.step), (peak, Some(1)));
    let (of_phase, peak) = moment_of(&(step(0).replace("70", "71") + &step(1)));
    assert_eq!((of_phase, of_phase.step), (peak, Some(0)));
}

#[test]
fn a_category_of_one_place_is_blamed_without_a_share() {
    let run = Run::of("alloc a 600 < m.py:3 main\nalloc p 100 parameter < m.py:2 main\nfree a\nfree p\n");
    let text = run.blame(None, Budget::Category(Category::Unknown, 1));
    assert_eq!(text, "blocks of unknown category allocated at `m.py:3 main` take all 600 B at the maximum of unknown");
}

#[test]
fn what_cannot_be_measured_is_refused() {
    let run = Run::of(&net(2, 100, ""));
    let why = |metric, budget| run.check_all(None, metric, &[budget]).remove(0).unwrap_err();
    assert!(why(Metric::Requested, Budget::Phase(Phase::ZeroGrad, 1)).contains("it has forward, backward"));
    assert!(why(Metric::Requested, Budget::Growth(Allowance::Bytes(1))).starts_with("max-growth: no baseline"));
    assert!(
        why(Metric::Reserved, Budget::Category(Category::Gradient, 1)).contains("max gradient: reserved is not a sum")
    );
    assert!(why(Metric::DeviceUsed, Budget::StepGrowth(1)).contains("not a sum over blocks"));
    let nameless = Run::of("alloc a 5 < main");
    let refused = nameless.check_all(None, Metric::Requested, &[Budget::Category(Category::Gradient, 1)]);
    assert!(refused[0].as_ref().unwrap_err().contains("has no categories"));
    let refused = nameless.check_all(None, Metric::Requested, &[Budget::StepGrowth(1)]);
    assert!(refused[0].as_ref().unwrap_err().contains("no steps"));
    assert!(why(Metric::Requested, Budget::StepGrowth(1)).contains("one whole step"), "the first is none to tell by");
}

#[test]
fn recordings_without_modules_blame_lines_of_code_and_segments_their_free_bytes() {
    let text = "segment_alloc 0x0 4096\nalloc a 512 activation < forward < main\n";
    let (before, now) =
        (Run::of(text), Run::of(&format!("segment_alloc 0x10000 2048\n{}", text.replace(" 512 ", " 1024 "))));
    let text = now.blame(Some(&before), Budget::Peak(600));
    assert!(text.starts_with("activations allocated at `forward` grew 512 B at the peak"), "{text}");
    let text = now.blame(Some(&before), Budget::Reserved(5000));
    assert!(text.starts_with("free bytes in segments grew 2 KiB at the peak of reserved memory"), "{text}");
}

#[test]
fn memory_that_survives_every_step_is_measured_by_step() {
    let mut text = String::new();
    for step in 0..4 {
        text += &format!("step {step}\nphase forward\nalloc c{step} 100 activation #append @cache\n");
    }
    let run = Run::of(&text);
    let kept = run.check(None, Budget::StepGrowth(99));
    assert_eq!((kept.actual_bytes, kept.is_broken()), (100, true));
    assert_eq!(
        kept.culprit.unwrap().text,
        "activations of scope `cache` were kept by every step, 100 B or more each: 300 B in 3 blocks over 3 steps, by op `append`"
    );
    assert!(!run.check(None, Budget::StepGrowth(100)).is_broken());
    // A line is named as `growth` names it.
    let run = Run::of(&text.replace("activation #append @cache", "unknown < train.py:10 remember < main"));
    let text = run.blame(None, Budget::StepGrowth(99));
    assert!(text.starts_with("1 line keeps memory of every step: `train.py:10 remember` 100 B a step"), "{text}");
}

#[test]
fn growth_of_reserved_memory_is_measured_by_step_and_blames_streams_and_lines() {
    let step = |step: u64| {
        let line = "< loader.py:9 prefetch < main";
        format!(
            "step {step}\nphase forward\nsegment_alloc {} 4096 stream={step} {line}\nalloc a{step} 512 {line}\n\
             free a{step}\n",
            step << 20
        )
    };
    let run = Run::of(&(0..4).map(step).collect::<String>());
    let grown = run.check(None, Budget::ReservedGrowth(4095));
    assert_eq!((grown.actual_bytes, grown.is_broken()), (4096, true));
    let text = grown.culprit.unwrap().text;
    assert!(text.contains("cached for 3 streams") && text.contains("1 line obtains memory of every step"), "{text}");
    assert!(!run.check(None, Budget::ReservedGrowth(4096)).is_broken());
}

#[test]
fn a_phase_that_ran_without_an_event_is_measured_with_what_is_live_then() {
    let text = "
        alloc w 100 parameter
        begin \"ProfilerStep#0\"
        begin \"forward\"
        alloc a 50 activation
        end \"forward\"
        begin \"Optimizer.step#AdamW.step\"
        end \"Optimizer.step#AdamW.step\"
        free a
        end \"ProfilerStep#0\"
    ";
    let run = Run::of(text);
    let found = run.check(None, Budget::Phase(Phase::Optimizer, 150));
    assert_eq!((found.actual_bytes, found.is_broken(), found.moment.phase), (150, false, Phase::Optimizer));
    assert_eq!(found.moment.event, Some(highwater_snapshots::EventId(1)));
    assert!(run.check(None, Budget::Phase(Phase::Optimizer, 149)).is_broken());
}

#[test]
fn every_line_of_a_leak_is_blamed_with_what_it_keeps_of_a_step() {
    let mut text = String::new();
    for step in 0..4 {
        text += &format!(
            "step {step}\nphase forward\nalloc l{step} 100 activation < train.py:10 step < main\n\
             alloc m{step} 30 activation < log.py:5 log < main\nalloc n{step} 20 temporary < log.py:5 log < main\n"
        );
    }
    let run = Run::of(&text);
    let kept = run.check(None, Budget::StepGrowth(99));
    let culprit = kept.culprit.unwrap();
    assert_eq!(
        culprit.text,
        "2 lines keep memory of every step: `train.py:10 step` 100 B a step, `log.py:5 log` 50 B a step; in all 450 B in \
         9 blocks over 3 steps"
    );
    assert_eq!((culprit.bytes, culprit.place.as_str()), (450, "train.py:10 step"));
    assert_eq!(kept.actual_bytes, 150);
}

#[test]
fn layers_that_differ_alike_are_one_row_and_rows_and_rest_add_up() {
    use crate::Siblings;
    use crate::question::diff::{Diff, DiffGroup};
    use crate::question::peak::Query;
    let (before, now) =
        (Run::of(&net(6, 100, "")), Run::of(&net(6, 400, "").replace(" 500 activation", " 600 activation")));
    let moments = [&before, &now].map(|run| run.0.peak(Metric::Requested));
    let keys = culprit_keys(&now.0.trace);
    let query =
        Query { keys: &keys[..2], top: usize::MAX, filter: &crate::Filter::default(), siblings: Siblings::Merged };
    let diff = Diff::of([before.0.asked(), now.0.asked()], moments, &query);
    let changed = |top: usize| {
        let mut diff = diff.clone();
        diff.list_changed(top);
        diff
    };
    let told: Vec<(String, usize, i128)> =
        changed(10).groups.iter().map(|row| (row.key.join(" "), row.members.len(), row.delta())).collect();
    assert_eq!(told[0], ("activation blocks.2.mlp".to_owned(), 0, 9000));
    assert!(told.contains(&("activation blocks.{0-5}.norm".to_owned(), 6, 600)), "{told:?}");
    for top in [0, 1, 10] {
        let listed = changed(top);
        let sum: i128 = listed.groups.iter().map(DiffGroup::delta).sum();
        let [was, is] = listed.rest_bytes.map(i128::from);
        assert_eq!(sum + is - was, diff.delta());
        assert_eq!(listed.groups.len() as u64 + listed.rest_groups, diff.groups.len() as u64);
        assert!(listed.groups.iter().all(|group| group.delta() != 0));
    }
}
