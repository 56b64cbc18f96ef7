//! Tests of the first screen, and of opening and closing one or several files, including unreadable ones.

use std::path::Path;

use super::harness::{harness, open, press, run, settle, steps, view, wait_for_files};
use eframe::egui::{Key, Modifiers, Role};
use egui_kittest::kittest::{NodeT as _, Queryable as _};
use highwater_analysis::Metric;
use highwater_app::command::Command;
use highwater_notation::trace_from_text;
use highwater_snapshots::Trace;
use highwater_snapshots::format::write_trace;

#[test]
fn the_welcome_page_says_how_to_begin() {
    let harness = harness(None);
    harness.get_by_label("Open a recording…");
    harness.get_by_label_contains("or drop a file here");
    // With the engine an example can be recorded at once.
    harness.get_by_label(match highwater::record::EXAMPLES {
        [] => "highwater record vit-l-16 --device meta --out step.snap",
        _ => "Record ViT-L/16",
    });
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
    harness.get_by_label("Complete recording");
}

#[test]
fn a_file_that_cannot_be_read_is_explained_and_can_be_dismissed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("letter.txt");
    std::fs::write(&path, "Dear all").unwrap();
    let mut harness = harness(None);
    open(&mut harness, &path);
    harness.get_by_label("Cannot open letter.txt:");
    harness.get_by_label_contains("not a recording");
    harness.get_by_label("Dismiss").click();
    harness.run_steps(2);
    assert!(harness.query_by_label_contains("Cannot open").is_none());
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

#[test]
fn several_devices_can_be_chosen_and_keep_apart() {
    let trace = trace_from_text("alloc a 10\nalloc x 5000 device=1\nalloc b 20").unwrap();
    let mut harness = harness(Some(trace));
    // The device with the highest peak comes first.
    harness.get_by_label("Device device 1");
    harness.get_by_label("Total of 1 group, 1 block");
    harness.get_by_label_contains("unknown · 4.88 KiB · ");
    press(&mut harness, Key::D);
    harness.get_by_label("Device device 0");
    harness.get_by_label("Total of 1 group, 2 blocks");
}

