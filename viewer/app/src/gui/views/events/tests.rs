//! Tests of the list of events, driven by pointer and keyboard.

use eframe::egui::{Modifiers, Vec2};
use egui_kittest::Harness;
use egui_kittest::kittest::{NodeT as _, Queryable as _};
use highwater_notation::trace_from_text;

use super::*;
use crate::gui::tests::ViewHarness;
use crate::gui::widgets::Computed as _;

const STEPS: &str = "
    baseline w 400/512 parameter @net.fc1 < new < main
    segment_alloc 0x1000000 2097152
    step 0
    phase forward
    alloc a 300/512 activation #linear @net.fc1 < forward < main
    alloc b 2048 activation #relu @net.fc2 < relu < main
    alloc other 5 #linear device=1
    mark checkpoint of layer 3
    free b
    begin \"eval loop\"
    alloc c 300/512 gradient #linear @net.fc1 < backward < main
    end \"eval loop\"
    free c
    oom 4096 free=1024
";

type Play = ViewHarness<EventsView>;

fn harness(text: &str) -> Harness<'static, Play> {
    let mut harness = Harness::builder().with_size(Vec2::new(1300.0, 420.0)).build_ui_state(
        |ui, stage: &mut Play| stage.play(|view, context| view.view_ui(ui, context)),
        ViewHarness::new(text, EventsView::default()),
    );
    settle(&mut harness);
    harness
}

fn settle(harness: &mut Harness<'_, Play>) {
    for _ in 0..4 {
        harness.run_steps(2);
        harness.state_mut().view.wait();
    }
    harness.run_steps(2);
}

fn press(harness: &mut Harness<'_, Play>, modifiers: Modifiers, key: Key) {
    harness.key_press_modifiers(modifiers, key);
    settle(harness);
}

/// The rows in view, each as its cells with ` · ` between them.
fn rows(harness: &Harness<'_, Play>) -> Vec<String> {
    harness.query_all_by_role(Role::Row).filter_map(|node| node.accesskit_node().label()).collect()
}

fn find(harness: &mut Harness<'_, Play>, text: &str) {
    harness.get_by_role_and_label(Role::TextInput, "Find in events").focus();
    settle(harness);
    harness.state_mut().view.text.clear();
    harness.get_by_role_and_label(Role::TextInput, "Find in events").type_text(text);
    settle(harness);
}

fn moments(harness: &Harness<'_, Play>) -> Vec<usize> {
    let moment = |action: &Action| if let Action::Moment(moment) = action { Some(*moment) } else { None };
    harness.state().actions.iter().filter_map(moment).collect()
}

#[test]
fn every_event_of_the_device_has_a_row_with_its_facts() {
    let harness = harness(STEPS);
    harness.get_by_label("Events: 12 rows");
    harness.get_by_label("12 events");
    let rows = rows(&harness);
    assert_eq!(rows[0], "0 · 0.000001 · segment alloc · 2 MiB · s0 ·  ·  ·  ·  · setup");
    assert_eq!(rows[3], "3 · 0.000004 · alloc · 300 B · b1 · activation · forward · linear · net.fc1 · step 0 forward");
    assert!(rows.iter().all(|row| !row.contains("5 B")), "what happens elsewhere is not listed");
    assert!(rows[5].ends_with("mark ·  ·  ·  · checkpoint of layer 3 ·  ·  · step 0 forward"), "{}", rows[5]);
    assert!(rows[8].ends_with("eval loop begins; backward · linear · net.fc1 · step 0 forward"), "{}", rows[8]);
    assert!(rows[4].contains("alloc, the peak"), "{}", rows[4]);
    assert!(rows[11].contains("out of memory · 4 KiB") && rows[11].contains(" · with 1 KiB free on the device · "));
}

#[test]
fn kinds_and_conditions_narrow_the_list() {
    let mut harness = harness(STEPS);
    harness.get_by_label("Frees").click();
    settle(&mut harness);
    harness.get_by_label("8 events");
    for kind in ["Segments", "Marks", "Out of memory"] {
        harness.get_by_label(kind).click();
        settle(&mut harness);
    }
    harness.get_by_label("3 events");
    harness.state_mut().narrow("op=linear");
    settle(&mut harness);
    harness.get_by_label("2 events");
    assert!(rows(&harness).iter().all(|row| row.contains("linear")));
    harness.get_by_label("Only blocks that match the search").click();
    settle(&mut harness);
    harness.get_by_label("3 events");
}

#[test]
fn a_chosen_row_pins_its_moment_and_enter_its_block() {
    let mut harness = harness(STEPS);
    harness.get_by_label_contains("3 · 0.000004 · alloc").click();
    settle(&mut harness);
    assert_eq!(harness.state().actions, [Action::Moment(4)]);
    press(&mut harness, Modifiers::NONE, Key::Enter);
    assert_eq!(harness.state().actions.last(), Some(&Action::Block(highwater_snapshots::BlockId(1))));
    press(&mut harness, Modifiers::NONE, Key::ArrowDown);
    assert_eq!(moments(&harness), [4, 5]);
}

