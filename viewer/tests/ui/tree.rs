//! Compares the accessibility tree of whole states of the app with golden files.
//!
//! One line for each node with a role: role, label, value, state. The first screen and a newly opened recording are
//! compared in full, other states only in the areas in which they differ. After an intended change,
//! `UPDATE_EXPECT=1 cargo test -p highwater --test ui tree` updates the golden files; check the diff.

use eframe::egui::accesskit::Toggled;
use eframe::egui::{Role, Vec2};
use egui_kittest::kittest::{NodeT as _, Queryable as _};
use egui_kittest::{Harness, Node};
use expect_test::{ExpectFile, expect_file};
use highwater_app::command::Command;
use highwater_app::gui::App;
use highwater_notation::trace_from_text;
use highwater_snapshots::Trace;

use super::harness::{harness, run, search, settle, steps};

/// The accessibility tree as text, without ids and positions.
fn tree_text(harness: &Harness<'_, App>) -> String {
    let mut text = String::new();
    push(&mut text, harness.root(), 0);
    text
}

fn push(text: &mut String, node: Node<'_>, depth: usize) {
    let about = node.accesskit_node();
    let role = about.role();
    let is_frame = matches!(role, Role::GenericContainer | Role::Unknown | Role::Window) && about.label().is_none();
    if matches!(role, Role::TextRun | Role::ScrollBar) {
        return;
    }
    let mut deeper = depth;
    if !is_frame {
        *text += &format!("{}{role:?}", "  ".repeat(depth));
        // The name of a label is its value.
        if let Some(name) = about.label().or_else(|| about.value()) {
            *text += &format!(" {name:?}");
        }
        if let Some(value) = about.value().filter(|value| about.label().is_some_and(|label| label != *value)) {
            *text += &format!(" = {value:?}");
        }
        let states = [
            (about.toggled() == Some(Toggled::True), "on"),
            (about.is_disabled(), "disabled"),
            (about.is_focused(), "focused"),
        ];
        states.iter().filter(|(is_so, _)| *is_so).for_each(|(_, state)| *text += &format!(" ({state})"));
        text.push('\n');
        deeper += 1;
    }
    for child in node.children() {
        push(text, child, deeper);
    }
}

/// Returns the areas, each from one line without indentation to the next.
fn areas(text: &str) -> Vec<String> {
    let mut areas: Vec<String> = Vec::new();
    for line in text.lines() {
        match areas.last_mut() {
            Some(area) if line.starts_with(' ') => *area += line,
            _ => areas.push(line.to_owned()),
        }
        if let Some(area) = areas.last_mut() {
            area.push('\n');
        }
    }
    areas
}

/// Compares the areas of `trace` that change by `act` after opening with the golden file.
fn check_after(trace: Trace, act: impl FnOnce(&mut Harness<'_, App>), kept: &ExpectFile) {
    let mut harness = harness(Some(trace));
    let before = areas(&tree_text(&harness));
    act(&mut harness);
    let mut after = areas(&tree_text(&harness));
    after.retain(|area| !before.contains(area));
    kept.assert_eq(&after.concat());
}

fn run_all(harness: &mut Harness<'_, App>, commands: &[Command]) {
    commands.iter().for_each(|command| run(harness, *command));
}

#[test]
fn the_first_screen_reads_as_it_did() {
    let kept = match highwater::record::EXAMPLES {
        [] => expect_file!["goldens/first_screen.txt"],
        _ => expect_file!["goldens/first_screen_with_examples.txt"],
    };
    kept.assert_eq(&tree_text(&harness(None)));
}

#[test]
fn a_recording_just_opened_reads_as_it_did() {
    expect_file!["goldens/opened.txt"].assert_eq(&tree_text(&harness(Some(steps()))));
}

#[test]
fn the_segments_below_read_as_they_did() {
    let text = "
        segment_alloc 0x10000000 2097152 small
        segment_alloc 0x0 20971520
        alloc a 8388000/8388608 activation #linear @net < forward < main
        alloc b 4194304 gradient #linear @net < backward < main
        segment_alloc 0x20000000 2097152 stream=7
        free_requested a
        oom 20971520 free=1048576 #matmul @net < forward < main";
    let act = |harness: &mut Harness<'_, App>| {
        harness.set_size(Vec2::new(1200.0, 900.0));
        run_all(harness, &[Command::NextOom, Command::ShowSegments]);
    };
    check_after(trace_from_text(text).unwrap(), act, &expect_file!["goldens/segments.txt"]);
}

#[test]
fn the_events_below_and_a_block_read_as_they_did() {
    let act = |harness: &mut Harness<'_, App>| run_all(harness, &[Command::ShowEvents, Command::LargestBlock]);
    check_after(steps(), act, &expect_file!["goldens/events.txt"]);
}

#[test]
fn the_explanation_below_reads_as_it_did() {
    let act = |harness: &mut Harness<'_, App>| {
        harness.set_size(Vec2::new(1400.0, 900.0));
        run(harness, Command::ShowExplain);
    };
    check_after(steps(), act, &expect_file!["goldens/explain.txt"]);
}

#[test]
fn the_statistics_read_as_they_did() {
    check_after(steps(), |harness| run(harness, Command::ShowStatistics), &expect_file!["goldens/statistics.txt"]);
}

#[test]
fn the_treemap_reads_as_it_did() {
    check_after(steps(), |harness| run(harness, Command::NextLook), &expect_file!["goldens/treemap.txt"]);
}

#[test]
fn the_flame_graph_reads_as_it_did() {
    let act = |harness: &mut Harness<'_, App>| {
        run_all(harness, &[Command::NextLook, Command::NextLook]);
        // By operation, module … to the stack.
        while harness.query_by_label("Group by stack").is_none() {
            run(harness, Command::NextKey);
        }
    };
    check_after(steps(), act, &expect_file!["goldens/flame.txt"]);
}

#[test]
fn the_palette_reads_as_it_did() {
    let act = |harness: &mut Harness<'_, App>| {
        run(harness, Command::Palette);
        harness.get_by_label("Find a command").type_text("peak");
        settle(harness);
    };
    check_after(steps(), act, &expect_file!["goldens/palette.txt"]);
}

#[test]
fn the_search_with_what_it_offers_reads_as_it_did() {
    check_after(steps(), |harness| search(harness, "category=gradient op="), &expect_file!["goldens/search.txt"]);
}
