//! Tests that the plan in the window equals that of the command line, with keys only and in a small window.

use std::time::{Duration, Instant};

use clap::Parser as _;
use eframe::egui::{Key, Modifiers, Rect, Role, Vec2};
use egui_kittest::Harness;
use egui_kittest::kittest::{NodeT as _, Queryable as _};
use highwater::{Arguments, Command as Subcommand, Page};
use highwater_app::gui::App;
use highwater_notation::trace_from_text;
use highwater_snapshots::Trace;
use highwater_snapshots::format::write_trace;

use super::harness::{chord, harness, settle};

/// Three modules, each of which saves 128 MiB for backward, and an optimizer with a temporary of 640 MiB.
const STEP: &str = "
    baseline w 67108864 parameter @net.0
    step 0
    phase forward
    alloc s0 134217728 activation @net.0
    alloc r0 33554432 activation @net.0
    alloc s1 134217728 activation @net.1
    alloc r1 33554432 activation @net.1
    alloc s2 134217728 activation @net.2
    alloc r2 33554432 activation @net.2
    phase backward
    alloc g2 33554432 gradient @net.2
    free s2
    free r2
    alloc g1 33554432 gradient @net.1
    free s1
    free r1
    alloc g0 33554432 gradient @net.0
    free s0
    free r0
    phase optimizer
    alloc t 671088640 temporary
    free t
    phase zero_grad
    free g0
    free g1
    free g2
";

/// The lines that `highwater plan` prints for that recording.
fn printed(budget: &str) -> Vec<String> {
    printed_of(&trace_from_text(STEP).unwrap(), budget)
}

fn printed_of(trace: &Trace, budget: &str) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("step.snap");
    std::fs::write(&file, write_trace(Vec::new(), trace).unwrap()).unwrap();
    let words = ["highwater", "plan", file.to_str().unwrap(), "--budget", budget];
    let Some(Subcommand::Plan(arguments)) = Arguments::try_parse_from(words).unwrap().command else { panic!() };
    let mut out = Vec::new();
    highwater::plan::run(&arguments, &mut Page::plain(&mut out)).unwrap();
    String::from_utf8(out).unwrap().lines().map(str::to_owned).collect()
}

/// The app with that recording and the plan below the timeline, for `budget`.
fn planned(budget: &str, size: Vec2) -> Harness<'static, App> {
    planned_of(trace_from_text(STEP).unwrap(), budget, size)
}

fn planned_of(trace: Trace, budget: &str, size: Vec2) -> Harness<'static, App> {
    let mut harness = harness(Some(trace));
    harness.set_size(size);
    chord(&mut harness, Modifiers::COMMAND, Key::B);
    assert!(harness.get_by_role_and_label(Role::TextInput, "Budget").is_focused(), "its key leads into the budget");
    harness.key_press_modifiers(Modifiers::COMMAND, Key::A);
    harness.run_steps(1);
    harness.get_by_role_and_label(Role::TextInput, "Budget").type_text(budget);
    harness.run_steps(1);
    harness.key_press(Key::Enter);
    settle(&mut harness);
    settle(&mut harness);
    harness
}

#[test]
fn typing_a_budget_gives_the_plan_of_the_command_line() {
    for budget in ["560MiB", "400MiB", "192MiB"] {
        let harness = planned(budget, Vec2::new(1500.0, 1000.0));
        let lines = printed(budget);
        harness.get_by_label(&lines[0]);
        let assumed: Vec<&String> = lines.iter().filter(|line| line.contains("Assumed: ")).collect();
        assert!(!assumed.is_empty(), "{lines:?}");
        for line in assumed {
            harness.get_by_label(line.trim_start_matches(['!', '*', ' ']));
        }
    }
}

