//! Tests of guessing on traces of training as recorded by PyTorch.

use std::fmt::Write as _;

use super::{Rules, guess};
use highwater_notation::trace_from_text;
use highwater_snapshots::ids::{DeviceId, EventId, StringId};
use highwater_snapshots::trace::{Annotation, Trace, TraceParts};
use highwater_snapshots::{Category, Phase};

/// A PyTorch recording from the text notation, with frames written as `function@file`.
pub(super) fn trace_of(text: &str) -> Trace {
    trace_from_text(text).unwrap().edited(|trace| {
        for line in &mut trace.tables.lines {
            let whole = trace.tables.strings[line.function.0 as usize].clone();
            if let Some((function, file)) = whole.split_once('@') {
                trace.tables.strings.extend([function.to_owned(), file.to_owned()]);
                let rows = trace.tables.strings.len();
                (line.function, line.file) = (StringId::from_index(rows - 2), StringId::from_index(rows - 1));
            }
        }
        trace.header.recorder = "PyTorch".to_owned();
    })
}

pub(super) const FORWARD: &str =
    "forward@/site/torch/nn/modules/linear.py < _call_impl@/site/torch/nn/modules/module.py < main@t.py";
const SETUP: &str = "convert@/site/torch/nn/modules/module.py < to@/site/torch/nn/modules/module.py < main@t.py";
const ADAM: &str = "_multi_tensor_adam@/site/torch/optim/adam.py < step@/site/torch/optim/adam.py < main@t.py";
const ADAM_STATE: &str = "_init_group@/site/torch/optim/adam.py < step@/site/torch/optim/adam.py < main@t.py";
const ZERO_GRAD: &str = "zero_grad@/site/torch/optim/optimizer.py < main@t.py";
pub(super) const MAIN: &str = "main@t.py";

/// Parses `lines`, in which `F`, `S`, `A`, `I`, `Z` and `M` after `<` are replaced by the stacks above.
pub(super) fn training(lines: &str) -> Trace {
    let short = [("F", FORWARD), ("S", SETUP), ("A", ADAM), ("I", ADAM_STATE), ("Z", ZERO_GRAD), ("M", MAIN)];
    let full = lines.lines().map(|line| match line.rsplit_once("< ") {
        Some((event, mark)) => match short.iter().find(|(name, _)| *name == mark.trim()) {
            Some((_, stack)) => format!("{event}< {stack}\n"),
            None => format!("{line}\n"),
        },
        None => format!("{line}\n"),
    });
    trace_of(&full.collect::<String>())
}

/// The categories guessed for `lines`, in the order of the allocations.
pub(super) fn categories(lines: &str) -> Vec<&'static str> {
    let trace = guess(training(lines), &Rules::default());
    trace.blocks.category.iter().map(|category| category.name()).collect()
}

/// The guessed annotations, as name and events.
pub(super) fn guessed(trace: &Trace) -> Vec<(&str, u32, u32)> {
    let guessed = trace.annotations.iter().filter(|annotation| annotation.is_guessed);
    guessed.map(|range| (trace.tables.string(range.name), range.first.0, range.end.0)).collect()
}

/// Two steps as recorded by PyTorch without stacks of frees: the free of a block repeats the stack of its allocation.
pub(super) const TWO_STEPS: &str = "\
alloc cpu_copy 64 < S
alloc w 100 < S
free cpu_copy < S
alloc x0 10 < M
alloc h0 50 < F
alloc scratch0 7 < F
free scratch0 < F
alloc loss0 4 < M
alloc dh0 50
alloc dw0 100
free dh0
free h0 < F
alloc m 100 < I
alloc denom0 100 < A
free denom0 < A
free dw0
alloc x1 10 < M
free x0 < M
alloc h1 50 < F
free loss0 < M
alloc loss1 4 < M
alloc dh1 50
alloc dw1 100
free dh1
free h1 < F
alloc denom1 100 < A
free denom1 < A
free dw1
";

