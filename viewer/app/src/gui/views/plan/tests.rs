//! Tests of the plan view, driven by pointer and keyboard.

use std::sync::Arc;

use eframe::egui::{Key as Button, Modifiers, OutputCommand, Role, Vec2, vec2};
use egui_kittest::Harness;
use egui_kittest::kittest::{NodeT as _, Queryable as _};
use highwater_notation::trace_from_text;
use highwater_snapshots::parse_size;
use highwater_snapshots::trace::DeviceFacts;

use super::*;
use crate::Recording;
use crate::answers::plan::{Query, Recorded, search};
use crate::gui::tests::ViewHarness;
use crate::gui::widgets::Computed as _;

/// A step of four modules, each of which saves 128 MiB for backward and passes 32 MiB on; the optimizer takes
/// `temporary` times 16 MiB for a moment.
fn step(temporary: u64) -> String {
    let sized = |count: u64| count << 24;
    let mut text = format!("baseline w {} parameter @net.0\nstep 0\nphase forward\n", sized(4));
    text += &format!("alloc x {} activation\n", sized(1));
    for module in 0..4 {
        text += &format!("alloc s{module} {} activation @net.{module}\n", sized(8));
        text += &format!("alloc r{module} {} activation @net.{module}\n", sized(2));
    }
    text += "phase backward\n";
    for module in (0..4).rev() {
        text += &format!("alloc g{module} {} gradient @net.{module}\n", sized(2));
        text += &format!("free s{module}\nfree r{module}\n");
    }
    text += "free x\nphase optimizer\n";
    text += &format!("alloc t {} temporary\nfree t\nphase zero_grad\n", sized(temporary));
    text + "free g0\nfree g1\nfree g2\nfree g3\n"
}

type Play = ViewHarness<PlanView>;

fn harness_of(text: &str, size: Vec2) -> Harness<'static, Play> {
    let mut harness = Harness::builder().with_size(size).build_ui_state(
        |ui, stage: &mut Play| stage.play(|view, context| view.view_ui(ui, context)),
        ViewHarness::new(text, PlanView::default()),
    );
    settle(&mut harness);
    harness
}

fn harness(text: &str) -> Harness<'static, Play> {
    harness_of(text, Vec2::new(1300.0, 700.0))
}

fn settle(harness: &mut Harness<'_, Play>) {
    for _ in 0..3 {
        harness.run_steps(2);
        harness.state_mut().view.wait();
    }
    harness.run_steps(1);
}

fn press(harness: &mut Harness<'_, Play>, label: &str) {
    harness.get_by_label(label).click();
    settle(harness);
}

/// Types a budget, and presses Enter.
fn enter(harness: &mut Harness<'_, Play>, text: &str) {
    harness.get_by_role_and_label(Role::TextInput, "Budget").focus();
    harness.run_steps(1);
    harness.key_press_modifiers(Modifiers::COMMAND, Button::A);
    harness.run_steps(1);
    harness.get_by_role_and_label(Role::TextInput, "Budget").type_text(text);
    harness.run_steps(1);
    harness.key_press(Button::Enter);
    settle(harness);
}

fn chosen(harness: &Harness<'_, Play>) -> Arc<job::Chosen> {
    Arc::clone(&harness.state().view.planned().expect("there is a plan").chosen)
}

fn budget(harness: &Harness<'_, Play>) -> u64 {
    harness.state().view.budget.bytes
}

#[test]
fn typing_a_budget_gives_the_plan_that_the_command_line_gives() {
    let text = step(60);
    let mut harness = harness(&text);
    let trace = Arc::new(trace_from_text(&text).unwrap());
    let recorded = Recorded::new(Arc::clone(&trace), trace.main_device(), &[]).unwrap();
    for size in ["1600MiB", "960MiB", "720MiB", "640MiB", "160MiB"] {
        enter(&mut harness, size);
        let budget = Budget { bytes: parse_size(size).unwrap(), reserve: 0 };
        let found = search(&recorded, &Query { capacity: budget.bytes, ..Query::default() }).unwrap();
        harness.get_by_label(&planned::answer(&found, budget));
        if let Some(plan) = found.best() {
            assert_eq!(chosen(&harness).setup, plan.setup, "{size}");
            assert_eq!(chosen(&harness).trial.requested, plan.trial.requested, "{size}");
        }
    }
}

#[test]
fn switching_a_change_off_changes_the_predicted_peak_and_the_plan_can_be_restored() {
    let mut harness = harness(&step(60));
    enter(&mut harness, "720MiB");
    harness.get_by_label_contains("Fits in 720 MiB with fused optimizer and net.");
    let planned = chosen(&harness);
    assert!(planned.trial.fits && planned.lines.len() >= 2, "{:?}", planned.lines);
    press(&mut harness, "fused optimizer");
    harness.get_by_label_contains("Does not fit in 720 MiB with net.");
    let without = chosen(&harness);
    assert!(!without.trial.fits && without.trial.requested > planned.trial.requested);
    assert_eq!(without.run.peak(Metric::Requested).bytes, 1152 << 20, "the optimizer's temporary is back in the curve");
    harness.get_by_label("off");
    press(&mut harness, "Back to the plan");
    assert_eq!(chosen(&harness).setup, planned.setup);
}

