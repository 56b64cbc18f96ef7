//! Tests of recordings that are too long to be held in memory, of which only parts are shown.

use std::fs::File;
use std::ops::{ControlFlow, Range};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use eframe::egui::{Key, Modifiers, Role, Vec2};
use egui_kittest::Harness;
use egui_kittest::kittest::Queryable as _;
use highwater_app::command::Command;
use highwater_app::gui::{App, Settings};
use highwater_app::selection::Pin;
use highwater_app::session::Recording;
use highwater_app::session::run::Run;
use highwater_notation::trace_from_text;
use highwater_snapshots::event::Event;
use highwater_snapshots::format::{EndFacts, SnapWriter, Windows, write_trace};
use highwater_snapshots::{BlockId, EventId, StackId, Trace};

use super::harness::{chord, harness, open, press, run, settle, view};

/// Twelve steps of ten events each, the last four after a restart.
const STEPS: [u32; 12] = [0, 1, 2, 3, 4, 5, 6, 7, 5, 6, 7, 8];

/// A recording of [`STEPS`].
fn steps() -> Trace {
    let step = |(place, number): (usize, &u32)| {
        let blocks: String = (0..9).map(|block| format!("alloc b{place}_{block} 100\n")).collect();
        format!("step {number}\n{blocks}")
    };
    trace_from_text(&STEPS.iter().enumerate().map(step).collect::<String>()).unwrap()
}

/// The app with the part `events` of a long recording of [`STEPS`].
fn part(events: Range<u64>) -> Harness<'static, App> {
    part_of(&steps(), events)
}

/// The app with the part `events` of `trace` as a long recording.
fn part_of(trace: &Trace, events: Range<u64>) -> Harness<'static, App> {
    let bytes: Arc<[u8]> = write_trace(Vec::new(), trace).unwrap().into();
    let windows = Windows::open(Arc::new(bytes), &mut |_| ControlFlow::Continue(())).unwrap();
    let long = Arc::new(Run::new(windows, Path::new("long.snap")).unwrap());
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
    (0..4).for_each(|_| run(&mut harness, Command::PreviousStep));
    assert_eq!(shown(&harness), (0..30, 0..10));
    let mut harness = part(90..120);
    (0..4).for_each(|_| run(&mut harness, Command::NextStep));
    assert_eq!(shown(&harness), (90..120, 110..120));
}

#[test]
fn a_step_is_gone_to_by_its_number_over_the_whole_recording() {
    let mut harness = part(25..55);
    chord(&mut harness, Modifiers::COMMAND, Key::G);
    harness.get_by_role_and_label(Role::TextInput, "Find a command").type_text("8");
    settle(&mut harness);
    harness.get_by_label_contains("Go to step 8");
    press(&mut harness, Key::Enter);
    assert_eq!(shown(&harness), (90..120, 110..120));
    // Numbers repeat after the restart.
    by_palette(&mut harness, "step 5");
    assert_eq!(shown(&harness), (40..70, 50..60));
    by_palette(&mut harness, "step 5");
    assert_eq!(shown(&harness), (70..100, 80..90));
    by_palette(&mut harness, "step 99");
    wait_for(&mut harness, "This recording has no step 99.");
    assert_eq!(shown(&harness), (70..100, 80..90));
}

#[test]
fn blocks_from_before_a_part_are_not_stated_to_be_from_before_the_recording() {
    let mut harness = part(25..55);
    harness.get_by_label_contains("2.15 KiB live before this part");
    harness.get_by_label("120 events; peak 10.55 KiB requested");
    harness.get_by_label("Timeline below: events 25 to 54");
    harness.get_by_label("At the peak of this part");
    let file = harness.state_mut().current_mut().unwrap();
    file.selection.pin = Some(Pin { block: Some(BlockId(21)), moment: 0 });
    run(&mut harness, Command::ShowBlock);
    harness.get_by_label_contains("Live from step 2 other, event 24 to the end");
    run(&mut harness, Command::ShowMoment);
    harness.get_by_label_contains("before event 25");
    let harness = part(0..30);
    assert!(harness.query_by_label_contains("live before").is_none());
}

#[test]
fn the_whole_recording_is_explained_whichever_part_is_shown() {
    let mut harness = part(25..55);
    run(&mut harness, Command::ShowExplain);
    settle(&mut harness);
    // The peak of the whole is at its end, which is not in this part.
    harness.get_by_label_contains("Peak 10.55 KiB");
    harness.get_by_label("Go to the explained peak").click();
    settle(&mut harness);
    let (events, _) = shown(&harness);
    assert!(events.contains(&119), "{events:?}");
    harness.get_by_label_contains("Peak 10.55 KiB");
}

/// A file that its program is still writing.
struct Growing {
    trace: Trace,
    writer: SnapWriter<File>,
    written: usize,
}

impl Growing {
    fn start(path: &Path) -> Self {
        let trace = steps();
        let writer = SnapWriter::create(path, &trace.header).unwrap();
        Self { trace, writer, written: 0 }
    }

    /// Writes the events up to the one of number `end`.
    fn write(&mut self, end: usize) {
        let event = |row: usize| {
            let (events, what) = (&self.trace.events, self.trace.what(EventId::from_index(row)));
            Event { time_ns: events.time_ns[row], device: events.device[row], stack: StackId::NONE, what }
        };
        let events: Vec<Event> = (self.written..end).map(event).collect();
        self.writer.write_events(&events).unwrap();
        self.written = end;
    }
}