#[test]
fn every_block_of_a_training_step_gets_its_category() {
    let trace = guess(training(TWO_STEPS), &Rules::default());
    let allocs = TWO_STEPS.lines().filter_map(|line| line.strip_prefix("alloc ")?.split(' ').next());
    let found: Vec<_> = allocs.zip(trace.blocks.category.iter().map(|category| category.name())).collect();
    let expected = [
        ("cpu_copy", "temporary"),
        ("w", "parameter"),
        ("x0", "input"),
        ("h0", "activation"),
        ("scratch0", "temporary"),
        ("loss0", "activation"),
        ("dh0", "temporary"),
        ("dw0", "gradient"),
        ("m", "optimizer_state"),
        ("denom0", "temporary"),
        ("x1", "input"),
        ("h1", "activation"),
        ("loss1", "activation"),
        ("dh1", "temporary"),
        ("dw1", "gradient"),
        ("denom1", "temporary"),
    ];
    assert_eq!(found, expected);
    assert!(trace.trust.categories_guessed);
}

#[test]
fn phases_and_steps_are_marked_as_guessed_and_cover_what_they_say() {
    let trace = guess(training(TWO_STEPS), &Rules::default());
    // `free x` is two events. The loss belongs to forward; the next step's data to that step.
    let expected = [
        ("step 0", 5, 22),
        ("forward", 5, 10),
        ("backward", 10, 16),
        ("optimizer", 16, 20),
        ("zero_grad", 20, 22),
        ("step 1", 22, 40),
        ("forward", 25, 29),
        ("backward", 29, 35),
        ("optimizer", 35, 38),
        ("zero_grad", 38, 40),
    ];
    assert_eq!(guessed(&trace), expected);
    assert!(trace.annotations.iter().all(|range| range.is_guessed && range.start_ns.is_some()));
}

#[test]
fn the_segments_for_the_first_request_of_a_step_belong_to_it() {
    let starts = |text: &str| {
        let trace = guess(training(text), &Rules::default());
        guessed(&trace).into_iter().find(|(name, ..)| *name == "step 1").map(|(_, first, _)| first)
    };
    let with_segments = TWO_STEPS.replace("alloc x1", "segment_alloc 0 4096\nsegment_alloc 8192 4096\nalloc x1");
    assert_eq!(starts(&with_segments), starts(TWO_STEPS));
    let after = TWO_STEPS.replace("alloc x1", "segment_alloc 0 4096\nsegment_free 0 4096\nalloc x1");
    assert_eq!(
        starts(&after),
        starts(TWO_STEPS).map(|first| first + 2),
        "what no request follows belongs to the step before"
    );
}

#[test]
fn guessing_twice_and_on_a_copy_gives_the_same() {
    let trace = training(TWO_STEPS);
    let (once, other) = (guess(trace.clone(), &Rules::default()), guess(trace, &Rules::default()));
    assert_eq!((&once.blocks.category, &once.annotations), (&other.blocks.category, &other.annotations));
    let other = guess(other, &Rules::default());
    assert_eq!((&once.blocks.category, &once.annotations), (&other.blocks.category, &other.annotations));
    assert_eq!(once.tables.strings, other.tables.strings, "no name is added twice");
}

#[test]
fn stacks_of_frees_distinguish_zero_grad_from_the_optimizer_without_the_lives_of_blocks() {
    let lines = "alloc w 100 < S\nalloc h 5 < F\nalloc g 100\nalloc d 9 < A\nfree d < A\nfree g < Z\nfree h < M\n";
    let trace = guess(training(lines), &Rules::default());
    let phases: Vec<_> = guessed(&trace).into_iter().map(|(name, first, _)| (name, first)).collect();
    let expected = [("step 0", 1), ("forward", 1), ("backward", 2), ("optimizer", 3), ("zero_grad", 6)];
    assert_eq!(phases[..5], expected);
    assert_eq!(categories(lines), ["parameter", "activation", "gradient", "temporary"]);
}

#[test]
fn without_an_optimizer_no_step_is_guessed() {
    let trace = guess(training("alloc h 5 < F\nalloc g 9\nfree g\nfree h < M\n"), &Rules::default());
    // The events that free the last block belong to neither.
    assert_eq!(guessed(&trace), [("forward", 0, 1), ("backward", 1, 4)]);
}

#[test]
fn a_recording_that_stops_within_backward_recognizes_gradients_by_the_sizes_of_parameters() {
    let lines = "alloc w 100 < S\nalloc h 50 < F\nalloc dh 50\nalloc dw 100\nalloc late 77\n";
    assert_eq!(categories(lines), ["parameter", "activation", "unknown", "gradient", "unknown"]);
}

