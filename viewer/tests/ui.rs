//! The app, driven through its accessibility tree and its keys, without a window or a graphics card.
#![cfg(feature = "gui")]

#[path = "ui/finding.rs"]
mod finding;
#[path = "ui/steering.rs"]
mod steering;

use std::path::Path;

use eframe::egui::{Key, Modifiers, Pos2, Vec2, vec2};
use egui_kittest::Harness;
use egui_kittest::kittest::Queryable as _;
use highwater::command::Command;
use highwater::gui::{App, Settings};
use highwater_snapshots::analysis::Metric;
use highwater_snapshots::format::write_trace;
use highwater_snapshots::text::trace_from_text;
use highwater_snapshots::{BlockId, Category, Trace};

/// Two steps over weights of 400 bytes; the optimizer's temporary makes the peak of 1,500 bytes in step 1, at event 21.
const STEPS: &str = "
    baseline w 400/512 parameter @net.fc1 < new < main
    step 0
    phase forward
    alloc a 300/512 activation #linear @net.fc1 < forward < main
    alloc b 300/512 activation #relu @net.fc2 < forward < main
    phase backward
    alloc g 400/512 gradient #linear @net.fc1 < backward < main
    free b
    free a
    phase optimizer
    alloc m 400/512 optimizer_state #adam @net.fc1 < step < main
    phase zero_grad
    free g
    step 1
    phase forward
    alloc c 300/512 activation #linear @net.fc1 < forward < main
    phase optimizer
    alloc t 400/512 temporary #adam @net.fc1 < step < main
    free t
    free c
";

fn steps() -> Trace {
    trace_from_text(STEPS).unwrap()
}

fn harness(trace: Option<Trace>) -> Harness<'static, App> {
    let mut app = App::new(Settings::default());
    if let Some(trace) = trace {
        app.open_trace("steps.snap", trace);
    }
    let builder = Harness::builder().with_size(Vec2::new(1000.0, 640.0)).with_max_steps(16);
    let mut harness = builder.build_ui_state(|ui, app: &mut App| app.app_ui(ui), app);
    settle(&mut harness);
    harness
}

/// Runs frames until every picture that they ask for has been drawn and shown.
fn settle(harness: &mut Harness<'_, App>) {
    for _ in 0..8 {
        harness.run_steps(2);
        let ctx = harness.ctx.clone();
        let Some(file) = harness.state_mut().current_mut() else {
            return;
        };
        if !file.is_busy() {
            return;
        }
        file.wait(&ctx);
    }
    panic!("the pictures never become complete");
}

fn press(harness: &mut Harness<'_, App>, key: Key) {
    harness.key_press(key);
    settle(harness);
}

fn run(harness: &mut Harness<'_, App>, command: Command) {
    let ctx = harness.ctx.clone();
    harness.state_mut().run(&ctx, command);
    settle(harness);
}

/// The middle of `block` on the screen, at the moment after `events` events.
fn place_of(harness: &mut Harness<'_, App>, block: BlockId, events: usize) -> Pos2 {
    let file = harness.state_mut().current_mut().unwrap();
    let stack = file.timeline.stack(&file.recording, &file.selection, events).unwrap();
    let (_, bytes) = stack.bands.iter().find(|(id, _)| *id == block).unwrap();
    let frame = file.timeline.frame().unwrap();
    let x = frame.screen_x(file.selection.middle_of(&file.recording.trace, events));
    Pos2::new(x, frame.screen_y((bytes.start + bytes.end) as f64 / 2.0))
}

fn click(harness: &mut Harness<'_, App>, at: Pos2) {
    harness.hover_at(at);
    harness.run_steps(2);
    harness.drag_at(at);
    harness.run_steps(1);
    harness.drop_at(at);
    settle(harness);
}

fn view(harness: &Harness<'_, App>) -> highwater::selection::View {
    harness.state().current().unwrap().selection.view().clone()
}

#[test]
fn the_welcome_page_says_how_to_begin() {
    let harness = harness(None);
    harness.get_by_label("Open a recording…");
    harness.get_by_label_contains("or drop a file here");
    harness.get_by_label("highwater record vit-l-16 --device meta --out step.snap");
}

