//! Tests every command by its first key and by its menu entry.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use eframe::egui::{Event, Key, Modifiers, Role};
use egui_kittest::Harness;
use egui_kittest::kittest::{NodeT as _, Queryable as _};
use highwater_app::command::Command;
use highwater_app::gui::{App, keys};
use highwater_app::session::Recording;
use highwater_app::session::run::Run;
use highwater_notation::trace_from_text;
use highwater_snapshots::Trace;
use highwater_snapshots::format::{Windows, write_trace};

use super::effects::{Effect, Stage, effect};
use super::harness::{STEPS, harness, open, run, settle, wait_for_files};
use super::seen::{Seen, asked_for};

/// The names of the menus.
const MENUS: [&str; 6] = ["File", "View", "Colour", "Go", "Find", "Help"];

/// Steps, modules, two failed requests, another stream and another device.
fn rich() -> Trace {
    let more = "
        oom 900 #adam @net.fc1 < step < main
        oom 800
        alloc s 20/512 input stream=7 < load < main
        alloc x 50/512 device=1";
    trace_from_text(&format!("{STEPS}{more}")).unwrap()
}

/// A long recording, of 30 events.
pub(crate) fn long() -> Arc<Run> {
    let text: String = (0..15).map(|n| format!("alloc b{n} {}\nfree_requested b{n}\n", 100 + n)).collect();
    let bytes: Arc<[u8]> = write_trace(Vec::new(), &trace_from_text(&text).unwrap()).unwrap().into();
    let windows = Windows::open(Arc::new(bytes), &mut |_| ControlFlow::Continue(())).unwrap();
    Arc::new(Run::new(windows, Path::new("long.snap")).unwrap())
}

/// A file of the recording with its last `missing` bytes cut off, separate for each test.
fn file(name: &str, missing: usize) -> PathBuf {
    let mut bytes = Vec::new();
    write_trace(&mut bytes, &rich()).unwrap();
    bytes.truncate(bytes.len() - missing);
    let path = [env!("CARGO_TARGET_TMPDIR"), name].iter().collect();
    std::fs::write(&path, bytes).unwrap();
    path
}

/// The app in the state `stage`, after the commands `before`; `name` is that of the test.
fn staged(stage: Stage, before: &[Command], name: &str) -> Harness<'static, App> {
    let mut harness = harness(match stage {
        Stage::One | Stage::Searched | Stage::Three => Some(rich()),
        Stage::File | Stage::Unfinished | Stage::Ranks | Stage::Part => None,
    });
    match stage {
        Stage::One => {}
        Stage::File => open(&mut harness, &file(&format!("{name}.snap"), 0)),
        Stage::Unfinished => open(&mut harness, &file(&format!("{name}.snap"), 400)),
        Stage::Ranks => {
            let folder = file(&format!("{name}-ranks"), 0);
            std::fs::remove_file(&folder).unwrap();
            std::fs::create_dir_all(&folder).unwrap();
            for rank in 0..3 {
                std::fs::rename(file("rank.snap", 0), folder.join(format!("{rank}.snap"))).unwrap();
            }
            open(&mut harness, &folder);
            open(&mut harness, &folder.join("0.snap"));
            std::fs::remove_dir_all(&folder).unwrap();
        }
        Stage::Part => {
            harness.state_mut().open_recording(Recording::part(&long(), 10..20).unwrap());
            settle(&mut harness);
        }
        Stage::Three => {
            let ctx = harness.ctx.clone();
            harness.state_mut().run(&ctx, Command::Close);
            for name in ["first", "second", "third"] {
                harness.state_mut().open_trace(name, rich());
            }
            settle(&mut harness);
        }
        Stage::Searched => {
            let ctx = harness.ctx.clone();
            harness.state_mut().current_mut().unwrap().search_for(&ctx, "category=gradient");
            settle(&mut harness);
        }
    }
    for command in before {
        run(&mut harness, *command);
    }
    harness
}

/// Runs one frame; adds what it copied and asked of the window to `asked`.
fn frame(harness: &mut Harness<'_, App>, asked: &mut Vec<String>) {
    harness.step();
    asked.extend(asked_for(harness));
}

/// Presses the first key of `command`.
fn by_key(harness: &mut Harness<'_, App>, command: Command, asked: &mut Vec<String>) {
    let mut modifiers = Modifiers::NONE;
    let mut parts: Vec<&str> = command.keys()[0].split('+').collect();
    let key = Key::from_name(parts.pop().unwrap()).unwrap();
    for part in parts {
        modifiers |= match part {
            "Ctrl" => Modifiers::COMMAND,
            "Shift" => Modifiers::SHIFT,
            other => panic!("{other} is no modifier of a first key"),
        };
    }
    let event = |pressed| Event::Key { key, pressed, modifiers, repeat: false, physical_key: None };
    for event in [Event::ModifiersChanged(modifiers), event(true), event(false)] {
        harness.event(event);
        frame(harness, asked);
    }
    harness.event(Event::ModifiersChanged(Modifiers::NONE));
    frame(harness, asked);
}

/// The menu entry of `command`.
fn item(command: Command) -> String {
    format!("{} {}", command.name(), keys::shown(command.keys()[0]))
}