#[test]
fn a_recording_that_stops_within_the_first_optimizer_step_knows_state_by_where_it_is_made() {
    let lines = "alloc w 100 < S\nalloc h 5 < F\nalloc g 100\nfree h < F\nalloc m 100 < I\nalloc d 100 < A\n";
    let found = categories(lines);
    assert_eq!(found, ["parameter", "activation", "gradient", "optimizer_state", "unknown"]);
}

#[test]
fn what_earlier_forwards_keep_stays_unknown() {
    let step = "alloc cache$ 8 < F\nalloc g$ 9\nalloc t$ 3 < A\nfree t$ < A\nfree g$ < Z\n";
    let lines = step.replace('$', "0") + &step.replace('$', "1");
    let found = categories(&lines);
    assert_eq!(
        [found[0], found[3]],
        ["unknown"; 2],
        "a line that keeps its blocks keeps its category in the last step"
    );
    assert_eq!(categories(&step.replace('$', "0"))[0], "activation");
}

/// A step whose forward allocates `h`, which is kept for backward, and `t`, which only its operation needs, at two
/// lines.
fn step_of_two_lines(name: &str, device: &str) -> [String; 2] {
    let scratch = FORWARD.replace("linear.py", "norm.py");
    let forward = format!(
        "alloc s{name} 7{device} < {scratch}\nfree s{name}{device} < {scratch}\nalloc h{name} 50{device} < F\n\
         alloc t{name} 7{device} < {scratch}\n"
    );
    let rest = format!(
        "free t{name}{device} < {scratch}\nalloc dw{name} 100{device}\nfree h{name}{device} < F\n\
         alloc m{name} 6{device} < A\nfree m{name}{device} < A\nfree dw{name}{device}\n"
    );
    [forward, rest]
}

/// The categories of `h` and `t` of the last step of the recording, found by their sizes 50 and 7.
fn of_last_step(lines: &str) -> [&'static str; 2] {
    let trace = guess(training(lines), &Rules::default());
    let last = |size| (0..trace.blocks.len()).rev().find(|row| trace.blocks.requested[*row] == size).unwrap();
    [50, 7].map(|size| trace.blocks.category[last(size)].name())
}

#[test]
fn what_a_program_collects_is_no_input_in_its_last_step_either() {
    let step = |name: u32| {
        format!(
            "alloc h{name} 50 < F\nalloc g{name} 9\nfree h{name}\nalloc m{name} 6 < A\nfree m{name} < A\n\
             free g{name}\nalloc k{name} 1000 < M\n"
        )
    };
    let trace = guess(training(&(0..4).map(step).collect::<String>()), &Rules::default());
    let kept = trace.blocks.requested.iter().zip(&trace.blocks.category).filter(|(size, _)| **size == 1000);
    assert!(kept.into_iter().all(|(_, category)| *category == Category::Unknown), "{:?}", trace.blocks.category);
}

#[test]
fn what_a_program_keeps_between_steps_is_no_input_unless_steps_before_had_such_inputs() {
    let step = |name: u32, more: &str| {
        format!(
            "alloc x{name} 30 < M\n{more}alloc h{name} 50 < F\nalloc g{name} 9\nfree h{name}\nalloc m{name} 6 < A\n\
             free m{name} < A\nfree g{name}\n"
        )
    };
    let best = "alloc best 100 < save@t.py\nalloc buffers 70 < save@t.py\n";
    let text = [step(0, ""), step(1, "free x0\n"), step(2, &format!("free x1\n{best}"))].concat();
    let trace = guess(training(&text), &Rules::default());
    let of = |size| trace.blocks.requested.iter().rposition(|own| *own == size).unwrap();
    let found = [30, 100, 70].map(|size| trace.blocks.category[of(size)].name());
    assert_eq!(found, ["input", "unknown", "unknown"]);
}

