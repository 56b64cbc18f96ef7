//! Tests of the command palette, the search box with its completions, and the list of events, in all views.

use super::harness::{harness, place_of, press, run, search, settle, steps, view};
use eframe::egui::{Key, Modifiers, Role};
use egui_kittest::Harness;
use egui_kittest::kittest::{NodeT as _, Queryable as _};
use highwater_app::command::Command;
use highwater_app::gui::App;
use highwater_snapshots::BlockId;

#[test]
fn the_palette_finds_and_runs_commands() {
    let mut harness = harness(Some(steps()));
    let whole = view(&harness);
    harness.key_press_modifiers(Modifiers::COMMAND, Key::P);
    settle(&mut harness);
    assert_eq!(view(&harness), whole, "Ctrl+P is not P");
    harness.get_by_label("Find a command").type_text("peak");
    settle(&mut harness);
    press(&mut harness, Key::Enter);
    assert!(harness.query_by_label("Find a command").is_none());
    assert_ne!(view(&harness), whole);
}

#[test]
fn a_filter_narrows_the_table_and_mistakes_are_explained() {
    let mut harness = harness(Some(steps()));
    harness.get_by_label("Search").click();
    harness.get_by_role_and_label(Role::TextInput, "Search").type_text("colour=red");
    settle(&mut harness);
    harness.get_by_label_contains("unknown key 'colour'");
    for _ in 0.."colour=red".len() {
        harness.key_press(Key::Backspace);
    }
    settle(&mut harness);
    harness.get_by_role_and_label(Role::TextInput, "Search").type_text("category=temporary");
    settle(&mut harness);
    assert!(harness.query_by_label_contains("no key").is_none());
    harness.get_by_label("Total of 1 group, 1 block");
}

#[test]
fn the_search_box_offers_keys_and_values_of_the_recording() {
    let mut harness = harness(Some(steps()));
    search(&mut harness, "cat");
    harness.get_by_label_contains("Complete with category");
    press(&mut harness, Key::Tab);
    let typed = |harness: &Harness<'_, App>| harness.state().current().unwrap().search.text().to_owned();
    assert_eq!(typed(&harness), "category=");
    harness.get_by_role_and_label(Role::TextInput, "Search").type_text("gra");
    settle(&mut harness);
    harness.get_by_label("Complete with gradient").click();
    settle(&mut harness);
    assert_eq!(typed(&harness).trim_end(), "category=gradient");
    harness.get_by_label_contains(" in the recording");
}

#[test]
fn the_list_of_events_follows_the_search_and_leads_to_moments() {
    let mut harness = harness(Some(steps()));
    run(&mut harness, Command::ShowEvents);
    harness.get_by_label_contains("Events: ");
    search(&mut harness, "category=temporary");
    harness.key_press(Key::Escape);
    settle(&mut harness);
    let rows = harness.get_all_by_role(Role::Row);
    let rows: Vec<String> = rows.filter_map(|row| row.accesskit_node().label()).collect();
    let of = |category: &str| rows.iter().filter(|row| row.contains(category)).count();
    assert_eq!((of("activation"), of("gradient")), (0, 0), "{rows:?}");
}

#[test]
fn what_does_not_meet_the_conditions_can_be_hidden_and_comes_back() {
    let mut harness = harness(Some(steps()));
    let at = place_of(&mut harness, BlockId(3), 7);
    search(&mut harness, "category=gradient");
    harness.key_press(Key::Escape);
    settle(&mut harness);
    let stacked = |harness: &mut Harness<'_, App>| {
        let file = harness.state_mut().current_mut().unwrap();
        let stack = file.timeline.stack(&file.recording, &file.selection, 7).unwrap();
        stack.bands.iter().map(|(block, _)| *block).collect::<Vec<_>>()
    };
    let all = stacked(&mut harness);
    assert!(all.len() > 1 && all.contains(&BlockId(3)));
    press(&mut harness, Key::H);
    assert_eq!(stacked(&mut harness), [BlockId(3)], "the gradient has come down to the ground");
    harness.hover_at(at);
    settle(&mut harness);
    assert_eq!(harness.state().current().unwrap().timeline.hover().unwrap().block, None, "where it was is nothing");
    press(&mut harness, Key::H);
    assert_eq!(stacked(&mut harness), all);
}

#[test]
fn what_is_kept_is_one_stroke_away() {
    let mut harness = harness(Some(steps()));
    run(&mut harness, Command::ShowStatistics);
    harness.get_by_label_contains("Steps: ");
    run(&mut harness, Command::ShowKept);
    assert!(harness.query_all_by_label_contains("Kept: ").count() > 0);
    harness.get_by_label_contains("step · 400 B");
}
