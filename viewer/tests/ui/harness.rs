//! The app without a window or a graphics card, the recording that most tests open, and helpers to drive it.

use std::path::Path;
use std::sync::Arc;

use eframe::egui::{Event, Key, Modifiers, PointerButton, Pos2, Role, Vec2};
use egui_kittest::Harness;
use egui_kittest::kittest::Queryable as _;
use highwater_app::command::Command;
use highwater_app::example::Examples;
use highwater_app::gui::{App, Computed as _, Dialogs, Paint, Settings, TimelineStyle};
use highwater_app::selection::View;
use highwater_notation::trace_from_text;
use highwater_snapshots::{BlockId, Trace};

/// Two steps over weights of 400 bytes; the optimizer's temporary makes the peak of 1,500 bytes in step 1, at event 21.
pub(crate) const STEPS: &str = "
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

/// [`STEPS`] as a recording.
pub(crate) fn steps() -> Trace {
    trace_from_text(STEPS).unwrap()
}

/// The app with `trace` open.
pub(crate) fn harness(trace: Option<Trace>) -> Harness<'static, App> {
    let examples = Examples {
        list: highwater::record::EXAMPLES,
        record: highwater::record::example,
        rerun: highwater::plan::RERUN,
    };
    let mut app = App::new(Settings::default());
    (app.examples, app.dialogs) = (examples, Dialogs::PathField);
    if let Some(trace) = trace {
        app.open_trace("steps.snap", trace);
    }
    let builder = Harness::builder().with_size(Vec2::new(1000.0, 640.0)).with_max_steps(16);
    let mut harness = builder.build_ui_state(|ui, app: &mut App| app.app_ui(ui), app);
    settle(&mut harness);
    harness
}

/// Runs frames until every requested picture is drawn and shown.
pub(crate) fn settle(harness: &mut Harness<'_, App>) {
    for _ in 0..8 {
        harness.run_steps(2);
        let app = harness.state_mut();
        if let Some(comparison) = app.comparison_mut() {
            if !comparison.is_busy() {
                return;
            }
            comparison.wait();
            continue;
        }
        let Some(file) = app.current_mut() else {
            return;
        };
        if !file.is_busy() {
            return;
        }
        file.wait();
    }
    panic!("the pictures never become complete");
}

/// Presses a key alone.
pub(crate) fn press(harness: &mut Harness<'_, App>, key: Key) {
    harness.key_press(key);
    settle(harness);
}

/// Presses a key with modifiers.
pub(crate) fn chord(harness: &mut Harness<'_, App>, modifiers: Modifiers, key: Key) {
    harness.key_press_modifiers(modifiers, key);
    settle(harness);
}

/// Runs `command` directly.
pub(crate) fn run(harness: &mut Harness<'_, App>, command: Command) {
    let ctx = harness.ctx.clone();
    harness.state_mut().run(&ctx, command);
    settle(harness);
}

/// The centre of `block` on the screen, at the moment after `events` events.
pub(crate) fn place_of(harness: &mut Harness<'_, App>, block: BlockId, events: usize) -> Pos2 {
    let file = harness.state_mut().current_mut().unwrap();
    let stack = file.timeline.stack(&file.recording, &file.selection, events).unwrap();
    let (_, bytes) = stack.bands.iter().find(|(id, _)| *id == block).unwrap();
    let frame = file.timeline.frame().unwrap();
    let x = frame.screen_x(file.selection.middle_of(&file.recording.trace, events));
    Pos2::new(x, frame.screen_y((bytes.start + bytes.end) as f64 / 2.0))
}

/// Clicks a position on the screen.
pub(crate) fn click(harness: &mut Harness<'_, App>, at: Pos2) {
    click_at(harness, at);
    settle(harness);
}

/// The same, whatever is on the screen.
pub(crate) fn click_at<S>(harness: &mut Harness<'_, S>, at: Pos2) {
    harness.hover_at(at);
    harness.run_steps(2);
    harness.drag_at(at);
    harness.run_steps(1);
    harness.drop_at(at);
}

/// Presses the right button at `at`.
pub(crate) fn right_click_at<S>(harness: &mut Harness<'_, S>, at: Pos2) {
    harness.hover_at(at);
    harness.run_steps(2);
    for pressed in [true, false] {
        let (button, modifiers) = (PointerButton::Secondary, Modifiers::NONE);
        harness.event(Event::PointerButton { pos: at, button, pressed, modifiers });
        harness.run_steps(2);
    }
}

/// The default look of a timeline.
pub(crate) fn look() -> TimelineStyle {
    TimelineStyle { paint: Paint::default(), has_overview: true, matches: Arc::default() }
}

/// The visible part.
pub(crate) fn view(harness: &Harness<'_, App>) -> View {
    harness.state().current().unwrap().selection.view().clone()
}

/// The moment of the panels.
pub(crate) fn moment(harness: &Harness<'_, App>) -> usize {
    harness.state().current().unwrap().moment().0.position()
}

/// The pinned block.
pub(crate) fn pinned(harness: &Harness<'_, App>) -> Option<BlockId> {
    harness.state().current().unwrap().selection.pin.and_then(|pin| pin.block)
}

/// Types conditions into the search box, which keeps the focus.
pub(crate) fn search(harness: &mut Harness<'_, App>, text: &str) {
    press(harness, Key::Slash);
    harness.get_by_role_and_label(Role::TextInput, "Search").type_text(text);
    settle(harness);
}

/// Opens a file and waits until it is read.
pub(crate) fn open(harness: &mut Harness<'_, App>, path: &Path) {
    let ctx = harness.ctx.clone();
    harness.state_mut().open(&ctx, path);
    wait_for_files(harness);
}

/// Waits until all files are read.
pub(crate) fn wait_for_files(harness: &mut Harness<'_, App>) {
    while harness.state().is_loading() {
        harness.run_steps(1);
        std::thread::yield_now();
    }
    settle(harness);
}