#[test]
fn a_recording_opens_with_the_peak_taken_apart() {
    let harness = harness(Some(steps()));
    harness.get_by_label_contains("Timeline of steps.snap: requested memory stacked by block");
    harness.get_by_label("At the peak");
    assert_eq!(harness.get_all_by_label("1.46 KiB").count(), 2, "once as the headline, once as the table's total");
    harness.get_by_label_contains("parameter · 400 B · ");
    harness.get_by_label_contains("temporary · 400 B · ");
    harness.get_by_label_contains("optimizer_state · 400 B · ");
    harness.get_by_label_contains("activation · 300 B · ");
    harness.get_by_label("Total of 4 groups, 4 blocks");
    harness.get_by_label("complete recording");
}

#[test]
fn one_key_centres_the_peak_and_another_shows_everything_again() {
    let mut harness = harness(Some(steps()));
    let whole = view(&harness);
    press(&mut harness, Key::P);
    let file = harness.state().current().unwrap();
    let peak = file.recording.devices[0].peak(&file.recording.trace, Metric::Requested);
    assert_eq!((peak.bytes, peak.step), (1500, Some(1)));
    let shown = view(&harness);
    let middle = (shown.x.start + shown.x.end) / 2.0;
    assert!((middle - (peak.position() as f64 + 0.5)).abs() < 1e-9, "{shown:?}");
    assert!(shown.x.end - shown.x.start < whole.x.end - whole.x.start);
    assert!(shown.y.contains(&1500.0));
    press(&mut harness, Key::F);
    assert_eq!(view(&harness), whole);
    press(&mut harness, Key::Backspace);
    assert_eq!(view(&harness), shown, "Back returns to the peak");
}

#[test]
fn a_click_pins_the_block_that_the_picture_shows_there() {
    let mut harness = harness(Some(steps()));
    let block = BlockId(3);
    let at = place_of(&mut harness, block, 7);
    click(&mut harness, at);
    let file = harness.state().current().unwrap();
    let pin = file.selection.pin.unwrap();
    assert_eq!((pin.block, pin.moment), (Some(block), 7));
    assert_eq!(file.recording.trace.blocks.get(block).category, Category::Gradient);
    harness.get_by_label("gradient of linear");
    harness.get_by_label("400 B (400 B)");
    harness.get_by_label("backward");
    harness.remove_cursor();
    settle(&mut harness);
    run(&mut harness, Command::ShowMoment);
    harness.get_by_label("At the pinned moment");
    press(&mut harness, Key::Escape);
    assert_eq!(harness.state().current().unwrap().selection.pin, None);
    harness.get_by_label("At the peak");
}

#[test]
fn the_pointer_shows_its_moment_in_the_table() {
    let mut harness = harness(Some(steps()));
    let at = place_of(&mut harness, BlockId(1), 4);
    harness.hover_at(at);
    settle(&mut harness);
    harness.get_by_label("Under the pointer");
    harness.get_by_label_contains("parameter · 400 B · ");
    harness.get_by_label_contains("activation · 600 B · ");
    harness.get_by_label("Total of 2 groups, 3 blocks");
}

#[test]
fn colours_change_what_the_legend_lists() {
    let mut harness = harness(Some(steps()));
    harness.get_by_label("parameter 27%");
    harness.get_by_label("temporary 27%");
    press(&mut harness, Key::Num2);
    assert!(harness.query_by_label("parameter 27%").is_none());
    harness.get_by_label("net 100%");
    press(&mut harness, Key::Period);
    harness.get_by_label("net.fc1 100%");
    harness.get_by_label("net.fc2 0%");
    press(&mut harness, Key::Num3);
    harness.get_by_label("adam 53%");
    harness.get_by_label("linear 20%");
}

#[test]
fn the_axis_and_the_total_follow_their_keys() {
    let mut harness = harness(Some(steps()));
    let by_event = view(&harness).x;
    assert_eq!(by_event, 0.0..steps().events.len() as f64 + 1.0);
    press(&mut harness, Key::T);
    let by_time = view(&harness).x;
    assert!(by_time.end > 1000.0 * (by_event.end - 2.0), "events are a microsecond apart: {by_time:?}");
    press(&mut harness, Key::T);
    assert_eq!(view(&harness).x, by_event);
    press(&mut harness, Key::M);
    harness.get_by_label_contains("allocated · step 0, backward");
    harness.get_by_label("allocated 2 KiB");
}

