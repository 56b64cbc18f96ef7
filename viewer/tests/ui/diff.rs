//! Tests of comparisons, driven through the accessibility tree and keys.

use std::sync::Arc;

use eframe::egui::{Key, Modifiers, Pos2, Role};
use egui_kittest::Harness;
use egui_kittest::kittest::Queryable as _;
use highwater_analysis::GroupKey;
use highwater_analysis::diff::DiffAt;
use highwater_app::command::Command;
use highwater_app::gui::{App, DiffLook, DiffView};
use highwater_app::selection::View;
use highwater_notation::trace_from_text;
use highwater_snapshots::Trace;

use super::harness::{STEPS, chord, harness, press, run, search, settle};

/// [`STEPS`] with more events before the first step, a larger temporary, and a wrapper around the optimizer.
fn wider() -> Trace {
    let text = STEPS
        .replacen("step 0", "alloc x 16\nalloc y 16\nfree x\nstep 0", 1)
        .replace("alloc t 400/512", "alloc t 700/1024")
        .replace("< step < main", "< step < wrap < main");
    trace_from_text(&text).unwrap()
}

/// Number of events before its steps: a free counts as two.
const EARLIER: usize = 4;

/// The app with the usual recording and, in front, the wider one.
fn both() -> Harness<'static, App> {
    let mut harness = harness(Some(trace_from_text(STEPS).unwrap()));
    harness.state_mut().open_trace("wider.snap", wider());
    settle(&mut harness);
    harness
}

/// The same with the usual recording in front and the wider one as B.
fn compared() -> Harness<'static, App> {
    let mut harness = both();
    run(&mut harness, Command::PreviousFile);
    press(&mut harness, Key::C);
    harness
}

fn comparison<'a>(harness: &'a Harness<'_, App>) -> &'a DiffView {
    harness.state().comparison().expect("a comparison is in front")
}

/// The rows of the current table: cells by column, without headings.
fn rows(harness: &Harness<'_, App>) -> Vec<Vec<String>> {
    let csv = comparison(harness).csv().unwrap();
    let cells = |line: &str| line.split(',').map(|cell| cell.trim_matches('"').to_owned()).collect();
    csv.lines().skip(1).map(cells).collect()
}

/// The bytes in A and B and the difference of each row of the groups, by one key.
fn figures(harness: &Harness<'_, App>) -> Vec<(String, [i64; 3])> {
    let number = |text: &String| text.parse::<i64>().unwrap();
    rows(harness).iter().map(|row| (row[0].clone(), [number(&row[2]), number(&row[3]), number(&row[4])])).collect()
}

#[test]
fn the_file_in_front_is_set_beside_another_by_key_and_by_button_and_one_returns_the_same_way() {
    let mut harness = both();
    press(&mut harness, Key::C);
    harness.get_by_role_and_label(Role::Tab, "wider.snap : steps.snap");
    run(&mut harness, Command::Close);
    run(&mut harness, Command::PreviousFile);
    press(&mut harness, Key::C);
    harness.get_by_role_and_label(Role::Tab, "steps.snap : wider.snap");
    harness.get_by_label("Timeline of steps.snap: requested memory stacked by block");
    harness.get_by_label("Timeline of wider.snap: requested memory stacked by block");
    press(&mut harness, Key::C);
    assert!(harness.state().comparison().is_none());
    harness.get_by_label("At the peak");
    harness.get_by_role_and_label(Role::Button, "Compare C").click();
    settle(&mut harness);
    harness.get_by_role_and_label(Role::Tab, "steps.snap : wider.snap");
    harness.get_by_role_and_label(Role::Tab, "wider.snap").click();
    settle(&mut harness);
    assert!(harness.state().comparison().is_none(), "the tab of a file shows the file");
    harness.get_by_role_and_label(Role::Tab, "steps.snap : wider.snap").click();
    settle(&mut harness);
    assert!(harness.state().comparison().is_some());
}

#[test]
fn the_headline_says_how_far_both_are_apart_and_the_groups_add_up_to_it() {
    let mut harness = compared();
    harness.get_by_label("A 1.46 KiB  ·  B 1.77 KiB  ·  B − A: +316 B requested");
    for _ in 0..GroupKey::ALL.len() {
        let groups = figures(&harness);
        let sum = |column: usize| groups.iter().map(|(_, cells)| cells[column]).sum::<i64>();
        assert_eq!([sum(0), sum(1), sum(2)], [1500, 1816, 316], "{:?}", comparison(&harness).choices.keys);
        press(&mut harness, Key::W);
    }
    let by_category = figures(&harness);
    assert_eq!(by_category[0], ("temporary".to_owned(), [400, 700, 300]));
    assert!(by_category.contains(&("parameter".to_owned(), [400, 400, 0])));
    harness.get_by_label_contains("temporary · grown · 400 B · 700 B · +300 B");
    harness.get_by_label_contains("unknown · only in B · 0 B · 16 B · +16 B");
    harness.get_by_label("By category: rows sum to 1.46 KiB at A, 1.77 KiB at B");
}

