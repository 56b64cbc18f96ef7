//! Tests of the what-if view, driven by pointer and keyboard.

use std::sync::Arc;

use eframe::egui::{Key as Button, Role, Vec2, pos2};
use egui_kittest::Harness;
use egui_kittest::kittest::{NodeT as _, Queryable as _};
use highwater_analysis::Metric;

use super::*;
use crate::gui::tests::ViewHarness;
use crate::gui::views::predicted as curve;
use crate::gui::widgets::Computed as _;
use crate::{Axis, View};

/// Two activations of 4 and 8 MiB, then a gradient of 4 MiB, in one segment; the first is used no more by then.
const STEP: &str = "
    step 0
    phase forward
    segment_alloc 0x10000000 20971520 large
    alloc a 4194304 activation large
    alloc b 8388608 activation large
    used a
    phase backward
    alloc c 4194304 gradient large
    used b
    used c
    free a
    free b
    free c
";
/// The same twice, and no uses.
fn steps() -> String {
    let plain: Vec<&str> = STEP.lines().filter(|line| !line.contains("used")).collect();
    let second: Vec<&str> = plain.iter().copied().filter(|line| !line.contains("segment")).collect();
    let rename = |text: String, from: &str| text.replace(&format!(" {from}\n"), &format!(" {from}2\n"));
    let second = second.join("\n").replace("step 0", "step 1");
    let second = ["a", "b", "c"].into_iter().fold(second + "\n", |text, name| {
        rename(text, name).replace(&format!("alloc {name} "), &format!("alloc {name}2 "))
    });
    plain.join("\n") + &second
}

type Play = ViewHarness<WhatIfView>;

fn harness_of(text: &str, size: Vec2) -> Harness<'static, Play> {
    let mut harness = Harness::builder().with_size(size).build_ui_state(
        |ui, stage: &mut Play| stage.play(|view, context| view.view_ui(ui, context)),
        ViewHarness::new(text, WhatIfView::default()),
    );
    settle(&mut harness);
    harness
}

fn harness(text: &str) -> Harness<'static, Play> {
    harness_of(text, Vec2::new(1300.0, 560.0))
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

/// Types into a field, replacing its content, and presses Enter.
fn enter(harness: &mut Harness<'_, Play>, field: &str, text: &str) {
    let input = harness.get_by_role_and_label(Role::TextInput, field);
    input.focus();
    harness.run_steps(1);
    harness.key_press_modifiers(egui::Modifiers::COMMAND, Button::A);
    harness.run_steps(1);
    harness.get_by_role_and_label(Role::TextInput, field).type_text(text);
    harness.run_steps(1);
    harness.key_press(Button::Enter);
    settle(harness);
}

fn rows(harness: &Harness<'_, Play>) -> Vec<String> {
    harness.query_all_by_role(Role::Row).filter_map(|node| node.accesskit_node().label()).collect()
}

fn csv(harness: &Harness<'_, Play>) -> Vec<Vec<String>> {
    let text = harness.state().view.csv().expect("the figures are known");
    text.lines().map(|line| line.split(',').map(|cell| cell.trim_matches('"').to_owned()).collect()).collect()
}

fn last_wish(harness: &Harness<'_, Play>) -> Option<Action> {
    harness.state().actions.last().cloned()
}

fn columns(harness: &Harness<'_, Play>) -> Vec<curve::Column> {
    harness.state().view.curve.shown().expect("there is a curve").columns.clone()
}

