//! Tests of the sheets, driven by pointer and keyboard, and of their figures.

use eframe::egui::{Key as Button, Role, Vec2};
use egui_kittest::Harness;
use egui_kittest::kittest::{NodeT as _, Queryable as _};

use super::*;
use crate::gui::tests::ViewHarness;
use crate::gui::widgets::Computed as _;

const LEAKING: &str = "
    baseline w 400/512 parameter @net
    step 0
    phase forward
    alloc a0 3000/3072 activation @net.fc
    alloc k0 10/512 buffer @net.cache
    free a0
    step 1
    alloc a1 3000/3072 activation @net.fc
    alloc k1 10/512 buffer @net.cache
    free a1
    step 2
    alloc a2 3000/3072 activation @net.fc
    alloc k2 20/512 buffer @net.cache
    free a2
    free_requested z
";

type Play = ViewHarness<StatisticsView>;

fn harness(text: &str) -> Harness<'static, Play> {
    let mut harness = Harness::builder().with_size(Vec2::new(1500.0, 520.0)).build_ui_state(
        |ui, stage: &mut Play| stage.play(|view, context| view.view_ui(ui, context)),
        ViewHarness::new(text, StatisticsView::default()),
    );
    settle(&mut harness);
    harness
}

fn settle(harness: &mut Harness<'_, Play>) {
    harness.run_steps(2);
    harness.state_mut().view.wait();
    harness.run_steps(2);
}

fn show(harness: &mut Harness<'_, Play>, sheet: &str) {
    harness.get_by_label(sheet).click();
    settle(harness);
    let view = &harness.state().view;
    assert_eq!(SHEETS[view.shown].0, sheet);
}

fn rows(harness: &Harness<'_, Play>) -> Vec<String> {
    harness.query_all_by_role(Role::Row).filter_map(|node| node.accesskit_node().label()).collect()
}

fn csv(harness: &Harness<'_, Play>) -> Vec<Vec<String>> {
    let text = harness.state().view.csv().unwrap();
    text.lines().map(|line| line.split(',').map(|cell| cell.trim_matches('"').to_owned()).collect()).collect()
}

#[test]
fn steps_are_reported_with_their_peaks_and_what_they_keep() {
    let mut harness = harness(LEAKING);
    harness.get_by_label("Steps: 3 rows");
    let rows = rows(&harness);
    assert!(
        rows[1]
            .starts_with("1 · 3.34 KiB · +10 B · 10 B · 5 · 4.0 µs · 2 · 2.94 KiB · 1 · 410 B · 420 B · +10 B · 1 ·"),
        "{}",
        rows[1]
    );
    harness.get_by_label_contains("1 · 3.34 KiB · +10 B · 10 B · 5").click();
    settle(&mut harness);
    harness.key_press(Button::Enter);
    settle(&mut harness);
    assert_eq!(harness.state().actions, [Action::Span(7..12)]);
    let written = csv(&harness);
    assert_eq!(written[0][..6], ["Step", "Peak", "Change", "Kept", "Events", "Lasted"]);
    assert_eq!(written[2][..8], ["1", "3420", "10", "10", "5", "4000", "2", "3010"]);
}

#[test]
fn what_grows_with_every_step_comes_first_and_can_be_looked_for() {
    let mut harness = harness(LEAKING);
    show(&mut harness, "Kept");
    let rows = rows(&harness);
    assert_eq!(rows, ["net.cache · 40 B · 15 B · 30 B · 3 · 3 · step 0: 10 B, step 1: 10 B, step 2: 20 B"]);
    harness.get_by_label("net.cache leaks 15 B a step: 30 B from 2 steps (1 to 2) is still live.");
    harness.get_by_label_contains("net.cache · 40 B").click();
    settle(&mut harness);
    harness.key_press(Button::Enter);
    settle(&mut harness);
    let Some(Action::Where(condition)) = harness.state().actions.last().cloned() else {
        panic!("it asks for a condition: {:?}", harness.state().actions);
    };
    harness.state_mut().narrow(&condition);
    assert_eq!(harness.state().matches.blocks(), 3, "{condition}");
}