#[test]
fn stacks_into_which_a_function_was_put_are_matched_and_stated_to_be_matched_loosely() {
    let mut harness = compared();
    harness.state_mut().comparison_mut().unwrap().choices.keys = vec![GroupKey::Stack];
    settle(&mut harness);
    harness.get_by_label("1 group was matched loosely.");
    harness.get_by_label_contains("calls changed");
}

#[test]
fn conditions_hold_on_both_sides_and_those_that_mean_nothing_say_so() {
    let mut harness = compared();
    search(&mut harness, "category=temporary");
    assert_eq!(figures(&harness), [("temporary".to_owned(), [400, 700, 300])]);
    harness.get_by_label("In blocks that match the search: A 400 B, B 700 B, +300 B");
    press(&mut harness, Key::Escape);
    run(&mut harness, Command::ClearSearch);
    assert_eq!(figures(&harness).len(), 5);
    search(&mut harness, "colour=red ");
    press(&mut harness, Key::Escape);
    harness.get_by_label_contains("unknown key 'colour'");
    assert_eq!(figures(&harness).len(), 5, "the former conditions stay");
}

/// The centre of a timeline's plot, in shares of its width and height.
fn place(harness: &Harness<'_, App>, side: usize, across: f32) -> Pos2 {
    let rect = comparison(harness).timelines()[side].frame().unwrap().rect;
    Pos2::new(rect.left() + rect.width() * across, rect.center().y)
}

/// The moments under both cursors.
fn cursors(harness: &Harness<'_, App>) -> [Option<usize>; 2] {
    comparison(harness).selections().map(|selection| selection.pin.map(|pin| pin.moment))
}

#[test]
fn cursors_go_together_aligned_at_the_start_of_the_compared_step() {
    let mut harness = compared();
    harness.get_by_label_contains("Aligned at the start of step 1; both continue for 9 events.");
    for side in [0, 1] {
        harness.hover_at(place(&harness, side, 0.6));
        harness.run_steps(3);
        settle(&mut harness);
        let hovered = comparison(&harness).timelines()[side].hover().expect("the pointer is on the timeline").moment;
        let expected = if side == 0 { hovered + EARLIER } else { hovered - EARLIER };
        assert_eq!(cursors(&harness)[1 - side], Some(expected));
        harness.get_by_label_contains("At the cursor, requested: A ");
    }
    harness.remove_cursor();
    harness.run_steps(2);
    harness.get_by_label_contains("Move the pointer over either timeline");
}

fn views(harness: &Harness<'_, App>) -> [View; 2] {
    comparison(harness).selections().map(|selection| selection.view().clone())
}

#[test]
fn both_timelines_show_the_same_part_on_the_same_scale_however_they_are_moved() {
    let mut harness = compared();
    let check = |harness: &Harness<'_, App>, what: &str| {
        let [a, b] = views(harness);
        let moved = EARLIER as f64;
        assert_eq!([a.x.start + moved, a.x.end + moved], [b.x.start, b.x.end], "{what}");
        assert_eq!(a.y, b.y, "{what}");
    };
    check(&harness, "at first");
    let whole = views(&harness);
    for command in [
        Command::ZoomIn,
        Command::PanRight,
        Command::ZoomInBytes,
        Command::PanUp,
        Command::GoToPeak,
        Command::ZoomIn,
        Command::ZoomOut,
    ] {
        let before = views(&harness);
        run(&mut harness, command);
        check(&harness, command.name());
        assert_ne!(views(&harness), before, "{}", command.name());
    }
    run(&mut harness, Command::FitAll);
    assert_eq!(views(&harness), whole);
    // By the wheel on either.
    for side in [0, 1] {
        let before = views(&harness);
        harness.hover_at(place(&harness, side, 0.4));
        harness.event(eframe::egui::Event::MouseWheel {
            unit: eframe::egui::MouseWheelUnit::Point,
            delta: eframe::egui::vec2(0.0, 80.0),
            phase: eframe::egui::TouchPhase::Move,
            source: eframe::egui::MouseWheelSource::Wheel,
            modifiers: Modifiers::NONE,
        });
        harness.run_steps(12);
        settle(&mut harness);
        check(&harness, "by the wheel");
        assert!(views(&harness)[0].x.end - views(&harness)[0].x.start < before[0].x.end - before[0].x.start);
    }
    run(&mut harness, Command::ToggleAxis);
    harness.get_by_label_contains("Aligned at the start of step 1; ");
    let [a, b] = views(&harness);
    assert!(((a.x.end - a.x.start) - (b.x.end - b.x.start)).abs() < 1.0);
}