#[test]
fn without_a_change_common_settings_are_tried_and_a_click_on_one_replays_with_it() {
    let mut harness = harness(STEP);
    // The text has no addresses: the replay says where it puts blocks elsewhere.
    harness.get_by_label_contains("With the default settings, the replay of");
    harness.get_by_label_contains(
        "Not exact: with nothing changed, the replay differs from the recording from event 3 on: ",
    );
    let told = rows(&harness);
    assert!(
        told[0].starts_with("as recorded (default) · 20 MiB · none · runs to the end · 16 MiB · 4 MiB"),
        "{told:?}"
    );
    assert!(told[1].starts_with("the same, replayed · 20 MiB"), "{told:?}");
    let expandable = told.iter().find(|row| row.starts_with("expandable_segments:True")).expect("it is tried").clone();
    assert!(expandable.contains(" · 16 MiB · "), "{expandable}");
    assert_eq!(csv(&harness)[1][..4], ["as recorded (default)", "16777216", "20971520", "4194304"]);
    harness.get_by_label(&expandable).click();
    settle(&mut harness);
    harness.get_by_label_contains("With expandable_segments:True: ");
    assert_eq!(harness.state().view.applied.words, "expandable_segments:True");
    press(&mut harness, "Reset");
    assert!(rows(&harness)[0].starts_with("as recorded"), "and back");
}

#[test]
fn a_change_is_replayed_and_its_peaks_stand_beside_the_recorded_ones() {
    let mut harness = harness(STEP);
    enter(&mut harness, "Without", "category=gradient");
    harness.get_by_label_contains("Without category=gradient: ");
    harness.get_by_label("1 allocation is left out (4 MiB).");
    let told = rows(&harness);
    // The peak comes with the second activation, in forward.
    let allocated = "allocated · 16 MiB · 12 MiB · −4 MiB · step 0, forward, event 4";
    assert!(told.iter().any(|row| row == allocated), "{told:?}");
    assert!(told.iter().any(|row| row.starts_with("reserved − active · 4 MiB · 8 MiB · +4 MiB")), "{told:?}");
    let reserved = "reserved · 20 MiB · 20 MiB · none · step 0, forward, event 3";
    assert!(told.iter().any(|row| row == reserved), "{told:?}");
    let row = harness.get_by_label(allocated).rect();
    let at = pos2(row.right() - 200.0, row.center().y);
    harness.hover_at(at);
    harness.drag_at(at);
    harness.drop_at(at);
    settle(&mut harness);
    assert_eq!(last_wish(&harness), Some(Action::Moment(5)));
    let written = csv(&harness);
    assert_eq!(written[0].join(","), "figure,recorded_bytes,changed_bytes,new_peak");
    assert_eq!(written[2].join(","), "allocated,16777216,12582912,step 0, forward");
}

#[test]
fn parts_of_blocks_and_lives_until_the_last_use_lower_the_peak() {
    let mut harness = harness(STEP);
    enter(&mut harness, "Scale to", "category=activation");
    assert!(rows(&harness).iter().any(|row| row.starts_with("allocated · 16 MiB · 10 MiB")), "{:?}", rows(&harness));
    press(&mut harness, "Reset");
    enter(&mut harness, "Until last use", "category=activation");
    harness.get_by_label_contains("are freed after their last use");
    assert!(rows(&harness).iter().any(|row| row.starts_with("allocated · 16 MiB · 12 MiB")), "{:?}", rows(&harness));
}

#[test]
fn where_nothing_says_when_blocks_are_used_that_field_is_off_and_says_why() {
    let mut harness = harness(&steps());
    harness.get_by_label_contains("the recording has no uses of blocks; record with --uses");
    assert!(harness.get_by_role_and_label(Role::TextInput, "Until last use").accesskit_node().is_disabled());
    let trace = highwater_notation::trace_from_text(&steps())
        .unwrap()
        .edited(|trace| trace.header.recorder = "PyTorch".to_owned());
    harness.state_mut().recording = Arc::new(crate::session::Recording::new("snapshot", None, trace));
    settle(&mut harness);
    harness.get_by_label("Not available: PyTorch does not record when blocks are used.");
}

#[test]
fn a_replay_that_succeeds_says_so_in_the_verdict_and_in_every_row() {
    let mut harness = harness(STEP);
    assert!(rows(&harness).iter().all(|row| row.contains(" · runs to the end · ")), "{:?}", rows(&harness));
    enter(&mut harness, "Settings", "expandable_segments:True");
    harness.get_by_label_contains("Runs to the end of the recording. With expandable_segments:True: ");
}