/// Opens the menu of `command`. Returns whether the command is enabled there.
fn open_menu(harness: &mut Harness<'_, App>, command: Command) -> bool {
    /// The menu in which the last command was found: most often that of the next one too.
    static LAST: AtomicUsize = AtomicUsize::new(0);
    let name = item(command);
    let last = LAST.load(Ordering::Relaxed);
    for row in (last..MENUS.len()).chain(0..last) {
        harness.get_by_role_and_label(Role::Button, MENUS[row]).click();
        harness.run_steps(3);
        let found = harness.query_all_by_role_and_label(Role::Button, &name);
        let can_choose: Vec<bool> = found.map(|item| !item.accesskit_node().is_disabled()).collect();
        if let [can_choose] = can_choose[..] {
            LAST.store(row, Ordering::Relaxed);
            return can_choose;
        }
        assert!(can_choose.is_empty(), "'{}' is there once", command.name());
        harness.key_press(Key::Escape);
        harness.run_steps(2);
    }
    panic!("'{}' is in no menu", command.name());
}

/// Chooses `command` from its menu.
fn by_menu(harness: &mut Harness<'_, App>, command: Command, asked: &mut Vec<String>) {
    assert!(open_menu(harness, command), "'{}' can be chosen", command.name());
    // A long menu scrolls.
    harness.get_by_role_and_label(Role::Button, &item(command)).scroll_to_me();
    harness.run_steps(6);
    harness.get_by_role_and_label(Role::Button, &item(command)).click();
    frame(harness, asked);
    harness.remove_cursor();
}

type Way = fn(&mut Harness<'_, App>, Command, &mut Vec<String>);

/// Tests every command in one way.
fn try_all(way: &str, take: Way) {
    let mut broken = Vec::new();
    for &command in Command::ALL {
        let Effect(stage, before, is_done) = effect(command);
        let mut harness = staged(stage, before, &format!("{command:?}-by-{way}"));
        assert!(harness.state().can(command), "'{}' makes sense on its stage", command.name());
        let was = Seen::of(&harness, Vec::new());
        assert!(!is_done(&was, &was), "the effect of '{}' is not there before", command.name());
        let mut asked = Vec::new();
        take(&mut harness, command, &mut asked);
        wait_for_files(&mut harness);
        let is = Seen::of(&harness, asked);
        if !is_done(&was, &is) {
            broken.push(format!("'{}' before: {was:#?}\nafter: {is:#?}", command.name()));
        }
    }
    assert!(broken.is_empty(), "by {way}, {} commands do not do what they say:\n{}", broken.len(), broken.join("\n"));
}

#[test]
fn every_command_does_by_its_key_what_it_says() {
    try_all("key", by_key);
}

#[test]
fn every_command_does_from_its_menu_what_it_says() {
    try_all("menu", by_menu);
}

#[test]
fn what_needs_a_recording_cannot_be_chosen_without_one() {
    let mut harness = harness(None);
    for &command in Command::ALL {
        let can = harness.state().can(command);
        assert_eq!(can, !command.needs_recording(), "{command:?}");
        assert_eq!(open_menu(&mut harness, command), can, "{command:?}");
        harness.key_press(Key::Escape);
        harness.run_steps(2);
    }
}

#[test]
fn the_peak_of_a_long_recording_is_gone_to_in_another_part_and_parts_are_chosen_with_the_pointer() {
    let mut harness = harness(None);
    harness.state_mut().open_recording(Recording::part(&long(), 10..20).unwrap());
    settle(&mut harness);
    harness.get_by_label_contains("Timeline of long.snap");
    harness.get_by_label_contains("10 of 30 events");
    run(&mut harness, Command::GoToPeak);
    let file = harness.state().current().unwrap();
    let (moment, _) = file.moment();
    assert_eq!((moment.number(), moment.bytes), (Some(28), 114));
    harness.get_by_label_contains("events 0 to 29 of 30 are shown");
    // The same part again, from the left end of the whole.
    harness.state_mut().open_recording(Recording::part(&long(), 10..20).unwrap());
    settle(&mut harness);
    let whole = harness.get_by_label_contains("The whole recording").rect();
    super::harness::click(&mut harness, whole.left_center() + eframe::egui::vec2(90.0, 0.0));
    harness.get_by_label_contains("events 0 to 9 of 30 are shown");
}

#[test]
fn menus_open_by_alt_and_a_letter_or_f10_and_are_walked_through_with_arrows() {
    let mut harness = harness(Some(rich()));
    harness.key_press(Key::F10);
    harness.run_steps(4);
    assert!(harness.get_by_label_contains("Open… Ctrl+O").is_focused(), "its first entry has the focus");
    harness.key_press(Key::ArrowLeft);
    harness.run_steps(4);
    harness.get_by_label_contains("About Highwater");
    harness.key_press(Key::ArrowRight);
    harness.run_steps(4);
    harness.get_by_label_contains("Open… Ctrl+O");
    harness.key_press(Key::Escape);
    harness.run_steps(4);
    assert!(harness.query_by_label_contains("Open… Ctrl+O").is_none());
    let before = harness.state().current().unwrap().selection.clone();
    harness.key_press_modifiers(Modifiers::ALT, Key::G);
    harness.run_steps(4);
    let entry = harness.get_by_label_contains("Go to the peak");
    assert!(entry.is_focused(), "there is nothing to undo");
    harness.key_press(Key::Enter);
    settle(&mut harness);
    assert_ne!(harness.state().current().unwrap().selection, before, "Enter chooses it");
    assert!(harness.query_by_label_contains("Go to the peak").is_none(), "the menu is closed");
}