#[test]
fn the_keyboard_alone_goes_through_a_comparison() {
    let mut harness = compared();
    for look in [DiffLook::Flame, DiffLook::Phases, DiffLook::Totals, DiffLook::Settings, DiffLook::Groups] {
        press(&mut harness, Key::V);
        assert_eq!(comparison(&harness).choices.look, look);
        match look {
            DiffLook::Groups => harness.get_by_label("Groups: 5 rows"),
            DiffLook::Flame => harness.get_by_label("Flame graph of the difference by category"),
            DiffLook::Phases => harness.get_by_label_contains("Phases: "),
            DiffLook::Totals => harness.get_by_label("Totals: 3 rows"),
            DiffLook::Settings => harness.get_by_label_contains("Settings: "),
        };
    }
    chord(&mut harness, Modifiers::SHIFT, Key::ArrowRight);
    let [a, b] = cursors(&harness);
    assert_eq!((a, b), (Some(21), Some(21 + EARLIER)), "one event after the peak");
    press(&mut harness, Key::Escape);
    assert_eq!(cursors(&harness), [None, None]);
    // Tab reaches the table, in which arrow keys select a group and Enter filters both sides to it.
    harness.get_by_label("Groups: 5 rows").focus();
    harness.run_steps(1);
    press(&mut harness, Key::ArrowDown);
    press(&mut harness, Key::ArrowDown);
    press(&mut harness, Key::Enter);
    assert_eq!(comparison(&harness).search_text(), "category=unknown");
    press(&mut harness, Key::M);
    harness.get_by_label_contains("B − A: +528 B allocated");
    run(&mut harness, Command::Close);
    assert!(harness.state().comparison().is_none());
    assert_eq!(harness.state().current().unwrap().recording.name, "steps.snap", "the files stay open");
}

#[test]
fn a_chosen_group_keeps_its_colour_in_both_timelines() {
    let mut harness = compared();
    let lit = |harness: &Harness<'_, App>| {
        comparison(harness).timelines().map(|timeline| timeline.picture().unwrap().request.matches.blocks())
    };
    assert_eq!(lit(&harness), [7, 9]);
    harness.get_by_label_contains("temporary · grown").click();
    settle(&mut harness);
    assert_eq!(lit(&harness), [1, 1]);
    press(&mut harness, Key::Escape);
    press(&mut harness, Key::Escape);
    assert_eq!(lit(&harness), [7, 9]);
}

#[test]
fn steps_of_one_recording_are_compared_and_gone_through() {
    // Events after the last step show that the step is complete.
    let mut harness = harness(Some(trace_from_text(&format!("{STEPS}\nphase setup\n")).unwrap()));
    press(&mut harness, Key::C);
    assert_eq!(comparison(&harness).choices.at, [DiffAt::StepEnd(0), DiffAt::StepEnd(1)]);
    harness.get_by_label("A 800 B  ·  B 800 B  ·  B − A: 0 B requested");
    press(&mut harness, Key::PageDown);
    harness.get_by_label("B has no step 2: its steps go from 0 to 1");
    press(&mut harness, Key::PageUp);
    harness.get_by_label("A 800 B  ·  B 800 B  ·  B − A: 0 B requested");
}

#[test]
fn a_comparison_holds_no_recording_whose_file_was_closed() {
    let mut harness = compared();
    let held: Vec<_> = comparison(&harness).timelines().map(|timeline| timeline.picture().unwrap()).to_vec();
    let held: Vec<_> = held.iter().map(|picture| Arc::downgrade(&picture.request.recording)).collect();
    run(&mut harness, Command::Close);
    for _ in 0..2 {
        run(&mut harness, Command::Close);
    }
    let is_held = || held.iter().any(|recording| recording.strong_count() > 0);
    let start = std::time::Instant::now();
    while is_held() && start.elapsed().as_secs() < 20 {
        harness.run_steps(1);
        std::thread::yield_now();
    }
    assert!(!is_held());
}

#[test]
fn sides_are_swapped_and_a_closed_file_ends_the_comparison() {
    let mut harness = compared();
    harness.get_by_role_and_label(Role::Button, "Swap").click();
    settle(&mut harness);
    harness.get_by_label("A 1.77 KiB  ·  B 1.46 KiB  ·  B − A: −316 B requested");
    harness.get_by_role_and_label(Role::Button, "Close steps.snap").click();
    settle(&mut harness);
    assert!(harness.state().comparison().is_none());
    assert_eq!(harness.state().current().unwrap().recording.name, "wider.snap");
}

#[test]
fn the_next_key_is_one_that_a_side_has_and_modules_are_grouped_to_a_depth() {
    let text = "alloc a 500 activation\nalloc b 300 gradient";
    let mut harness = harness(Some(trace_from_text(text).unwrap()));
    harness.state_mut().open_trace("with-modules.snap", trace_from_text(&format!("{text} @net.fc.0")).unwrap());
    settle(&mut harness);
    press(&mut harness, Key::C);
    let mut seen = Vec::new();
    for _ in 0..6 {
        run(&mut harness, Command::NextKey);
        seen.push(comparison(&harness).choices.keys[0].name());
    }
    assert_eq!(seen, ["scope", "size", "stream", "pool", "lifetime", "category"], "neither has the others");
    harness.get_by_label("Group by category").click();
    harness.run_steps(3);
    harness.get_by_label("module, 2 levels (scope:2)").click();
    settle(&mut harness);
    assert_eq!(comparison(&harness).choices.keys, [GroupKey::ScopeTo(2)]);
    assert!(rows(&harness).iter().any(|row| row[0] == "net.fc"), "{:?}", rows(&harness));
}
