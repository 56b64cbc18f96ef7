//! Tests of the block panel, driven through the accessibility tree.

use std::sync::Arc;

use eframe::egui::Vec2;
use egui_kittest::Harness;
use egui_kittest::kittest::Queryable as _;
use highwater_snapshots::trace::SourceText;

use super::*;
use crate::gui::tests::ViewHarness;
use crate::gui::widgets::Computed as _;

const STEPS: &str = "
    baseline w 400/512 parameter @net.fc1 < new < main
    step 0
    phase forward
    alloc a 300/512 activation #linear @net.fc1 < forward < main
    attribute user_metadata \"layer 3\"
    alloc b 300/512 activation #linear @net.fc2 < forward < main
    phase backward
    alloc g 100/512 gradient #linear @net.fc1 < backward < main
    free_requested a < backward < main
    alloc late 50/512
    free_completed a
    free w < drop < main
    step 1
    alloc m 9/512
";

type Play = ViewHarness<(BlockPanel, BlockId)>;

fn harness(text: &str, block: u32) -> Harness<'static, Play> {
    let mut harness = Harness::builder().with_size(Vec2::new(700.0, 900.0)).build_ui_state(
        |ui, stage: &mut Play| stage.play(|(panel, id), context| panel.block_ui(ui, context, *id)),
        ViewHarness::new(text, (BlockPanel::default(), BlockId(block))),
    );
    settle(&mut harness);
    harness
}

fn settle(harness: &mut Harness<'_, Play>) {
    harness.run_steps(2);
    harness.state_mut().view.0.wait();
    harness.run_steps(2);
}

fn fact(harness: &Harness<'_, Play>, name: &str) -> Option<String> {
    let rows = &harness.state().view.0.shown.as_ref().unwrap().facts.rows;
    let told = rows.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone());
    if let Some(told) = &told {
        assert!(harness.query_all_by_label(told).count() > 0, "{name} is shown: {told}");
    }
    told
}

#[test]
fn a_block_shows_when_where_and_how_long_it_lived() {
    let harness = harness(STEPS, 1);
    harness.get_by_label_contains("300 B activation of linear, ");
    let top = |label: &str| harness.get_by_label(label).rect().top();
    assert!(
        top("Allocated by") < top("Requested") && top("Requested") < top("Freed by"),
        "the stack that made it first"
    );
    let told = |name: &str| fact(&harness, name).unwrap_or_else(|| panic!("{name} is told"));
    assert_eq!(told("Requested"), "300 B (300 B)");
    assert_eq!(told("Lost to rounding"), "212 B (41%)");
    assert_eq!(told("Allocated at"), "event 2, 3.0 µs");
    assert_eq!((told("Allocated in"), told("Freed in")), ("step 0 forward".to_owned(), "step 0 backward".to_owned()));
    assert_eq!(told("Live for"), "4 events, 4.0 µs");
    harness.get_by_label_contains("Live for 4 events (4.0 µs), from step 0 forward to step 0 backward");
    assert_eq!(told("Waited for a stream"), "2 events, 2.0 µs");
    assert_eq!(told("Id"), "block 1 of 6");
    assert_eq!(told("Share at the peak"), "27% of 1.07 KiB");
    assert_eq!(told("Largest share"), "27% of 1.07 KiB, event 5");
    assert_eq!(told("user_metadata"), "layer 3");
}

#[test]
fn a_block_shows_when_it_was_used_for_the_last_time() {
    let text = "alloc a 10\nalloc b 10\nused b\nused a\nalloc c 5\nfree b";
    let told = |block| fact(&harness(text, block), "Last used at").unwrap();
    assert_eq!(told(0), "event 3, 4.0 µs; live to the end");
    assert_eq!(told(1), "event 2, 3.0 µs; 3 events, 3.0 µs before it was freed");
    assert_eq!(told(2), "never in the recording");
}

#[test]
fn what_is_not_known_is_stated_to_be_so() {
    assert_eq!(fact(&harness(STEPS, 1), "Last used at").unwrap(), "not recorded");
    let harness = harness(STEPS, 0);
    assert_eq!(fact(&harness, "Allocated at").unwrap(), "before the recording");
    assert_eq!(fact(&harness, "Allocated in"), None);
    assert_eq!(fact(&harness, "Freed in").unwrap(), "step 0 backward");
    let last = self::harness(STEPS, 5);
    assert_eq!(fact(&last, "Share at the peak").unwrap(), "not live then");
    assert_eq!(fact(&last, "Freed at").unwrap(), "not in the recording");
    assert_eq!(last.query_all_by_label("No stack was recorded.").count(), 2);
    let gone = self::harness(STEPS, 99);
    gone.get_by_label("unknown block");
}