#[test]
fn what_a_failed_request_frees_is_what_other_blocks_of_its_line_are() {
    let [forward, rest] = step_of_two_lines("0", "");
    let [again, _] = step_of_two_lines("1", "");
    let unwound = "oom 4096 free=0 < F\nfree t1 < F\nfree h1 < F\n";
    assert_eq!(of_last_step(&format!("{forward}{rest}{again}{unwound}")), ["activation", "temporary"]);
    // Another exception is not recorded; the failed request may be another device's.
    assert_eq!(of_last_step(&format!("{forward}{rest}{again}free t1 < F\nfree h1 < F\n")), ["activation", "temporary"]);
    let [other, other_rest] = step_of_two_lines("0", " device=1");
    let both = format!("{other}{other_rest}{again}{}", unwound.replace("free=0", "free=0 device=1"));
    assert_eq!(of_last_step(&both), ["activation", "temporary"]);
    // Without another life as evidence it counts as kept, not as temporary.
    let first = "alloc w 100 < S\nalloc h1 50 < F\nalloc t1 7 < F\n";
    assert_eq!(of_last_step(&format!("{first}{unwound}")), ["activation"; 2]);
    // If a line allocates both kinds, blocks of a new size count as kept.
    let mixed = "alloc a 50 < F\nfree a < F\nalloc b 60 < F\nalloc g 9\nfree b\nalloc m 6 < A\nfree m < A\nfree g\n\
                 alloc c 50 < F\nalloc d 60 < F\nalloc e 70 < F\noom 4096 free=0 < F\nfree c < F\nfree d < F\nfree e < F\n";
    assert_eq!(categories(mixed)[4..], ["temporary", "activation", "activation"]);
    // Short lives of one size do not make another size of the line temporary.
    let short = "alloc w 100 < S\nalloc a 7 < F\nfree a < F\nalloc h 50 < F\noom 4096 free=0 < F\nfree h < F\n";
    assert_eq!(categories(short)[1..], ["temporary", "activation"]);
    // The end of the recording also cuts lives short.
    assert_eq!(of_last_step(&format!("{forward}{rest}{again}")), ["activation", "temporary"]);
}

#[test]
fn parameters_that_a_failed_request_frees_are_not_temporary() {
    let lines = "alloc w 100 < S\nalloc copy 9 < S\nfree copy < S\noom 4096 free=0 < S\nfree w < S\n";
    assert_eq!(categories(lines), ["parameter", "temporary"]);
}

#[test]
fn what_constructors_keep_is_a_parameter_with_evidence_alone() {
    let init = "__init__@/home/me/serve.py < main@t.py";
    let serve = format!("alloc pool 300 < {init}\nalloc w 100 < S\nalloc h 5 < F\nfree h < F\n");
    assert_eq!(categories(&serve)[..2], ["unknown", "parameter"]);
    let train =
        format!("alloc w 300 < {init}\nalloc p 77 < {init}\nalloc h 5 < F\nalloc g 300\nalloc t 6 < A\nfree t < A\n");
    assert_eq!(categories(&train)[..2], ["parameter", "unknown"]);
    let state = format!("alloc w 300 < {init}\nalloc h 5 < F\nalloc m 300 < I\nalloc h2 5 < F\n");
    assert_eq!(categories(&state)[0], "parameter");
}

#[test]
fn what_scripts_make_and_keep_before_the_first_step_stays_unknown() {
    let lines = "alloc own 100 < M\nalloc batch 10 < M\nalloc h 5 < F\nalloc g 9\nfree h < F\nfree batch < M\n";
    assert_eq!(categories(lines)[..2], ["unknown", "input"]);
}

#[test]
fn optimizers_that_step_within_backward_make_one_step_and_leave_gradients_to_their_sizes() {
    let hook = "alloc t$ 6 < A\nfree t$ < A\n";
    let mut lines = "alloc w 100 < S\nalloc v 200 < S\nalloc h 5 < F\nalloc dh 50\nalloc dv 200\n".to_owned();
    lines += &hook.replace('$', "0");
    lines += "free dv\nalloc dx 50\nfree dh\nalloc dw 100\n";
    lines += &hook.replace('$', "1");
    lines += "free dw\nfree dx\n";
    let found = categories(&lines);
    assert_eq!(found[..5], ["parameter", "parameter", "activation", "temporary", "gradient"]);
    assert_eq!(found[5..], ["temporary", "temporary", "gradient", "temporary"]);
    let trace = guess(training(&lines), &Rules::default());
    assert_eq!(guessed(&trace).iter().filter(|(name, ..)| name.starts_with("step")).count(), 1);
}

