//! Tests of the explanation, driven by pointer and keyboard.

use std::sync::Arc;

use eframe::egui::{Key as Button, Role, Vec2, pos2};
use egui_kittest::Harness;
use egui_kittest::kittest::{NodeT as _, Queryable as _};
use highwater_analysis::Metric;

use super::*;
use crate::gui::tests::ViewHarness;
use crate::gui::widgets::Computed as _;

/// A step whose peak of 8,010 bytes is in the optimizer; without its intermediate results it would be 6,010.
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

type Play = ViewHarness<ExplainView>;

fn harness_of(text: &str, size: Vec2) -> Harness<'static, Play> {
    let mut harness = Harness::builder().with_size(size).build_ui_state(
        |ui, stage: &mut Play| stage.play(|view, context| view.view_ui(ui, context)),
        ViewHarness::new(text, ExplainView::default()),
    );
    settle(&mut harness);
    harness
}

fn harness(text: &str) -> Harness<'static, Play> {
    harness_of(text, Vec2::new(1500.0, 700.0))
}

fn settle(harness: &mut Harness<'_, Play>) {
    harness.run_steps(2);
    harness.state_mut().view.wait();
    harness.run_steps(2);
}

fn press(harness: &mut Harness<'_, Play>, label: &str) {
    harness.get_by_label(label).click();
    settle(harness);
}

fn last_wish(harness: &Harness<'_, Play>) -> Option<Action> {
    harness.state().actions.last().cloned()
}

fn rows(harness: &Harness<'_, Play>) -> Vec<String> {
    harness.query_all_by_role(Role::Row).filter_map(|node| node.accesskit_node().label()).collect()
}

fn csv(harness: &Harness<'_, Play>) -> Vec<Vec<String>> {
    let text = harness.state().view.csv().expect("the groups are known");
    text.lines().map(|line| line.split(',').map(|cell| cell.trim_matches('"').to_owned()).collect()).collect()
}

#[test]
fn the_headline_shows_the_peak_and_leads_to_it() {
    let mut harness = harness(STEP);
    harness.get_by_label("Peak 7.82 KiB");
    harness.get_by_label("requested, step 0, optimizer, event 18");
    press(&mut harness, "Go to the explained peak");
    assert_eq!(last_wish(&harness), Some(Action::Event(Some(18))));
}

#[test]
fn the_pieces_of_the_bar_add_up_and_a_click_on_one_shows_only_its_blocks_and_the_next_all() {
    let mut harness = harness(&STEP.replace("alloc w1 1000", "baseline w1 1000/1024"));
    harness.get_by_label_contains("Composition of the peak: 7 pieces, 7.85 KiB active");
    harness.get_by_label("rounding: 24 B (24 B)");
    harness.get_by_label("parameter from before the recording: 1000 B (1,000 B), 12% of 7.82 KiB requested").click();
    settle(&mut harness);
    assert_eq!(last_wish(&harness), Some(Action::Only("category=parameter phase=before".to_owned())));
    press(&mut harness, "gradient from backward: 1.95 KiB (2,000 B), 25% of 7.82 KiB requested");
    let Some(Action::Only(condition)) = last_wish(&harness) else { panic!("it asks for a condition") };
    harness.state_mut().narrow(&condition);
    assert_eq!(harness.state().matches.blocks(), 2, "{condition}");
    settle(&mut harness);
    press(&mut harness, "gradient from backward: 1.95 KiB (2,000 B), 25% of 7.82 KiB requested");
    assert_eq!(last_wish(&harness), Some(Action::Only(String::new())), "another click shows all");
}

#[test]
fn shares_in_the_bar_are_of_the_total_that_advice_names_though_the_bar_is_longer() {
    let harness = harness(&format!("segment_alloc 0x10000000 16384 large\n{STEP}"));
    harness.get_by_label("Composition of the peak: 6 pieces, 16 KiB reserved");
    harness.get_by_label("gradient from backward: 1.95 KiB (2,000 B), 25% of 7.82 KiB requested");
}