#[test]
fn arrows_plus_minus_and_the_wheel_move_the_view() {
    let mut harness = harness(Some(steps()));
    let whole = view(&harness);
    press(&mut harness, Key::Plus);
    let half = view(&harness);
    assert!((half.x.end - half.x.start - (whole.x.end - whole.x.start) / 2.0).abs() < 1e-9);
    press(&mut harness, Key::ArrowRight);
    let moved = view(&harness);
    assert!(moved.x.start > half.x.start && moved.x.end - moved.x.start == half.x.end - half.x.start);
    press(&mut harness, Key::Minus);
    press(&mut harness, Key::Minus);
    assert_eq!(view(&harness).x, whole.x, "never more than everything");
    let at = place_of(&mut harness, BlockId(0), 10);
    harness.hover_at(at);
    harness.run_steps(2);
    let unit = eframe::egui::MouseWheelUnit::Point;
    let phase = eframe::egui::TouchPhase::Move;
    harness.event(eframe::egui::Event::MouseWheel {
        unit,
        phase,
        delta: vec2(0.0, 100.0),
        source: eframe::egui::MouseWheelSource::Wheel,
        modifiers: Modifiers::NONE,
    });
    harness.run_steps(8);
    settle(&mut harness);
    let zoomed = view(&harness);
    assert!(zoomed.x.end - zoomed.x.start < whole.x.end - whole.x.start, "{zoomed:?}");
    let file = harness.state().current().unwrap();
    let under = file.timeline.frame().unwrap().x_at(at.x);
    assert!((under - 10.5).abs() < 0.05, "what was under the pointer stays there: {under}");
}

#[test]
fn steps_are_one_key_apart() {
    let mut harness = harness(Some(steps()));
    press(&mut harness, Key::PageUp);
    let first = view(&harness).x;
    press(&mut harness, Key::PageDown);
    let second = view(&harness).x;
    assert_eq!((first.start, first.end), (0.0, second.start));
    press(&mut harness, Key::PageDown);
    assert_eq!(view(&harness).x, second, "there is no third step");
}

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
    harness.get_by_role_and_label(eframe::egui::Role::TextInput, "Search").type_text("colour=red");
    settle(&mut harness);
    harness.get_by_label_contains("no key 'colour'");
    for _ in 0.."colour=red".len() {
        harness.key_press(Key::Backspace);
    }
    settle(&mut harness);
    harness.get_by_role_and_label(eframe::egui::Role::TextInput, "Search").type_text("category=temporary");
    settle(&mut harness);
    assert!(harness.query_by_label_contains("no key").is_none());
    harness.get_by_label("Total of 1 group, 1 block");
}

#[test]
fn a_file_that_cannot_be_read_is_explained_and_can_be_dismissed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("letter.txt");
    std::fs::write(&path, "Dear all").unwrap();
    let mut harness = harness(None);
    open(&mut harness, &path);
    harness.get_by_label("Cannot open letter.txt:");
    harness.get_by_label_contains("no recording");
    harness.get_by_label("Dismiss").click();
    harness.run_steps(2);
    assert!(harness.query_by_label_contains("Cannot open").is_none());
}

#[test]
fn files_open_side_by_side_and_are_remembered() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk.snap");
    write_trace(std::fs::File::create(&path).unwrap(), &steps()).unwrap();
    let mut harness = harness(Some(steps()));
    open(&mut harness, &path);
    assert_eq!(harness.state().current().unwrap().recording.path.as_deref(), Some(path.as_path()));
    assert_eq!(harness.state().settings().recent, [path]);
    run(&mut harness, Command::Close);
    assert_eq!(harness.state().current().unwrap().recording.name, "steps.snap");
    run(&mut harness, Command::Close);
    assert!(harness.state().current().is_none());
    harness.get_by_label("disk.snap");
}

fn open(harness: &mut Harness<'_, App>, path: &Path) {
    let ctx = harness.ctx.clone();
    harness.state_mut().open(&ctx, path);
    wait_for_files(harness);
}