#[test]
fn what_checkpoints_compute_again_is_an_activation_if_backward_waits_for_it() {
    let again = format!("{FORWARD} < recompute_fn@/site/torch/utils/checkpoint.py");
    let again = again.replace(" < main@t.py", "");
    let lines = format!(
        "alloc x 10 < F\nalloc dy 20\nalloc r 30 < {again}\nalloc s 40 < {again}\nfree s < {again}\nalloc dr 30\n\
         free r < {again}\nfree dr\nfree dy\nalloc t 6 < A\nfree t < A\nfree x < F\n"
    );
    let found = categories(&lines);
    assert_eq!(found, ["activation", "temporary", "activation", "temporary", "temporary", "temporary"]);
}

#[test]
fn what_autograd_frees_from_saved_tensors_is_an_activation_also_where_the_graph_is_dropped_within_forward() {
    let drop = "~TensorImpl@c10 < torch::autograd::SavedVariable::reset_data()@a < \
                torch::autograd::generated::BmmBackward0::release_variables()@b < torch::autograd::deleteNode@c < main@t.py";
    let other = FORWARD.replace("linear.py", "norm.py");
    let lines = format!(
        "alloc w 100 < S\nalloc h 50 < F\nalloc t 7 < {other}\nfree t < {other}\nalloc own 9 < M\nfree h < {drop}\n\
         free own < {drop}\nalloc h1 50 < F\nfree w < {drop}\n"
    );
    assert_eq!(categories(&lines), ["parameter", "activation", "temporary", "activation", "activation"]);
    // A node that releases something else, such as the one that accumulates a gradient, is no evidence.
    let accumulate = "~TensorImpl@c10 < torch::autograd::deleteNode@c < main@t.py";
    let lines = format!("alloc t 7 < F\nfree t < {accumulate}\nalloc u 7 < F\nfree u < F\n");
    assert_eq!(categories(&lines), ["temporary"; 2]);
}

#[test]
fn gradients_and_inputs_that_autograd_held_last_stay_what_they_are() {
    let drop = "torch::autograd::SavedVariable::reset_data()@a < main@t.py";
    let engine = "at::empty@e < torch::autograd::Engine::thread_main@engine.cpp";
    let lines = format!(
        "alloc w 100 < S\nalloc x 10 < M\nalloc h 50 < F\nalloc dw 100 < {engine}\nfree h < {drop}\nfree x < {drop}\n\
         alloc m 100 < I\nfree dw < {drop}\n"
    );
    assert_eq!(categories(&lines), ["parameter", "input", "activation", "gradient", "optimizer_state"]);
}

#[test]
fn what_the_program_marks_counts_and_an_optimizer_without_memory_still_ends_a_step() {
    let lines = "alloc w 100 < S\nalloc h 5 < F\nalloc g 100\nfree h < F\nfree g\nalloc x 3 < M\nalloc k 5 < F\n";
    let mark = |trace: &mut TraceParts, name: &str, first: u32, end: u32| {
        trace.tables.strings.push(name.to_owned());
        let name = StringId::from_index(trace.tables.strings.len() - 1);
        let (first, end) = (EventId(first), EventId(end));
        let range =
            Annotation { name, device: DeviceId(0), start_ns: None, end_ns: None, first, end, is_guessed: false };
        trace.annotations.push(range);
    };
    let trace = training(lines).edited(|trace| {
        mark(trace, "Optimizer.step#SGD.step", 5, 5);
        mark(trace, "Optimizer.zero_grad#SGD.zero_grad", 5, 7);
    });
    let trace = guess(trace, &Rules::default());
    let expected = [("step 0", 1, 7), ("forward", 1, 2), ("backward", 2, 5), ("step 1", 7, 9), ("forward", 8, 9)];
    assert_eq!(guessed(&trace), expected);
    let phases: Vec<_> = trace.spans.rows().iter().map(|span| (span.step, span.phase)).collect();
    let zero_grad = (Some(0), Phase::ZeroGrad);
    assert!(phases.contains(&zero_grad), "what the program marks is not guessed once more: {phases:?}");
    let found: Vec<_> = trace.blocks.category.iter().map(|category| category.name()).collect();
    assert_eq!(found, ["parameter", "activation", "gradient", "unknown", "activation"]);
}