#[test]
fn after_an_out_of_memory_the_failed_request_is_one_click_away() {
    let mut harness = harness(&format!("{STEP}\noom 900000"));
    harness.get_by_label("Out of memory: 1 request failed, so the run may need more than was recorded.");
    press(&mut harness, "Show why it failed");
    assert_eq!(last_wish(&harness), Some(Action::Oom));
    let without = self::harness(STEP);
    assert!(without.query_by_label_contains("Out of memory").is_none());
}

#[test]
fn keys_that_no_block_has_are_greyed_and_given_up() {
    let mut harness = harness(STEP);
    press(&mut harness, "Explain by category");
    let is_greyed = |harness: &Harness<'_, Play>, name: &str| {
        harness.get_by_role_and_label(Role::Button, name).accesskit_node().is_disabled()
    };
    assert!(is_greyed(&harness, "stack") && is_greyed(&harness, "line (frame)"), "there are no stacks");
    assert!(!is_greyed(&harness, "op") && !is_greyed(&harness, "module, 1 level (scope:1)"));
    press(&mut harness, "module, 1 level (scope:1)");
    let groups: Vec<String> = csv(&harness).into_iter().skip(1).map(|line| line[0].clone()).collect();
    assert!(groups.iter().all(|group| ["blocks", "(none)", "total"].contains(&group.as_str())), "{groups:?}");
    // Another recording has no modules.
    let next = ViewHarness::new("alloc a 1000 activation", ());
    let stage = harness.state_mut();
    (stage.recording, stage.selection, stage.matches) = (next.recording, next.selection, next.matches);
    settle(&mut harness);
    assert_eq!(csv(&harness)[0][0], "category");
}

#[test]
fn advice_shows_its_blocks_and_the_peak_that_it_would_leave() {
    let mut harness = harness(STEP);
    let advice: Vec<String> =
        harness.state().view.explained().unwrap().explanation.advice.iter().map(|one| one.text.clone()).collect();
    assert_eq!(advice.len(), 3);
    for text in &advice {
        harness.get_by_label(text);
    }
    assert!(advice[2].contains("optimizer state"), "it is needed: {advice:?}");
    harness.get_by_label("of the peak; 5.87 KiB without it");
    assert_eq!(harness.get_all_by_label_contains("−1.95 KiB").count(), 2, "no saving is promised of it");
    let number = advice.iter().position(|text| text.contains("fused optimizer")).unwrap() + 1;
    press(&mut harness, &format!("Only these blocks: advice {number}"));
    assert_eq!(last_wish(&harness), Some(Action::Only("category=temporary phase=optimizer".to_owned())));
    press(&mut harness, &format!("Go to the peak without it: advice {number}"));
    // After the optimizer's state is made: the gradients are still there.
    assert_eq!(last_wish(&harness), Some(Action::Event(Some(16))));
    harness.state_mut().narrow("category=temporary phase=optimizer");
    settle(&mut harness);
    press(&mut harness, &format!("All blocks: advice {number}"));
    assert_eq!(last_wish(&harness), Some(Action::Only(String::new())));
}

#[test]
fn a_state_is_not_called_a_peak() {
    let harness = harness("baseline w 1000 parameter\nbaseline_segment 0x0 209715200 large\n");
    harness.get_by_label("State at the dump 1000 B");
    harness.get_by_label("No advice: no rule applies to this state.");
    harness.get_by_label_contains("Groups of the state: 1 row");
    harness.get_by_label_contains("Composition of the state: ");
    for column in ["At the peak", "Without it", "New peak at"] {
        assert!(harness.query_by_label_contains(column).is_none(), "{column}");
    }
}