#[test]
fn what_limits_trust_is_stated_in_words() {
    let harness = harness(Some(trace_from_text("alloc a 10\nfree_requested z").unwrap()));
    harness.get_by_label_contains("of blocks whose allocation was not recorded");
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
fn an_empty_recording_shows_an_empty_picture() {
    let mut harness = harness(Some(Trace::default()));
    for &command in Command::ALL {
        let opens_window =
            matches!(command, Command::Open | Command::Quit | Command::Screenshot | Command::Close | Command::Palette);
        if !opens_window && command != Command::Compare {
            run(&mut harness, command);
        }
    }
    run(&mut harness, Command::Compare);
    harness.get_by_label_contains("A 0 B  ·  B 0 B  ·  B − A: 0 B ");
    run(&mut harness, Command::Compare);
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

#[test]
fn without_file_dialogs_a_path_field_opens_and_saves() {
    let folder = tempfile::tempdir().unwrap();
    let (recording, table) = (folder.path().join("a.snap"), folder.path().join("table.csv"));
    let mut bytes = Vec::new();
    write_trace(&mut bytes, &steps()).unwrap();
    std::fs::write(&recording, bytes).unwrap();
    let mut harness = harness(None);
    run(&mut harness, Command::Open);
    let enter = |harness: &mut egui_kittest::Harness<'_, highwater_app::gui::App>, path: &Path| {
        let field = harness.get_by_role_and_label(Role::TextInput, "Path");
        field.type_text(&path.display().to_string());
        harness.run_steps(2);
        harness.key_press(Key::Enter);
        harness.run_steps(3);
    };
    enter(&mut harness, &folder.path().join("missing.snap"));
    harness.get_by_label_contains("missing.snap: no such file; check the path");
    // The field keeps the focus, so that the path can be corrected at once; Tab completes it.
    assert!(harness.get_by_role_and_label(Role::TextInput, "Path").is_focused());
    harness.key_press_modifiers(Modifiers::COMMAND, Key::A);
    harness.run_steps(1);
    let start = folder.path().join("a");
    harness.get_by_role_and_label(Role::TextInput, "Path").type_text(&start.display().to_string());
    harness.run_steps(2);
    harness.key_press(Key::Tab);
    harness.run_steps(2);
    harness.key_press(Key::Enter);
    harness.run_steps(3);
    wait_for_files(&mut harness);
    assert_eq!(harness.state().current().unwrap().recording.name, "a.snap");
    run(&mut harness, Command::SaveTable);
    harness.key_press_modifiers(Modifiers::COMMAND, Key::A);
    harness.run_steps(1);
    enter(&mut harness, &table);
    while harness.query_by_label_contains("Wrote ").is_none() {
        harness.run_steps(1);
        std::thread::yield_now();
    }
    assert!(std::fs::read_to_string(&table).unwrap().contains("optimizer_state"));
}

#[test]
fn the_title_and_the_menu_of_recent_files_name_what_was_opened() {
    let folder = tempfile::tempdir().unwrap();
    let mut harness = harness(None);
    let mut titles = Vec::new();
    for name in ["first.snap", "second.snap"] {
        let path = folder.path().join(name);
        let mut bytes = Vec::new();
        write_trace(&mut bytes, &steps()).unwrap();
        std::fs::write(&path, bytes).unwrap();
        open(&mut harness, &path);
        titles.push(harness.state().title().to_owned());
    }
    assert_eq!(titles, ["first.snap – Highwater", "second.snap – Highwater"]);
    for _ in 0..2 {
        run(&mut harness, Command::Close);
    }
    assert_eq!(harness.state().title(), "Highwater");
    harness.get_by_role_and_label(Role::Button, "File").click();
    harness.run_steps(3);
    harness.get_by_label_contains("Recent files").click();
    harness.run_steps(3);
    harness.get_all_by_role_and_label(Role::Button, "first.snap").next().unwrap().click();
    harness.run_steps(3);
    wait_for_files(&mut harness);
    assert_eq!(harness.state().current().unwrap().recording.name, "first.snap");
}

#[test]
#[cfg(feature = "engine")]
fn the_examples_show_what_their_descriptions_say() {
    use highwater_snapshots::{Category, Phase};
    let folder = tempfile::tempdir().unwrap();
    // The phase of the peak, and the least share of activations in it.
    let expected = [
        ("gpt2", Phase::Forward, 0.5, "the peak is at the end of forward, and most of it is activations"),
        ("vit-l-16", Phase::Optimizer, 0.0, "the peak is in the optimizer step, not in backward"),
        ("tiny-nerf", Phase::Backward, 0.95, "almost all of the peak is activations kept for backward"),
    ];
    assert_eq!(highwater::record::EXAMPLES.len(), expected.len());
    for (example, (name, phase, least, claim)) in highwater::record::EXAMPLES.iter().zip(expected) {
        assert!(example.name == name && example.about.contains(claim), "{}: {}", example.name, example.about);
        let file = folder.path().join("example.snap");
        highwater::record::example(name, &file).unwrap();
        let mut harness = harness(None);
        open(&mut harness, &file);
        let open = harness.state().current().unwrap();
        let (recording, index) = (&open.recording, &open.recording.devices[0]);
        let peak = index.peak(&recording.trace, Metric::Requested);
        assert_eq!(peak.phase, phase, "{name}");
        let blocks = &recording.trace.blocks;
        let live = index.live.before_position(&recording.trace, Metric::Requested, peak.position());
        let activations = live.iter().map(|block| block.0 as usize);
        let activations = activations.filter(|row| blocks.category[*row] == Category::Activation);
        let bytes: u64 = activations.map(|row| blocks.requested[row]).sum();
        assert!(bytes as f64 >= least * peak.bytes as f64, "{name}: {bytes} of {}", peak.bytes);
    }
}

#[test]
fn a_recording_without_events_opens_as_a_state_by_pool_and_line_with_its_segments() {
    let text = "baseline w 4096/4096 parameter < load < main\nbaseline_segment 0x0 2097152\n";
    let harness = harness(Some(trace_from_text(text).unwrap()));
    harness.get_by_label("State at the dump");
    harness.get_by_label("Segments: 1 row");
    harness.get_all_by_label_contains("load").next().unwrap();
    assert!(
        harness.query_by_label_contains("Timeline of").is_none() && harness.query_by_label_contains("Peak").is_none()
    );
    assert!(harness.query_by_label_contains("before the first event").is_none());
    let file = harness.state().current().unwrap();
    for command in [Command::GoToPeak, Command::ZoomIn, Command::NextEvent, Command::ToggleAxis] {
        assert!(!file.can(command), "{command:?}");
        assert_eq!(file.absence(command).as_deref(), Some("The recording is a state without events."));
    }
}

#[test]
fn a_recording_without_times_has_no_axis_of_time() {
    let text = "alloc a 100 t=0us\nfree a t=0us\nalloc b 50 t=0us\n";
    let mut harness = harness(Some(trace_from_text(text).unwrap()));
    assert!(harness.get_by_label("time").accesskit_node().is_disabled());
    run(&mut harness, Command::ToggleAxis);
    let file = harness.state().current().unwrap();
    assert_eq!(file.selection.axis(), highwater_app::selection::Axis::Event);
    assert_eq!(file.absence(Command::ToggleAxis).as_deref(), Some("The recording has no times."));
    assert!(harness.query_by_label_contains("0 ns").is_none());
}

#[test]
fn of_several_files_opened_at_once_the_first_is_in_front() {
    let folder = tempfile::tempdir().unwrap();
    let paths = ["a.snap", "b.snap", "c.snap"].map(|name| folder.path().join(name));
    for path in &paths {
        write_trace(std::fs::File::create(path).unwrap(), &steps()).unwrap();
    }
    let mut harness = harness(None);
    let ctx = harness.ctx.clone();
    harness.state_mut().open_all(&ctx, &paths);
    wait_for_files(&mut harness);
    assert_eq!(harness.state().current().unwrap().recording.name, "a.snap");
}