#[test]
fn the_row_of_the_pinned_moment_is_chosen_and_in_view_also_when_the_list_changes() {
    let text: String = (0..3000).map(|n| format!("alloc b{n} {}\nmark m{n}\n", n + 1)).collect();
    let mut harness = harness(&text);
    harness.state_mut().pin(4001);
    settle(&mut harness);
    assert_eq!(harness.state().view.table.chosen, Some(4000));
    harness.get_by_label_contains("4,000 · 0.004001 · alloc");
    harness.get_by_label("Marks").click();
    settle(&mut harness);
    assert_eq!(harness.state().view.table.chosen, Some(2000), "the event keeps its row chosen");
    harness.get_by_label_contains("4,000 · 0.004001 · alloc");
    harness.state_mut().pin(4002);
    settle(&mut harness);
    assert_eq!(harness.state().view.table.chosen, None, "an event that is not listed has no row");
    harness.get_by_label_contains("4,002 · 0.004003 · alloc");
    assert!(harness.state().actions.is_empty());
}

#[test]
fn the_peak_is_in_view_while_nothing_is_pinned_and_empty_columns_are_left_out() {
    let text: String = (0..3000).map(|n| format!("alloc b{n} {}\n", n + 1)).collect();
    let mut harness = harness(&text);
    harness.get_by_label_contains("2,999 · 0.003000 · alloc, the peak · 2.93 KiB · b2999 · unknown");
    assert_eq!(harness.state().view.table.chosen, None);
    assert!(harness.query_by_label("Operation").is_none() && harness.query_by_label("Module").is_none());
    harness.state_mut().pin(11);
    settle(&mut harness);
    harness.get_by_label_contains("10 · 0.000011 · alloc");
}

#[test]
fn search_counts_walks_both_ways_and_begins_again() {
    let mut harness = harness(STEPS);
    find(&mut harness, "LINEAR");
    harness.get_by_label("4 found");
    press(&mut harness, Modifiers::NONE, Key::Enter);
    harness.get_by_label("1 of 4");
    press(&mut harness, Modifiers::NONE, Key::Enter);
    press(&mut harness, Modifiers::NONE, Key::Enter);
    press(&mut harness, Modifiers::SHIFT, Key::Enter);
    harness.get_by_label("2 of 4");
    harness.get_by_label("Previous").click();
    settle(&mut harness);
    harness.get_by_label("Previous").click();
    settle(&mut harness);
    harness.get_by_label("4 of 4");
    assert_eq!(moments(&harness), [4, 10, 11, 10, 4, 12]);
}

#[test]
fn search_finds_every_text_that_a_row_shows() {
    let mut harness = harness(STEPS);
    for (text, count) in [
        ("net.fc2", "3 found"),
        ("gradient", "3 found"),
        ("backward", "1 found"),
        ("layer 3", "1 found"),
        ("eval", "1 found"),
        ("out of mem", "1 found"),
        ("forward", "2 found"),
        ("b1", "1 found"),
        ("nowhere", "nothing found"),
    ] {
        find(&mut harness, text);
        let told = harness.state().view.count_text();
        assert_eq!(told, count, "{text}");
    }
    find(&mut harness, "6");
    assert!(
        harness.state().view.search.answer().unwrap().contains(5),
        "a number is that of an event: event 6 is in row 5"
    );
}

#[test]
fn the_listed_events_are_written_line_by_line_in_exact_figures() {
    let mut harness = harness(STEPS);
    for kind in ["Frees", "Segments", "Marks", "Out of memory"] {
        harness.get_by_label(kind).click();
        settle(&mut harness);
    }
    let mut text = Vec::new();
    harness.state_mut().play(|view, context| {
        view.table(context).unwrap()(&mut text).unwrap();
        Vec::new()
    });
    let text = String::from_utf8(text).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 4);
    assert!(lines[0].starts_with("\"index\",\"kind\",\"time_us\",\"device\",\"block\","), "{}", lines[0]);
    let first = "3,\"alloc\",4,0,1,";
    let rest = ",\"activation\",\"linear\",0,\"net.fc1\",\"forward\",0,,\"forward, main\"";
    assert!(lines[1].starts_with(first) && lines[1].ends_with(rest), "{}", lines[1]);
}

#[test]
fn lists_and_searches_that_are_not_wanted_any_more_give_way_to_the_last() {
    let text: String = (0..100_000).map(|n| format!("mark note {}\n", n % 1000)).collect();
    let mut stage = ViewHarness::new(&text, EventsView::default());
    let ctx = egui::Context::default();
    for wanted in ["note 1", "note 12", "note 123"] {
        stage.view.text = wanted.to_owned();
        stage.play(|view, context| {
            view.refresh(&ctx, context);
            Vec::new()
        });
    }
    stage.view.wait();
    stage.play(|view, context| {
        view.refresh(&ctx, context);
        Vec::new()
    });
    stage.view.wait();
    assert_eq!(stage.view.search.answer().map(|found| found.count), Some(100));
    assert_eq!(**stage.view.list.answer().unwrap(), Listed::All(100_000), "everything is listed without a list");
}

#[test]
fn an_empty_recording_lists_nothing() {
    let harness = harness("");
    harness.get_by_label("Events: 0 rows");
    assert!(trace_from_text("").unwrap().events.is_empty());
}
