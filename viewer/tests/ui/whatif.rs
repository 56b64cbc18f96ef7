//! Tests of a replay in the window, and of its prediction opened in a tab and in a comparison.

use eframe::egui::{Key, Modifiers, Role, Vec2};
use egui_kittest::Harness;
use egui_kittest::kittest::Queryable as _;
use highwater_analysis::Metric;
use highwater_app::command::Command;
use highwater_app::gui::App;
use highwater_notation::trace_from_text;

use super::harness::{chord, harness, run, settle};

/// Two activations and a gradient in a segment of 20 MiB.
const STEP: &str = "
    step 0
    phase forward
    segment_alloc 0x10000000 20971520 large
    alloc a 4194304 activation large
    alloc b 8388608 activation large
    phase backward
    alloc c 4194304 gradient large
    free a
    free b
    free c
";

/// The app with that recording and the what-if view below the timeline, replayed without gradients.
fn changed() -> Harness<'static, App> {
    let mut harness = harness(Some(trace_from_text(STEP).unwrap()));
    harness.set_size(Vec2::new(1500.0, 1000.0));
    chord(&mut harness, Modifiers::COMMAND, Key::Num7);
    harness.get_by_label_contains("With the default settings, the replay of");
    assert!(harness.get_by_role_and_label(Role::TextInput, "Settings").is_focused(), "its key leads into the form");
    harness.get_by_role_and_label(Role::TextInput, "Without").focus();
    harness.run_steps(1);
    harness.get_by_role_and_label(Role::TextInput, "Without").type_text("category=gradient");
    harness.run_steps(1);
    harness.key_press(Key::Enter);
    settle(&mut harness);
    harness.get_by_label("1 allocation is left out (4 MiB).");
    harness
}

fn press(harness: &mut Harness<'_, App>, label: &str) {
    harness.get_by_label(label).click();
    settle(harness);
    settle(harness);
}

const TAB: &str = "steps.snap, what if without category=gradient";

#[test]
fn a_prediction_opens_as_a_recording_in_a_tab_once() {
    let mut harness = changed();
    for _ in 0..2 {
        press(&mut harness, "Open the prediction as a recording");
        harness.get_by_role_and_label(Role::Tab, TAB);
        let file = harness.state().current().unwrap();
        assert_eq!(file.recording.name, TAB);
        let peak = file.recording.devices[0].peak(&file.recording.trace, Metric::Allocated);
        assert_eq!(peak.bytes, 12 << 20);
        run(&mut harness, Command::PreviousFile);
        assert_eq!(harness.state().current().unwrap().recording.name, "steps.snap");
    }
}

#[test]
fn a_prediction_is_compared_with_the_recording_it_comes_from() {
    let mut harness = changed();
    press(&mut harness, "Compare the recording with the prediction");
    harness.get_by_role_and_label(Role::Tab, &format!("steps.snap : {TAB}"));
    let csv = harness.state().comparison().expect("it is in front").csv().unwrap();
    assert!(csv.contains("-4194304"), "{csv}");
}

#[test]
fn a_drag_in_the_curve_moves_the_timeline_and_undo_returns() {
    let mut harness = changed();
    run(&mut harness, Command::ZoomIn);
    let before = harness.state().current().unwrap().selection.view().clone();
    let label = "Curves of steps.snap: reserved and allocated memory, as recorded and what if";
    let middle = harness.get_by_label(label).rect().center();
    harness.hover_at(middle);
    harness.run_steps(1);
    harness.drag_at(middle);
    harness.run_steps(1);
    for moved in [20.0, 40.0] {
        harness.hover_at(middle + Vec2::new(moved, 0.0));
        harness.run_steps(1);
    }
    harness.drop_at(middle + Vec2::new(40.0, 0.0));
    settle(&mut harness);
    let after = harness.state().current().unwrap().selection.view().clone();
    assert!(after.x.start < before.x.start && after.y == before.y, "{before:?} {after:?}");
    run(&mut harness, Command::Undo);
    assert_eq!(harness.state().current().unwrap().selection.view().x, before.x);
}