#[test]
fn buttons_ask_for_its_life_and_its_moments() {
    let mut harness = harness(STEPS, 1);
    for button in ["Zoom to it", "Go to its allocation", "Go to its free"] {
        harness.get_by_label(button).click();
        settle(&mut harness);
    }
    assert_eq!(harness.state().actions, [Action::Life(BlockId(1)), Action::Moment(3), Action::Moment(7)]);
    let mut baseline = self::harness(STEPS, 0);
    baseline.get_by_label("Go to its allocation").click();
    settle(&mut baseline);
    assert!(baseline.state().actions.is_empty(), "what was made before the recording has no such moment");
}

#[test]
fn other_blocks_of_its_place_are_counted_and_can_be_looked_at_alone() {
    let mut harness = harness(STEPS, 1);
    harness.get_by_label("same call site: 2 blocks, 600 B in all");
    harness.get_by_label("same operation: 3 blocks, 700 B in all");
    harness.get_by_label("same module: 3 blocks, 800 B in all");
    for (button, blocks) in [("call site", 2), ("operation", 3), ("module", 3)] {
        harness.get_by_label(&format!("Only blocks of this {button}")).click();
        settle(&mut harness);
        let Some(Action::Where(condition)) = harness.state().actions.last().cloned() else { panic!("a condition") };
        let matches = Matches::of(&harness.state().recording.trace, &condition.parse().unwrap());
        assert_eq!(matches.blocks(), blocks, "{condition}");
    }
}

const SOURCE: &str = "import torch\n\ndef forward(x):\n    y = torch.relu(x)\n    return y\n";

/// Block 1 with stacks of which each line is line 4 of `path`, in a recording that has `sources`.
fn harness_at_line_4(path: &str, sources: Vec<SourceText>) -> Harness<'static, Play> {
    let mut stage: Play = ViewHarness::new(STEPS, (BlockPanel::default(), BlockId(1)));
    let trace = highwater_snapshots::Trace::clone(&stage.recording.trace).edited(|trace| {
        let file = trace.tables.strings.len() as u32;
        trace.tables.strings.push(path.to_owned());
        for line in &mut trace.tables.lines {
            (line.file, line.line) = (highwater_snapshots::StringId(file), 4);
        }
        trace.header.started_unix_us = 1;
        trace.sources = Arc::new(sources);
    });
    stage.recording = Arc::new(Recording::new("test", None, trace));
    let mut harness = Harness::builder().with_size(Vec2::new(900.0, 1100.0)).build_ui_state(
        |ui, stage: &mut Play| stage.play(|(panel, id), context| panel.block_ui(ui, context, *id)),
        stage,
    );
    settle(&mut harness);
    harness
}

#[test]
fn the_source_of_the_recording_is_shown_rather_than_that_of_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.py");
    std::fs::write(&path, SOURCE.replace("relu", "gelu")).unwrap();
    let path = path.to_str().unwrap().to_owned();
    let of_recording = SourceText { path: path.clone(), text: SOURCE.to_owned() };
    let harness = harness_at_line_4(&path, vec![of_recording]);
    assert_eq!(harness.query_all_by_label(">    4      y = torch.relu(x)").count(), 2);
    assert_eq!(harness.query_all_by_label_contains("changed after the recording").count(), 0);
}

#[test]
fn the_source_is_shown_where_the_file_is_at_hand() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.py");
    std::fs::write(&path, SOURCE).unwrap();
    let mut harness = harness_at_line_4(path.to_str().unwrap(), Vec::new());
    let shown = |harness: &Harness<'_, Play>| harness.query_all_by_label(">    4      y = torch.relu(x)").count();
    assert_eq!(shown(&harness), 2, "once for the alloc and once for the free");
    assert_eq!(harness.query_all_by_label("     3  def forward(x):").count(), 2);
    assert_eq!(harness.query_all_by_label_contains("changed after the recording").count(), 2);
    harness.query_all_by_label("Source of every line").next().unwrap().click();
    settle(&mut harness);
    assert_eq!(shown(&harness), 3);
    std::fs::remove_file(&path).unwrap();
    settle(&mut harness);
    assert_eq!(shown(&harness), 3, "what was read once is remembered");
}