#[test]
fn mistakes_stand_beside_their_field_and_nothing_is_lost() {
    let mut harness = harness(STEP);
    enter(&mut harness, "Device size", "1GiB");
    harness.get_by_label_contains("Fits. With 1 GiB of memory");
    for (field, text, part) in [
        ("Settings", "expandable_segments:Yes", "expected 'True' or 'False'"),
        ("Without", "colour=red", "colour"),
        ("Scale to", "size>=", "size"),
    ] {
        enter(&mut harness, field, text);
        let mistake = harness.state().view.form.mistake(field).expect("it is a mistake").to_owned();
        assert!(mistake.contains(part), "{mistake}");
        harness.get_by_label(&mistake);
        harness.get_by_label_contains("Fits. With 1 GiB of memory");
        assert_eq!(
            harness.get_by_role_and_label(Role::TextInput, field).accesskit_node().value().as_deref(),
            Some(text)
        );
        enter(&mut harness, field, " ");
        assert!(harness.query_by_label(&mistake).is_none(), "and goes with it");
    }
    enter(&mut harness, "Device size", "much");
    assert!(harness.state().view.form.mistake("Device size").is_some());
    assert_eq!(harness.state().view.applied.words, "1 GiB of memory");
}

#[test]
fn a_device_that_is_too_small_ends_the_curve_where_the_request_fails() {
    let mut harness = harness(&steps());
    enter(&mut harness, "Device size", "16MiB");
    harness.get_by_label_contains("Does not fit with 16 MiB of memory: 4 MiB requested at event 3");
    harness.get_by_label_contains("reserved, what if until it fails ");
    harness.get_by_label("capacity 16 MiB");
    press(&mut harness, "Go to the request that fails");
    assert_eq!(last_wish(&harness), Some(Action::Event(Some(3))));
    harness.get_by_label("reserved, what if 0 B");
    let columns = columns(&harness);
    let (drawn, ended): (Vec<curve::Column>, Vec<_>) =
        columns.into_iter().partition(|column| column.predicted.is_some());
    assert!(drawn.iter().all(|column| column.x < 5.0) && ended.iter().all(|column| column.x >= 5.0));
    assert!(!ended.is_empty() && drawn.iter().any(|column| column.measured[1] == 20 << 20));
}

#[test]
fn curves_have_a_point_a_pixel_and_each_the_largest_of_its_moments() {
    let mut harness = harness(&steps());
    enter(&mut harness, "Without", "category=gradient");
    let peak = |columns: &[curve::Column], row: usize| {
        let measured = columns.iter().map(|column| column.measured[row]).max().unwrap();
        (measured, columns.iter().filter_map(|column| column.predicted).map(|one| one[row]).max().unwrap())
    };
    let whole = columns(&harness);
    assert!(whole.len() < 1300, "{}", whole.len());
    assert_eq!([peak(&whole, 0), peak(&whole, 1)], [(16 << 20, 12 << 20), (20 << 20, 20 << 20)]);
    // Fewer pixels than moments lose no peak.
    let stage = harness.state();
    let recording = Arc::clone(&stage.recording);
    let run = Arc::clone(stage.view.replayed().unwrap().other().unwrap().run);
    let mut selection = stage.selection.clone();
    for axis in [Axis::Event, Axis::Time] {
        selection.set_axis(&recording, axis);
        for count in 1..5 {
            let key = curve::Key {
                recording: Identity::of(&recording),
                run: Identity::of(&run),
                drawn: LOOK.drawn,
                selection: selection.clone(),
                columns: count,
            };
            let mut query = Query::new("test-curve", curve::Curve::of);
            query.ask(&harness.ctx, &key);
            query.wait();
            let columns = query.take().unwrap().columns;
            assert_eq!((columns.len(), peak(&columns, 0)), (count, (16 << 20, 12 << 20)), "{axis:?}");
        }
    }
    // The totals at each moment are those of the changed recording after the corresponding events.
    let totals: Vec<u64> = (0..6).map(|moment| run.totals(moment).unwrap().get(Metric::Allocated) >> 20).collect();
    assert_eq!(totals, [0, 0, 0, 0, 4, 12]);
}