/// A built-in step that runs out of memory on a device of 16 MiB; `program` is said to have recorded it.
#[cfg(feature = "engine")]
fn failed(program: &str) -> Trace {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("oom.snap");
    let words = format!("{RECORD} --capacity 16MiB --out {}", file.display());
    let Some(Subcommand::Record(arguments)) = Arguments::try_parse_from(words.split(' ')).unwrap().command else {
        panic!()
    };
    highwater::record::run(&arguments, &mut Page::plain(&mut Vec::new())).unwrap();
    highwater_snapshots::format::read_file(&file).unwrap().edited(|trace| trace.header.program = program.to_owned())
}

#[cfg(feature = "engine")]
const RECORD: &str = "highwater record gpt2 --batch 4 --seq 128 --width 128 --layers 4 --heads 2 --vocab 500 --steps 2";

/// The command line runs a built-in step again, and so does the app: a recording that ends early does not decide alone.
#[cfg(feature = "engine")]
#[test]
fn a_step_that_ran_out_of_memory_has_one_plan_in_the_app_and_on_the_command_line() {
    for program in [&format!("{RECORD} --capacity 16MiB"), "train.py"] {
        let trace = failed(program);
        let headline = printed_of(&trace, "20MiB")[0].clone();
        assert_eq!(headline.starts_with("Fits in 20 MiB with "), program != "train.py", "{headline}");
        assert!(program != "train.py" || headline.contains("the step may need more"), "{headline}");
        planned_of(trace, "20MiB", Vec2::new(1500.0, 1000.0)).get_by_label(&headline);
    }
}

/// As of PyTorch's snapshots, which lack the size of the device.
#[cfg(feature = "engine")]
#[test]
fn the_budget_to_begin_with_is_the_memory_that_a_failed_request_shows() {
    let trace = failed("train.py").edited(|trace| trace.devices[0].capacity_bytes = 0);
    let mut harness = harness(Some(trace));
    chord(&mut harness, Modifiers::COMMAND, Key::B);
    harness.get_by_label("Suggested: 16 MiB, the memory that the allocator could use when a request failed.");
}

#[test]
fn in_a_small_window_the_answer_the_budget_and_the_chart_are_in_view() {
    let size = Vec2::new(900.0, 600.0);
    let harness = planned("400MiB", size);
    let window = Rect::from_min_size(Default::default(), size);
    let seen = ["Fits in 400 MiB with fused optimizer", "fused optimizer", "Curves of steps.snap", "Timeline of"];
    for label in seen {
        let rect = harness.query_all_by_label_contains(label).next().expect(label).rect();
        assert!(window.intersects(rect) && rect.top() >= 0.0, "{label}: {rect:?}");
    }
    let handle = harness.get_by_role_and_label(Role::TextInput, "Budget").rect();
    assert!(window.contains_rect(handle), "{handle:?}");
}

#[test]
fn the_keyboard_alone_switches_a_change_off() {
    let mut harness = planned("400MiB", Vec2::new(1500.0, 1000.0));
    let switch = |harness: &Harness<'_, App>| {
        harness.get_by_role_and_label(Role::CheckBox, "fused optimizer").accesskit_node().toggled()
    };
    let before = switch(&harness);
    for _ in 0..100 {
        if harness.get_by_role_and_label(Role::CheckBox, "fused optimizer").is_focused() {
            break;
        }
        harness.key_press(Key::Tab);
        harness.run_steps(1);
    }
    harness.key_press(Key::Space);
    // The plan without the change is searched for on another thread.
    let begun = Instant::now();
    while switch(&harness) == before && begun.elapsed() < Duration::from_secs(60) {
        settle(&mut harness);
        std::thread::yield_now();
    }
    assert_ne!(switch(&harness), before);
    harness.get_by_label_contains("Does not fit in 400 MiB with net.");
    harness.get_by_role_and_label(Role::TextInput, "Budget").focus();
    harness.run_steps(1);
    chord(&mut harness, Modifiers::COMMAND, Key::B);
    assert!(harness.query_by_label_contains("Does not fit").is_none(), "its key hides it again");
}