#[test]
fn a_single_recomputed_module_can_be_left_out() {
    let mut harness = harness(&step(4));
    enter(&mut harness, "512MiB");
    let planned = chosen(&harness);
    let modules = planned.setup.recomputed.clone().unwrap();
    assert!(modules.len() > 1, "{modules:?}");
    press(&mut harness, "Single modules");
    press(&mut harness, &modules[0]);
    let fewer = chosen(&harness);
    assert_eq!(fewer.setup.recomputed.as_deref(), Some(&modules[1..]));
    assert!(fewer.trial.requested > planned.trial.requested);
    press(&mut harness, &modules[0]);
    assert_eq!(chosen(&harness).setup, planned.setup);
    harness.get_by_label("Hide single modules");
    assert!(harness.query_by_label("Back to the plan").is_none(), "it is the plan again");
}

#[test]
fn what_does_not_fit_says_so_and_shows_the_least_and_what_it_consists_of() {
    let mut harness = harness(&step(4));
    enter(&mut harness, "128MiB");
    harness.get_by_label_contains("Does not fit in 128 MiB: the minimum is ");
    harness.get_by_label_contains("With these changes it runs on a device of ");
    harness.get_by_label_contains("Its peak consists of: ");
    let least = chosen(&harness);
    assert!(!least.trial.fits && least.trial.requested > 128 << 20);
    assert!(least.run.end().is_none(), "the whole curve is drawn");
}

#[test]
fn a_recording_without_module_paths_says_what_to_record() {
    let text = step(4);
    let plain: Vec<String> = text.lines().map(|line| line.split(" @").next().unwrap().to_owned()).collect();
    let mut harness = harness(&plain.join("\n"));
    enter(&mut harness, "320MiB");
    harness.get_by_label_contains("Does not fit in 320 MiB");
    harness.get_by_label_contains("No module can be recomputed, since the recording has no module paths: record with");
}

#[test]
fn limits_of_the_recording_are_named() {
    let failed = step(4).split("phase backward").next().unwrap().to_owned() + "oom 67108864 free=0\n";
    let mut harness = harness(&failed);
    harness.get_by_label_contains(
        "Gets past the request that failed in 720 MiB with net.0 recomputed; the step may need more.",
    );
    harness.get_by_label_contains("The recording ends in an out-of-memory error, so a plan is proven only up to it");
    let two = step(4) + "alloc other 4096 activation device=1\n";
    let next = ViewHarness::new(&two, ());
    let stage = harness.state_mut();
    (stage.recording, stage.selection, stage.matches) = (next.recording, next.selection, next.matches);
    settle(&mut harness);
    harness.get_by_label("The plan is for device 0, which needs the most memory of several.");
    let recording = Arc::clone(&harness.state().recording);
    harness.state_mut().selection.set_device(&recording, 1);
    settle(&mut harness);
    harness.get_by_label("The plan is for device 1.");
}

#[test]
fn host_memory_and_empty_recordings_are_no_panic() {
    let trace = trace_from_text(&step(4)).unwrap().edited(|trace| {
        trace.devices = vec![DeviceFacts {
            driver: highwater_snapshots::trace::PINNED_DRIVER.to_owned(),
            ..DeviceFacts::default()
        }];
    });
    let mut harness = harness("step 0");
    harness.get_by_label("No plan: the recording has no allocations on this device.");
    harness.state_mut().recording = Arc::new(Recording::new("pinned", None, trace));
    settle(&mut harness);
    harness.get_by_label_contains("No plan: device 0 is pinned host memory");
}

#[test]
fn a_recording_of_the_command_line_points_to_the_exact_figures() {
    let mut harness = harness(&step(4));
    let trace = trace_from_text(&step(4))
        .unwrap()
        .edited(|trace| trace.header.program = "target/debug/highwater record gpt2".to_owned());
    harness.state_mut().recording = Arc::new(Recording::new("gpt2", None, trace));
    settle(&mut harness);
    enter(&mut harness, "640MiB");
    harness.get_by_label_contains("highwater plan FILE --budget 640MiB runs the step again");
    assert!(
        chosen(&harness).code.lines.iter().any(|line| line.starts_with("checkpoint_scopes(")),
        "its lines are Rust"
    );
}