#[test]
fn where_nothing_can_be_done_it_says_so_and_an_empty_recording_has_a_peak_of_nothing() {
    let text = harness("alloc w 1000 parameter\nalloc v 10 parameter");
    text.get_by_label("No advice: no rule applies to this peak.");
    assert!(text.query_by_label_contains("Removals").is_none());
    let empty = harness("");
    empty.get_by_label("Peak 0 B");
    empty.get_by_label("Groups of the peak: 0 rows");
    empty.get_by_label("Total of 0 groups: 0 B");
}

#[test]
fn removals_go_down_one_after_another_and_lead_to_the_peaks_that_are_left() {
    let mut harness = harness(STEP);
    harness.get_by_label("Removals: 3 rows");
    for column in ["Then without", "Peak left"] {
        harness.get_by_role_and_label(Role::ColumnHeader, column);
    }
    let steps: Vec<String> = rows(&harness).into_iter().filter(|row| row.matches(" · ").count() == 3).collect();
    assert_eq!(steps[0], "nothing, as recorded ·  · 7.82 KiB · step 0, optimizer");
    assert_eq!(steps[1], "gradient from backward · 1.95 KiB · 5.87 KiB · step 0, optimizer");
    assert_eq!(steps[2], "temporary from optimizer · 1.95 KiB · 3.92 KiB · step 0, optimizer");
    harness.get_by_label(&steps[1]).click();
    settle(&mut harness);
    assert!(harness.state().actions.is_empty(), "a click in the middle of a row chooses it");
    harness.key_press(Button::Enter);
    settle(&mut harness);
    assert_eq!(last_wish(&harness), Some(Action::Event(Some(18))));
}

#[test]
fn a_group_shows_what_would_be_left_without_it_and_a_click_on_where_goes_there() {
    let mut harness = harness(STEP);
    let told = rows(&harness);
    let gradients = "gradient · backward · 1.95 KiB · 25% · 2 · 5.87 KiB · 1.95 KiB · step 0, optimizer, event 18";
    assert!(told.iter().any(|row| row == gradients), "{told:?}");
    let row = harness.get_by_label(gradients).rect();
    let at = pos2(row.right() - 40.0, row.center().y);
    harness.hover_at(at);
    harness.drag_at(at);
    harness.drop_at(at);
    settle(&mut harness);
    assert_eq!(last_wish(&harness), Some(Action::Event(Some(18))));
    // The choice by it can be looked for.
    press(&mut harness, "Only these");
    assert_eq!(last_wish(&harness), Some(Action::Where("category=gradient phase=backward".to_owned())));
    press(&mut harness, "Go to the peak without it");
    assert_eq!(last_wish(&harness), Some(Action::Event(Some(18))));
}

#[test]
fn groups_are_sorted_by_any_figure_and_written_in_that_order_with_their_sum() {
    let mut harness = harness(STEP);
    let written = csv(&harness);
    assert_eq!(
        written[0].join(","),
        "category,phase,bytes_at_peak,blocks_at_peak,peak_without,saved_bytes,new_peak_step,new_peak_phase,new_peak_event"
    );
    let sum: u64 = written[1..written.len() - 1].iter().map(|line| line[2].parse::<u64>().unwrap()).sum();
    let total = written.last().unwrap();
    assert_eq!((total[0].as_str(), total[2].as_str(), sum), ("total", "8010", 8010));
    assert!(written.iter().any(|line| line[0] == "gradient" && line[2..6] == ["2000", "2", "6010", "2000"]));
    press(&mut harness, "Sort Groups of the peak by Saves");
    press(&mut harness, "Sort Groups of the peak by Saves (largest first)");
    let smallest = csv(&harness);
    assert_eq!(smallest[1][..3], ["input", "forward", "10"], "what saves least comes first");
    assert!(rows(&harness).iter().any(|row| row.starts_with("input · forward · 10 B")));
}

