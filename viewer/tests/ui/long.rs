//! Tests of recordings that are too long to be held in memory, of which parts are shown.

use std::ops::{ControlFlow, Range};
use std::path::Path;
use std::sync::Arc;

use eframe::egui::{Key, Modifiers, Role};
use egui_kittest::Harness;
use egui_kittest::kittest::Queryable as _;
use highwater_app::command::Command;
use highwater_app::gui::App;
use highwater_app::selection::Pin;
use highwater_app::session::Recording;
use highwater_app::session::run::Run;
use highwater_snapshots::BlockId;
use highwater_snapshots::format::{Windows, write_trace};
use highwater_snapshots::text::trace_from_text;

use super::harness::{chord, harness, press, run, settle, view};

/// Twelve steps of ten events each, the last four after a restart.
const STEPS: [u32; 12] = [0, 1, 2, 3, 4, 5, 6, 7, 5, 6, 7, 8];

/// The app with the part `events` of a long recording of [`STEPS`].
fn part(events: Range<u64>) -> Harness<'static, App> {
    let step = |(place, number): (usize, &u32)| {
        let blocks: String = (0..9).map(|block| format!("alloc b{place}_{block} 100\n")).collect();
        format!("step {number}\n{blocks}")
    };
    let text: String = STEPS.iter().enumerate().map(step).collect();
    let bytes: Arc<[u8]> = write_trace(Vec::new(), &trace_from_text(&text).unwrap()).unwrap().into();
    let windows = Windows::open(Arc::new(bytes), &mut |_| ControlFlow::Continue(())).unwrap();
    let long = Arc::new(Run::new(windows, Path::new("long.snap")));
    let mut harness = harness(None);
    harness.state_mut().open_recording(Recording::part(&long, events).unwrap());
    settle(&mut harness);
    harness
}

/// The events of the part that is shown, and those in view, numbered over the whole recording.
fn shown(harness: &Harness<'_, App>) -> (Range<u64>, Range<u64>) {
    let events = harness.state().current().unwrap().recording.events();
    let x = view(harness).x;
    let [first, end] = [x.start, x.end].map(|x| events.start + (x as u64).saturating_sub(1));
    (events, first..end)
}

/// Goes to a step by the search for commands.
fn by_palette(harness: &mut Harness<'_, App>, text: &str) {
    chord(harness, Modifiers::COMMAND, Key::P);
    harness.get_by_role_and_label(Role::TextInput, "Find a command").type_text(text);
    settle(harness);
    press(harness, Key::Enter);
}

#[test]
fn steps_go_on_in_the_neighbouring_parts() {
    let mut harness = part(25..55);
    let mut seen = Vec::new();
    for command in [Command::NextStep; 5].into_iter().chain([Command::PreviousStep; 3]) {
        run(&mut harness, command);
        seen.push(shown(&harness));
    }
    let expected = [
        (25..55, 30..40),
        (25..55, 40..50),
        // The end of this step is not in the part.
        (40..70, 50..60),
        (40..70, 60..70),
        (60..90, 70..80),
        (60..90, 60..70),
        (40..70, 50..60),
        (40..70, 40..50),
    ];
    assert_eq!(seen, expected);
}

#[test]
fn the_first_and_the_last_step_stay_where_there_are_no_others() {
    let mut harness = part(0..30);
    [Command::PreviousStep; 4].map(|command| run(&mut harness, command));
    assert_eq!(shown(&harness), (0..30, 0..10));
    let mut harness = part(90..120);
    [Command::NextStep; 4].map(|command| run(&mut harness, command));
    assert_eq!(shown(&harness), (90..120, 110..120));
}

#[test]
fn a_step_is_gone_to_by_its_number_over_the_whole_recording() {
    let mut harness = part(25..55);
    chord(&mut harness, Modifiers::COMMAND, Key::G);
    harness.get_by_role_and_label(Role::TextInput, "Step").type_text("eight");
    settle(&mut harness);
    harness.get_by_label("expected an integer");
    press(&mut harness, Key::Escape);
    chord(&mut harness, Modifiers::COMMAND, Key::G);
    harness.get_by_role_and_label(Role::TextInput, "Step").type_text("8");
    settle(&mut harness);
    press(&mut harness, Key::Enter);
    assert_eq!(shown(&harness), (90..120, 110..120));
    // Numbers repeat after the restart.
    by_palette(&mut harness, "step 5");
    assert_eq!(shown(&harness), (40..70, 50..60));
    by_palette(&mut harness, "step 5");
    assert_eq!(shown(&harness), (70..100, 80..90));
    by_palette(&mut harness, "step 99");
    harness.get_by_label("This recording has no step 99.");
    assert_eq!(shown(&harness), (70..100, 80..90));
}

#[test]
fn blocks_from_before_a_part_are_not_said_to_be_from_before_the_recording() {
    let mut harness = part(25..55);
    harness.get_by_label_contains("2.15 KiB live before this part");
    let file = harness.state_mut().current_mut().unwrap();
    file.selection.pin = Some(Pin { block: Some(BlockId(21)), moment: 0 });
    run(&mut harness, Command::ShowBlock);
    harness.get_by_label_contains("Live from step 2 other, event 24 to the end");
    run(&mut harness, Command::ShowMoment);
    harness.get_by_label_contains("before event 25");
    let harness = part(0..30);
    assert!(harness.query_by_label_contains("live before").is_none());
}