#[test]
fn the_handle_moves_by_pointer_and_keyboard_and_the_plan_follows() {
    let mut harness = harness(&step(4));
    enter(&mut harness, "640MiB");
    let handle = |harness: &Harness<'_, Play>| harness.get_by_role(Role::Slider).rect().center();
    let from = handle(&harness);
    harness.hover_at(from);
    harness.run_steps(1);
    harness.drag_at(from);
    harness.run_steps(1);
    for moved in [6.0, 20.0, 40.0] {
        harness.hover_at(from + vec2(0.0, moved));
        harness.run_steps(1);
    }
    harness.drop_at(from + vec2(0.0, 40.0));
    settle(&mut harness);
    let dragged = budget(&harness);
    assert!(dragged < 640 << 20, "{dragged}");
    assert!((handle(&harness).y - from.y - 40.0).abs() < 6.0, "the handle stays under the pointer");
    let text = format_bytes(dragged);
    harness.get_by_label_contains(&format!("in {text}"));
    let field = harness.get_by_role_and_label(Role::TextInput, "Budget").accesskit_node().value();
    assert_eq!(field.map(|text| parse_size(&text)), Some(Ok(dragged)), "the field follows");
    harness.get_by_role(Role::Slider).focus();
    harness.run_steps(1);
    harness.key_press(Button::ArrowUp);
    settle(&mut harness);
    let stepped = budget(&harness);
    assert!(stepped > dragged && stepped - dragged < 64 << 20, "{dragged} {stepped}");
    harness.key_press(Button::PageUp);
    settle(&mut harness);
    assert_eq!(budget(&harness), 8 << 30, "the next common device");
    harness.get_by_label_contains("Fits in 8 GiB as it is");
}

#[test]
fn another_plan_can_be_chosen_and_its_lines_copied() {
    let mut harness = harness(&step(60));
    enter(&mut harness, "960MiB");
    let plans: Vec<String> = {
        let search = &harness.state().view.planned().unwrap().found.search;
        search.plans.iter().map(|plan| name(&plan.setup)).collect()
    };
    assert!(plans.len() > 1, "{plans:?}");
    harness.get_by_role_and_label(Role::RadioButton, &plans[1]).click();
    settle(&mut harness);
    assert_eq!(name(&chosen(&harness).setup), plans[1]);
    harness.get_by_label("Copy the lines that apply the plan").click();
    harness.run_steps(1);
    let copied = harness.output().platform_output.commands.iter().find_map(|command| match command {
        OutputCommand::CopyText(text) => Some(text.clone()),
        _ => None,
    });
    assert_eq!(copied, Some(chosen(&harness).code.lines.join("\n")));
}

#[test]
fn a_mistake_in_the_budget_keeps_the_plan_and_another_recording_replaces_it() {
    let mut harness = harness(&step(4));
    enter(&mut harness, "640MiB");
    enter(&mut harness, "much");
    harness.get_by_label_contains("in size 'much'");
    harness.get_by_label_contains("Fits in 640 MiB with ");
    let former = Arc::downgrade(&harness.state().recording);
    let next = ViewHarness::new(&step(60), ());
    let stage = harness.state_mut();
    (stage.recording, stage.selection, stage.matches) = (next.recording, next.selection, next.matches);
    assert_eq!(former.strong_count(), 0, "it is not kept");
    settle(&mut harness);
    harness.get_by_label_contains("Fits in 640 MiB with fused optimizer");
}

#[test]
fn the_budget_to_begin_with_is_the_device_that_is_nearly_full_or_less_than_the_peak() {
    let mut harness = harness(&step(4));
    assert_eq!(budget(&harness), 676 << 20, "nine tenths of 752 MiB");
    harness.get_by_label("Suggested: 676 MiB, nine tenths of the peak of reserved memory.");
    let trace = trace_from_text(&step(4))
        .unwrap()
        .edited(|trace| trace.devices = vec![DeviceFacts { capacity_bytes: 768 << 20, ..DeviceFacts::default() }]);
    harness.state_mut().recording = Arc::new(Recording::new("full", None, trace));
    settle(&mut harness);
    assert_eq!(budget(&harness), 768 << 20);
    harness.get_by_label_contains(", the device's memory.");
}

#[test]
fn the_part_of_the_budget_that_others_use_is_what_the_samples_say_until_the_user_chooses_it() {
    // Of 1168 MiB in use, 400 MiB are not the allocator's, whose segment is of 768 MiB.
    let sample = format!("segment_alloc 0x10000000 {}\ndevice_used {}\nphase optimizer\n", 768 << 20, 1168 << 20);
    let text = step(4).replace("phase optimizer\n", &sample);
    let mut harness = harness(&text);
    assert_eq!(harness.state().view.budget.reserve, 400 << 20);
    harness.get_by_label("Other processes use 400 MiB of the budget, according to the recording's samples.");
    enter(&mut harness, "2GiB");
    assert_eq!(harness.state().view.budget, Budget { bytes: 2 << 30, reserve: 400 << 20 });
    harness.get_by_label_contains("Fits in 2 GiB less 400 MiB");
}

#[test]
fn a_narrow_view_shows_the_answer_the_switches_and_the_chart_one_below_the_other() {
    let mut harness = harness_of(&step(60), Vec2::new(560.0, 1200.0));
    enter(&mut harness, "720MiB");
    let order = ["Fits in 720 MiB with ", "Single modules", "Curves of test", "Assumed: "];
    let top = |label: &str| harness.query_all_by_label_contains(label).next().expect(label).rect().top();
    let places: Vec<f32> = order.iter().map(|label| top(label)).collect();
    assert!(places.is_sorted(), "{places:?}");
}