fn wait_for_files(harness: &mut Harness<'_, App>) {
    while harness.state().is_loading() {
        harness.run_steps(1);
        std::thread::yield_now();
    }
    settle(harness);
}

#[test]
fn several_devices_can_be_chosen_and_keep_apart() {
    let trace = trace_from_text("alloc a 10\nalloc x 5000 device=1\nalloc b 20").unwrap();
    let mut harness = harness(Some(trace));
    harness.get_by_label("Total of 1 group, 2 blocks");
    press(&mut harness, Key::D);
    harness.get_by_label("Device device 1");
    harness.get_by_label("Total of 1 group, 1 block");
    harness.get_by_label_contains("unknown · 4.88 KiB · ");
}

#[test]
fn what_limits_trust_is_said_in_words() {
    let harness = harness(Some(trace_from_text("alloc a 10\nfree_requested z").unwrap()));
    harness.get_by_label_contains("frees name blocks that the recording does not know");
}

#[test]
fn a_block_that_waits_for_a_stream_in_a_recording_without_events_is_explained() {
    let mut harness = harness(Some(trace_from_text("baseline w 100 waiting").unwrap()));
    press(&mut harness, Key::M);
    press(&mut harness, Key::M);
    assert_eq!(harness.state().current().unwrap().selection.metric, Metric::Active);
    let at = place_of(&mut harness, BlockId(0), 0);
    harness.hover_at(at);
    settle(&mut harness);
    harness.get_by_label("freed before the recording, waiting for a stream");
    click(&mut harness, at);
    harness.remove_cursor();
    settle(&mut harness);
    harness.get_by_label("freed before the recording, waiting for a stream");
    assert_eq!(harness.get_all_by_label("before the recording").count(), 2, "allocated and freed");
    press(&mut harness, Key::B);
}

#[test]
fn a_file_read_again_stays_behind_and_keeps_its_total() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk.snap");
    write_trace(std::fs::File::create(&path).unwrap(), &steps()).unwrap();
    let mut harness = harness(None);
    open(&mut harness, &path);
    press(&mut harness, Key::M);
    press(&mut harness, Key::T);
    let before = view(&harness);
    run(&mut harness, Command::Reload);
    harness.state_mut().open_trace("other", steps());
    wait_for_files(&mut harness);
    assert_eq!(harness.state().current().unwrap().recording.name, "other");
    open(&mut harness, &path);
    let file = harness.state().current().unwrap();
    assert_eq!((file.recording.name.as_str(), file.selection.metric), ("disk.snap", Metric::Allocated));
    assert_eq!(view(&harness), before);
}

#[test]
fn a_file_that_fails_twice_is_listed_once() {
    let mut harness = harness(None);
    for _ in 0..2 {
        open(&mut harness, Path::new("gone.snap"));
    }
    harness.get_by_label("Cannot open gone.snap:");
}

#[test]
fn an_empty_recording_shows_an_empty_picture() {
    let mut harness = harness(Some(Trace::default()));
    for &command in Command::ALL {
        let opens_window =
            matches!(command, Command::Open | Command::Quit | Command::Screenshot | Command::Close | Command::Palette);
        if !opens_window {
            run(&mut harness, command);
        }
    }
    // From the treemap on to the flame graph and back to the table.
    run(&mut harness, Command::NextLook);
    run(&mut harness, Command::NextLook);
    harness.get_by_label("Total of 0 groups, 0 blocks");
}

#[test]
fn a_closed_recording_is_let_go_by_every_thread() {
    let mut harness = harness(Some(steps()));
    harness.state_mut().open_trace("other.snap", steps());
    settle(&mut harness);
    // Ask for one more picture that is still being drawn when the file goes.
    press(&mut harness, Key::Num3);
    let held = std::sync::Arc::downgrade(&harness.state().current().unwrap().recording);
    let ctx = harness.ctx.clone();
    harness.state_mut().run(&ctx, Command::ZoomIn);
    harness.run_steps(1);
    run(&mut harness, Command::Close);
    let begun = std::time::Instant::now();
    while held.strong_count() > 0 {
        assert!(begun.elapsed().as_secs() < 60, "something holds the closed recording");
        harness.run_steps(1);
        std::thread::yield_now();
    }
    assert_eq!(harness.state().current().unwrap().recording.name, "steps.snap");
}