#[test]
fn the_curve_moves_with_the_timeline_and_a_click_pins_its_moment() {
    let mut harness = harness(&steps());
    enter(&mut harness, "Without", "category=gradient");
    let label = "Curves of test: reserved and allocated memory, as recorded and what if";
    let middle = harness.get_by_label(label).rect().center();
    harness.hover_at(middle);
    harness.drag_at(middle);
    harness.drop_at(middle);
    settle(&mut harness);
    assert!(matches!(last_wish(&harness), Some(Action::Moment(_))), "{:?}", last_wish(&harness));
    let (recording, whole) = (Arc::clone(&harness.state().recording), harness.state().selection.view().clone());
    let part = View { x: 4.0..10.0, y: whole.y };
    harness.state_mut().selection.show(&recording, part);
    settle(&mut harness);
    let shown = columns(&harness);
    assert!(shown.iter().all(|column| (4.0..10.0).contains(&column.x)), "what is in view is drawn");
    harness.drag_at(middle);
    harness.hover_at(middle + Vec2::new(40.0, 0.0));
    harness.run_steps(2);
    let Some(Action::Across(x)) = last_wish(&harness) else { panic!("{:?}", last_wish(&harness)) };
    assert!(x.start < 4.0 && (x.end - x.start - 6.0).abs() < 1e-9, "{x:?}");
}

#[test]
fn what_is_predicted_can_be_opened_and_compared() {
    let mut harness = harness(STEP);
    enter(&mut harness, "Settings", "expandable_segments:True");
    for (label, compares) in
        [("Open the prediction as a recording", false), ("Compare the recording with the prediction", true)]
    {
        press(&mut harness, label);
        let predicted = harness.state_mut().view.take_predicted().expect("it is made");
        assert_eq!(
            (predicted.recording.name.as_str(), predicted.compares),
            ("test, what if expandable_segments:True", compares)
        );
        let peak = predicted.recording.devices[0].peak(&predicted.recording.trace, Metric::Allocated);
        assert_eq!(peak.bytes, 16 << 20);
    }
}

#[test]
fn a_narrow_view_shows_all_of_it_one_below_the_other() {
    let mut harness = harness_of(STEP, Vec2::new(520.0, 1100.0));
    enter(&mut harness, "Without", "category=gradient");
    let bottom = |harness: &Harness<'_, Play>, label: &str| harness.get_by_label_contains(label).rect().bottom();
    let order = [
        "Without category=gradient: ",
        "Recorded and predicted peaks",
        "Choose: Settings",
        "Curves of test",
        "1 allocation is left out (4 MiB).",
    ];
    let places: Vec<f32> = order.iter().map(|label| bottom(&harness, label)).collect();
    assert!(places.is_sorted(), "{places:?}");
}

#[test]
fn another_recording_is_replayed_with_the_same_change_and_nothing_is_stated_of_the_former() {
    let mut harness = harness(STEP);
    enter(&mut harness, "Without", "category=gradient");
    let former = Arc::downgrade(&harness.state().recording);
    let next = ViewHarness::new(&steps(), ());
    let stage = harness.state_mut();
    (stage.recording, stage.selection, stage.matches) = (next.recording, next.selection, next.matches);
    assert_eq!(former.strong_count(), 0, "it is not kept");
    harness.run_steps(1);
    assert!(harness.query_by_label("1 allocation is left out (4 MiB).").is_none());
    settle(&mut harness);
    harness.get_by_label("2 allocations are left out (8 MiB in all).");
}

#[test]
fn a_result_of_a_former_input_is_stated_to_be_one() {
    let mut harness = harness(STEP);
    enter(&mut harness, "Device size", "1GiB");
    assert!(harness.query_by_label_contains("Result for ").is_none());
    enter(&mut harness, "Device size", "1 elephant");
    harness.get_by_label("Result for 1 GiB of memory: the input is invalid");
    enter(&mut harness, "Device size", "1GiB");
    assert!(harness.query_by_label_contains("Result for ").is_none());
}