#[test]
fn noise_is_absorbed_and_an_optimizer_is_not() {
    // A hook's Python code within backward, two allocations of forward within backward, and one without frames within
    // forward.
    let lines = "alloc a 1 < F\nalloc b 1\nalloc c 1 < F\nalloc d 1 < F\nalloc e 1 < F\nalloc f 1\nalloc g 1\nalloc h 1\n\
                 alloc hook 1 < M\nalloc i 1\nalloc j 1 < F\nalloc k 1 < F\nalloc l 1\nalloc m 1 < A\n";
    let trace = guess(training(lines), &Rules::default());
    assert_eq!(guessed(&trace)[1..], [("forward", 0, 5), ("backward", 5, 13), ("optimizer", 13, 14)]);
}

#[test]
fn devices_are_walked_each_on_its_own() {
    let lines = "alloc h0 5 < F\nalloc h1 5 device=1 < F\nalloc g0 9\nalloc s1 6 device=1 < F\nfree s1 device=1 < F\n\
                 free g0\nfree h0 < F\nalloc g1 9 device=1\nfree h1 device=1 < F\nalloc t 1 < A\nfree t < A\n";
    assert_eq!(categories(lines)[..4], ["activation", "activation", "temporary", "temporary"]);
}

#[test]
fn the_baseline_is_guessed_from_stacks_alone() {
    let lines = "baseline w 100 < S\nbaseline m 100 < I\nbaseline bare 100\nbaseline gone 100 < S\nfree gone < S\n\
                 alloc h 5 < F\n";
    assert_eq!(categories(lines), ["parameter", "optimizer_state", "unknown", "unknown", "activation"]);
}

#[test]
fn what_a_recording_says_stays_and_other_recorders_are_left_alone() {
    let lines = "alloc w 100 buffer < S\nalloc v 100 < S\nalloc h 5 < F\n";
    assert_eq!(categories(lines)[..2], ["buffer", "parameter"]);
    let trace = training(lines).edited(|trace| trace.header.recorder = "highwater 0.1.0".to_owned());
    let trace = guess(trace, &Rules::default());
    assert_eq!(trace.blocks.category[1], Category::Unknown);
    assert!(trace.annotations.is_empty() && !trace.trust.categories_guessed);
}

#[test]
fn a_recording_without_stacks_gets_no_guess() {
    let trace = guess(training("alloc a 1\nalloc b 2\nfree a\n"), &Rules::default());
    assert!(trace.annotations.is_empty() && !trace.trust.categories_guessed);
    assert!(trace.blocks.category.iter().all(|category| *category == Category::Unknown));
}

#[test]
fn own_rules_come_first_and_can_stand_alone() {
    let lines = "alloc w 100 < S\nalloc v 200 < S\nalloc h 5 < F\n";
    let with = |rules: &str| {
        let trace = guess(training(lines), &rules.parse().unwrap());
        trace.blocks.category.iter().map(|category| category.name()).collect::<Vec<_>>()
    };
    assert_eq!(with("buffer if size=200 lifetime=kept"), ["parameter", "buffer", "activation"]);
    assert_eq!(with("input if frame~\"convert (\"\nbuffer if size>1"), ["input", "input", "buffer"]);
    assert_eq!(with("unknown if size=100"), ["unknown", "parameter", "activation"]);
    assert_eq!(with("buffer if frame=\"main (t.py)\" size<10\nbuiltin off"), ["unknown", "unknown", "buffer"]);
}

#[test]
fn a_long_recording_with_as_many_phases_as_events_is_guessed_in_one_pass() {
    let mut lines = String::new();
    for step in 0..20_000 {
        let _ = writeln!(lines, "alloc h{step} 5 < F\nalloc k{step} 5 < F\nalloc l{step} 5 < F");
        let _ = writeln!(lines, "alloc g{step} 9\nalloc t{step} 3 < A\nfree t{step} < A\nfree g{step} < Z");
        let _ = writeln!(lines, "free h{step} < M");
    }
    let trace = guess(training(&lines), &Rules::default());
    assert_eq!(guessed(&trace).iter().filter(|(name, ..)| name.starts_with("step")).count(), 20_000);
    let gradients = trace.blocks.category.iter().filter(|category| **category == Category::Gradient).count();
    assert_eq!(gradients, 20_000);
}