#[test]
fn what_is_kept_is_reported_by_line_where_there_are_stacks() {
    let leaking: String = (0..4).map(|step| format!("step {step}\nalloc k{step} 10/512 < grow\n")).collect();
    let mut harness = harness(&leaking);
    show(&mut harness, "Kept");
    harness.get_by_label("grow leaks 10 B a step: 30 B from 3 steps (1 to 3) is still live.");
    let rows = rows(&harness);
    assert!(rows.len() == 1 && rows[0].starts_with("grow · 40 B · 10 B · 30 B · 4 · 4 ·"), "{rows:?}");
    // Two lines that take turns: the line that calls them leaks.
    let turns: String = (0..4)
        .map(|step| {
            let line = 14 + step % 2;
            format!("step {step}\nalloc k{step} 10/512 < make{line} < grow < main\n")
        })
        .collect();
    let mut turns = self::harness(&turns);
    show(&mut turns, "Kept");
    turns.get_by_label("grow leaks 10 B a step: 30 B from 3 steps (1 to 3) is still live.");
    turns.get_by_label_contains("grow · 40 B · 10 B · 30 B · ");
    let mut empty = self::harness("step 0\nalloc a 10\nfree a");
    show(&mut empty, "Kept");
    empty.get_by_label("Nothing allocated in this recording is live at its end.");
    assert!(empty.query_by_label_contains("Kept: ").is_none(), "no empty table");
}

#[test]
fn without_steps_the_bursts_of_a_server_are_compared() {
    let requests: String =
        (0..5).map(|number| format!("alloc a{number} 900\nfree a{number}\nalloc k{number} 10/512 < grow\n")).collect();
    let mut harness = harness(&format!("baseline w 400/512\n{requests}"));
    show(&mut harness, "Kept");
    harness.get_by_label("grow leaks 10 B a burst: 40 B from 4 bursts (1 to 4) is still live.");
    harness.get_by_label(
        "The recording has too few steps to compare, so bursts between idle moments are compared, as for a server.",
    );
    let rows = rows(&harness);
    assert!(rows.len() == 1 && rows[0].starts_with("grow · 50 B · 10 B · 40 B · 5 · 4 · outside: 10 B, burst 1: 10 B"));
    assert!(csv(&harness)[0].contains(&"Per burst".to_owned()));
}

#[test]
fn every_condition_of_a_row_is_met_by_as_many_blocks_as_the_row_shows() {
    for sheet in ["Sizes", "Freed", "Kept"] {
        for metric in [Metric::Requested, Metric::Active] {
            let mut harness = harness(LEAKING);
            let recording = Arc::clone(&harness.state().recording);
            harness.state_mut().selection.set_metric(&recording, metric);
            settle(&mut harness);
            show(&mut harness, sheet);
            let counted = harness.state().view.query.answer().unwrap();
            let sheet = counted.sheets.iter().find(|other| other.name == sheet).unwrap().clone();
            let column = sheet.columns.iter().position(|column| column.name == "Blocks").unwrap();
            assert!(!sheet.lines.is_empty());
            for line in &sheet.lines {
                let Some(Action::Where(condition)) = &line.action else { panic!("no condition") };
                let filter = condition.parse().unwrap();
                let blocks = Matches::of(&recording.trace, &filter).blocks();
                assert_eq!(line.values[column], crate::report::Value::from(blocks), "{condition}");
            }
        }
    }
}

#[test]
fn conditions_narrow_what_is_counted() {
    let mut harness = harness(LEAKING);
    harness.state_mut().narrow("category=buffer");
    settle(&mut harness);
    harness.get_by_label("only blocks that meet the search conditions");
    show(&mut harness, "Freed");
    let kept = rows(&harness).into_iter().find(|row| row.starts_with("kept to the end")).unwrap();
    assert_eq!(kept, "kept to the end · 3 · 40 B · 3 · 40 B · 100%");
    assert_eq!(rows(&harness).iter().filter(|row| row.contains(" · 0 · 0 B · 0 · 0 B · 0%")).count(), 5);
}

#[test]
fn trust_is_reported_in_words_and_settings_as_facts() {
    let mut harness = harness(LEAKING);
    show(&mut harness, "Recording");
    harness.get_by_label_contains("1 free of blocks whose allocation was not recorded");
    harness.get_by_label_contains("totals and peaks before these frees are lower bounds");
    harness.get_by_label_contains("Rounding at the peak · ");
    harness.get_by_label_contains("Steps · 3 · recording");
    let mut complete = self::harness("alloc a 1");
    show(&mut complete, "Recording");
    complete.get_by_label("Nothing was lost, inferred or guessed: every number is exact.");
}

#[test]
fn an_empty_recording_shows_empty_sheets() {
    let mut harness = harness("");
    for sheet in ["Steps", "Kept", "Sizes", "Freed", "Lifetimes", "Recording"] {
        show(&mut harness, sheet);
    }
}

#[test]
fn a_recording_that_is_let_go_of_is_not_kept() {
    let mut harness = harness(LEAKING);
    let former = Arc::downgrade(&harness.state().recording);
    let text = "alloc a 1";
    let next = ViewHarness::new(text, ());
    let stage = harness.state_mut();
    (stage.recording, stage.selection, stage.matches) = (next.recording, next.selection, next.matches);
    assert_eq!(former.strong_count(), 0);
    settle(&mut harness);
    harness.get_by_label("Steps: 1 row");
}