/// The app with the file at `path` open, which shows parts of recordings of more than 30 events.
fn growing(path: &Path) -> Harness<'static, App> {
    let mut app = App::new(Settings::default());
    app.most_resident = Some(30);
    let builder = Harness::builder().with_size(Vec2::new(1000.0, 640.0)).with_max_steps(16);
    let mut harness = builder.build_ui_state(|ui, app: &mut App| app.app_ui(ui), app);
    open(&mut harness, path);
    harness
}

/// Runs frames until the window says `text`.
fn wait_for(harness: &mut Harness<'_, App>, text: &str) {
    while harness.query_by_label_contains(text).is_none() {
        std::thread::sleep(Duration::from_millis(10));
        settle(harness);
    }
}

#[test]
fn a_long_file_is_followed_and_the_view_stays_unless_it_is_at_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("growing.snap");
    let mut file = Growing::start(&path);
    file.write(40);
    let mut harness = growing(&path);
    assert_eq!(shown(&harness), (0..40, 0..40));
    file.write(60);
    wait_for(&mut harness, "events 20 to 59 of 60 are shown");
    assert_eq!(shown(&harness), (20..60, 20..60), "all of a part of the same length, at the end");
    run(&mut harness, Command::NextStep);
    assert_eq!(shown(&harness), (20..60, 30..40));
    file.write(70);
    wait_for(&mut harness, "events 20 to 59 of 70 are shown");
    wait_for(&mut harness, "40 of 70 events");
    assert_eq!(shown(&harness), (20..60, 30..40), "what is looked at stays");
    run(&mut harness, Command::NextPart);
    let last = shown(&harness);
    file.write(80);
    file.writer.finish(&EndFacts::default()).unwrap();
    wait_for(&mut harness, "growing.snap is complete");
    wait_for(&mut harness, "events 40 to 79 of 80 are shown");
    assert_eq!((last, shown(&harness)), ((30..70, 30..70), (40..80, 40..80)));
}

#[test]
fn a_followed_file_that_becomes_too_long_is_shown_in_parts() {
    let folder = tempfile::tempdir().unwrap();
    for (is_zoomed, in_view) in [(false, [0..50, 10..60]), (true, [0..10, 0..10])] {
        let path = folder.path().join(format!("growing-{is_zoomed}.snap"));
        let mut file = Growing::start(&path);
        file.write(20);
        let mut harness = growing(&path);
        if is_zoomed {
            run(&mut harness, Command::NextStep);
            assert_eq!(shown(&harness), (0..20, 0..10));
        }
        file.write(50);
        wait_for(&mut harness, "events 0 to 49 of 50 are shown");
        assert_eq!(shown(&harness), (0..50, in_view[0].clone()));
        file.write(60);
        wait_for(&mut harness, if is_zoomed { "events 0 to 49 of 60" } else { "events 10 to 59 of 60" });
        assert_eq!(shown(&harness).1, in_view[1]);
        run(&mut harness, Command::LargestBlock);
        let was = (shown(&harness), harness.state().current().unwrap().selection.pin);
        file.writer.finish(&EndFacts::default()).unwrap();
        wait_for(&mut harness, "Complete recording");
        assert_eq!((shown(&harness), harness.state().current().unwrap().selection.pin), was);
    }
}

#[test]
fn undo_returns_to_the_part_that_was_shown_before() {
    let mut harness = part(25..55);
    run(&mut harness, Command::NextStep);
    run(&mut harness, Command::NextPart);
    run(&mut harness, Command::LargestBlock);
    let pin = harness.state().current().unwrap().selection.pin;
    run(&mut harness, Command::PreviousPart);
    assert_eq!(shown(&harness), (25..55, 25..55));
    let mut back = Vec::new();
    for command in [Command::Undo, Command::Undo, Command::Undo, Command::Redo, Command::Redo] {
        run(&mut harness, command);
        back.push((shown(&harness), harness.state().current().unwrap().selection.pin));
    }
    let expected = [
        ((55..85, 55..85), pin),
        ((55..85, 55..85), None),
        ((25..55, 30..40), None),
        ((55..85, 55..85), None),
        ((55..85, 55..85), pin),
    ];
    assert_eq!(back, expected);
    assert!(pin.is_some());
}

#[test]
fn failed_requests_are_gone_to_in_other_parts() {
    let failed = [5, 20, 21, 70];
    let event = |n: usize| if failed.contains(&n) { "oom 10\n".to_owned() } else { format!("alloc b{n} 1\n") };
    let trace = trace_from_text(&(0..90).map(event).collect::<String>()).unwrap();
    let mut harness = part_of(&trace, 15..45);
    let mut seen = Vec::new();
    for command in [Command::PreviousOom, Command::PreviousOom, Command::PreviousOom, Command::NextOom] {
        run(&mut harness, command);
        seen.push(harness.state().current().unwrap().moment().0.number());
    }
    assert_eq!(seen, [21, 20, 5, 20].map(Some));
    let mut harness = part_of(&trace, 40..60);
    run(&mut harness, Command::NextOom);
    run(&mut harness, Command::NextOom);
    assert_eq!(harness.state().current().unwrap().moment().0.number(), Some(5), "wraps around at the end");
}