#[test]
fn other_keys_make_other_groups_and_numbers_are_sorted_as_numbers() {
    let mut harness = harness(&STEP.replace("alloc w1 1000", "alloc w1 20000"));
    press(&mut harness, "Explain by category");
    press(&mut harness, "size");
    press(&mut harness, "Explain also by phase");
    press(&mut harness, "no second key");
    assert_eq!(csv(&harness)[0][0], "size");
    press(&mut harness, "Sort Groups of the peak by Size");
    let sizes: Vec<String> = csv(&harness).into_iter().skip(1).map(|line| line[0].clone()).collect();
    assert_eq!(sizes, ["20000 B", "1000 B", "10 B", "total"]);
}

#[test]
fn conditions_narrow_the_groups_and_show_the_peak_without_all_their_blocks() {
    let mut harness = harness(STEP);
    harness.state_mut().narrow("category=optimizer_state,temporary scope=blocks.0");
    settle(&mut harness);
    harness.get_by_label(
        "Of the peak, 1.95 KiB (25%) are in blocks that meet the conditions. Without all such blocks the peak would be \
         5.87 KiB, 1.95 KiB less: step 0, optimizer, event 18.",
    );
    let total = csv(&harness).pop().unwrap();
    assert_eq!((total[0].as_str(), total[2].as_str()), ("total", "2000"));
    harness.get_by_label("Peak 7.82 KiB");
    press(&mut harness, "Go to the peak without such blocks");
    assert_eq!(last_wish(&harness), Some(Action::Event(Some(18))));
}

#[test]
fn of_a_total_that_is_no_sum_over_blocks_the_active_memory_is_explained() {
    let mut harness = harness(STEP);
    let recording = Arc::clone(&harness.state().recording);
    harness.state_mut().selection.set_metric(&recording, Metric::Reserved);
    settle(&mut harness);
    harness.get_by_label("(reserved is not a sum over blocks; the peak of active is explained instead)");
    harness.get_by_label("active, step 0, optimizer, event 18");
}

#[test]
fn a_narrow_view_shows_all_of_it_one_below_the_other() {
    let mut harness = harness_of(STEP, Vec2::new(520.0, 1400.0));
    let bottom = |harness: &Harness<'_, Play>, label: &str| harness.get_by_label_contains(label).rect().bottom();
    let order = ["Peak 7.82 KiB", "Composition of the peak", "Removals: ", "Groups of the peak: ", "Total of "];
    let places: Vec<f32> = order.iter().map(|label| bottom(&harness, label)).collect();
    assert!(places.is_sorted(), "{places:?}");
    harness.set_size(Vec2::new(520.0, 200.0));
    settle(&mut harness);
    harness.get_by_label("Peak 7.82 KiB");
}

#[test]
fn what_is_asked_while_another_question_is_open_gets_the_only_answer() {
    let mut harness = harness(STEP);
    for filter in ["category=gradient", "category=temporary", "category=parameter"] {
        harness.state_mut().narrow(filter);
        harness.run_steps(1);
    }
    settle(&mut harness);
    let view = &harness.state().view;
    assert_eq!(view.query.answered().unwrap().filter, "category=parameter".parse().unwrap());
    let shown = view.explained().unwrap();
    assert_eq!(shown.rows.iter().map(|row| row.names[0].as_str()).collect::<Vec<_>>(), ["parameter"]);
}

#[test]
fn a_recording_that_is_let_go_of_is_not_kept_and_nothing_is_stated_of_it() {
    let mut harness = harness(STEP);
    let former = Arc::downgrade(&harness.state().recording);
    let next = ViewHarness::new("alloc a 1", ());
    let stage = harness.state_mut();
    (stage.recording, stage.selection, stage.matches) = (next.recording, next.selection, next.matches);
    assert_eq!(former.strong_count(), 0);
    harness.run_steps(1);
    assert!(harness.query_by_label("Peak 7.82 KiB").is_none());
    settle(&mut harness);
    harness.get_by_label("Peak 1 B");
}
