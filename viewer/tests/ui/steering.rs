//! Tests of moments, peaks, marks, blocks, search and undo, by keyboard alone.

use super::harness::{chord, harness, moment, pinned, press, run, settle, steps, view};
use eframe::egui::{Key, Modifiers, Pos2, Role};
use egui_kittest::kittest::{NodeT as _, Queryable as _};
use highwater_analysis::Metric;
use highwater_app::command::Command;
use highwater_app::gui::{Bottom, Side};
use highwater_notation::trace_from_text;
use highwater_snapshots::tables::Module;
use highwater_snapshots::{BlockId, ModuleId, StringId};

#[test]
fn keys_lead_from_peak_to_peak_and_from_event_to_event() {
    let mut harness = harness(Some(steps()));
    press(&mut harness, Key::Home);
    run(&mut harness, Command::PreviousPeak);
    let first = moment(&harness);
    press(&mut harness, Key::N);
    let second = moment(&harness);
    assert!(first < second, "{first} {second}");
    chord(&mut harness, Modifiers::SHIFT, Key::N);
    assert_eq!(moment(&harness), first);
    chord(&mut harness, Modifiers::SHIFT, Key::ArrowRight);
    assert_eq!(moment(&harness), first + 1);
    chord(&mut harness, Modifiers::SHIFT, Key::ArrowLeft);
    assert_eq!(moment(&harness), first);
    press(&mut harness, Key::Escape);
    assert_eq!(moment(&harness), 20, "without a pin it is the peak");
}

#[test]
fn the_largest_block_of_the_peak_is_one_key_away_and_its_neighbours_another() {
    let mut harness = harness(Some(steps()));
    press(&mut harness, Key::G);
    assert_eq!(pinned(&harness), Some(BlockId(0)), "of several as large the first");
    assert_eq!(harness.state().settings().side, Side::Block);
    harness.get_by_label_contains("Live from before the recording to the end");
    press(&mut harness, Key::K);
    let above = pinned(&harness).unwrap();
    assert_ne!(above, BlockId(0));
    press(&mut harness, Key::J);
    press(&mut harness, Key::J);
    assert_eq!(pinned(&harness), Some(BlockId(0)), "there is none below");
    press(&mut harness, Key::Escape);
    assert_eq!(harness.state().settings().side, Side::Moment);
}

#[test]
fn two_marks_make_a_range_that_can_be_shown() {
    let mut harness = harness(Some(steps()));
    assert!(!harness.state().can(Command::ShowRange));
    run(&mut harness, Command::PreviousEvent);
    press(&mut harness, Key::CloseBracket);
    for _ in 0..5 {
        run(&mut harness, Command::PreviousEvent);
    }
    press(&mut harness, Key::OpenBracket);
    assert_eq!(harness.state().current().unwrap().selection.range(), Some(14..19));
    press(&mut harness, Key::R);
    let shown = view(&harness).x;
    assert!(shown.start < 14.5 && shown.start > 13.0 && shown.end > 19.5 && shown.end < 21.0, "{shown:?}");
    chord(&mut harness, Modifiers::SHIFT, Key::Escape);
    assert_eq!(harness.state().current().unwrap().selection.range(), None);
}

#[test]
fn undo_returns_to_view_total_moment_and_search_and_redo_goes_on() {
    let mut harness = harness(Some(steps()));
    let whole = view(&harness);
    press(&mut harness, Key::M);
    press(&mut harness, Key::P);
    let peak = view(&harness);
    press(&mut harness, Key::Slash);
    harness.get_by_role_and_label(Role::TextInput, "Search").type_text("category=gradient");
    settle(&mut harness);
    harness.get_by_label_contains(" in the recording");
    harness.key_press(Key::Escape);
    settle(&mut harness);
    chord(&mut harness, Modifiers::COMMAND, Key::Z);
    assert!(harness.query_by_label_contains(" in the recording").is_none());
    assert_eq!(view(&harness), peak);
    chord(&mut harness, Modifiers::COMMAND, Key::Z);
    assert_eq!(view(&harness), whole);
    chord(&mut harness, Modifiers::COMMAND, Key::Z);
    assert_eq!(harness.state().current().unwrap().selection.metric, Metric::Requested);
    assert!(!harness.state().can(Command::Undo));
    for _ in 0..3 {
        chord(&mut harness, Modifiers::COMMAND | Modifiers::SHIFT, Key::Z);
    }
    harness.get_by_label_contains(" in the recording");
    assert!(!harness.state().can(Command::Redo));
}

#[test]
fn a_drag_in_the_overview_makes_a_part_visible_and_is_undone_as_one() {
    let mut harness = harness(Some(steps()));
    let whole = view(&harness);
    let overview = harness.get_by_label("Overview of the whole recording").rect();
    let at = |share: f32| Pos2::new(overview.left() + overview.width() * share, overview.center().y);
    harness.hover_at(at(0.25));
    harness.run_steps(1);
    harness.drag_at(at(0.25));
    for share in [0.3, 0.4, 0.5] {
        harness.hover_at(at(share));
        harness.run_steps(1);
    }
    harness.drop_at(at(0.5));
    settle(&mut harness);
    let length = whole.x.end - whole.x.start;
    let shown = view(&harness).x;
    assert!((shown.start / length - 0.25).abs() < 0.02 && (shown.end / length - 0.5).abs() < 0.02, "{shown:?}");
    run(&mut harness, Command::Undo);
    assert_eq!(view(&harness), whole);
}

#[test]
fn the_views_below_and_beside_the_timeline_are_shown_by_key() {
    let mut harness = harness(Some(steps()));
    chord(&mut harness, Modifiers::COMMAND, Key::Num5);
    assert_eq!(harness.state().settings().bottom, Some(Bottom::Events));
    chord(&mut harness, Modifiers::COMMAND, Key::Num4);
    assert_eq!(harness.state().settings().bottom, Some(Bottom::Segments));
    chord(&mut harness, Modifiers::COMMAND, Key::Num4);
    assert_eq!(harness.state().settings().bottom, None);
    chord(&mut harness, Modifiers::COMMAND, Key::Num3);
    assert_eq!(harness.state().settings().side, Side::Statistics);
}

#[test]
fn requests_that_failed_are_led_to_and_the_programs_regions_have_a_lane() {
    let text = "alloc a 100\noom 500\nalloc b 100\nmark here\noom 700\nfree a";
    let mut harness = harness(Some(trace_from_text(text).unwrap()));
    run(&mut harness, Command::FitAll);
    // From the peak to the next; wraps around at the end.
    for (modifiers, expected) in
        [(Modifiers::NONE, 5), (Modifiers::NONE, 2), (Modifiers::SHIFT, 5), (Modifiers::SHIFT, 2)]
    {
        chord(&mut harness, modifiers, Key::O);
        assert_eq!(moment(&harness), expected);
    }
}

#[test]
fn escape_closes_an_open_menu_before_it_lets_go_of_the_block() {
    let mut harness = harness(Some(steps()));
    press(&mut harness, Key::G);
    harness.get_by_role_and_label(Role::Button, "Go").click();
    settle(&mut harness);
    harness.get_by_label_contains("Largest block");
    press(&mut harness, Key::Escape);
    assert!(harness.query_by_label_contains("Largest block").is_none());
    assert!(pinned(&harness).is_some());
    press(&mut harness, Key::Escape);
    assert_eq!(pinned(&harness), None);
}

#[test]
fn a_stack_of_bare_addresses_says_how_to_find_its_functions() {
    let named = steps()
        .edited(|trace| trace.tables.modules = vec![Module { path: StringId(0), build_id: vec![1, 2], load_bias: 0 }]);
    let trace = named.clone().edited(|trace| {
        for frame in &mut trace.tables.frames {
            (frame.module, frame.first_line, frame.line_count) = (ModuleId(0), 0, 0);
        }
    });
    for (trace, is_told) in [(trace, true), (named, false)] {
        let mut harness = harness(Some(trace));
        run(&mut harness, Command::LargestBlock);
        press(&mut harness, Key::K);
        assert_eq!(harness.query_by_label_contains("Run `highwater symbolize FILE`").is_some(), is_told);
    }
}

#[test]
fn failed_requests_of_every_device_are_one_key_away_and_marked() {
    let text = "
        alloc a 500
        alloc x 20/512 device=1
        oom 900 device=1
        alloc b 700
        oom 800
        alloc y 20/512 device=1
        oom 950 device=1";
    let mut harness = harness(Some(trace_from_text(text).unwrap()));
    let device = |harness: &egui_kittest::Harness<'_, highwater_app::gui::App>| {
        let file = harness.state().current().unwrap();
        file.recording.devices[file.selection.device].device.0
    };
    run(&mut harness, Command::FitAll);
    harness.state_mut().current_mut().unwrap().choose_device(0);
    settle(&mut harness);
    let mut seen = Vec::new();
    for modifiers in [Modifiers::NONE, Modifiers::NONE, Modifiers::NONE, Modifiers::SHIFT, Modifiers::SHIFT] {
        chord(&mut harness, modifiers, Key::O);
        seen.push((device(&harness), moment(&harness)));
    }
    // From the peak of device 0 after the fourth event; after the last request comes the first.
    assert_eq!(seen, [(0, 5), (1, 7), (1, 3), (1, 7), (0, 5)]);
    for cell in ["device 0: peak 1.17 KiB, out of memory", "device 1: peak 40 B, out of memory"] {
        assert_eq!(harness.get_all_by_label_contains(cell).count(), 1, "{cell}");
    }
}

#[test]
fn the_count_of_failed_requests_is_a_link_to_the_next_whatever_its_device() {
    let text = "alloc a 500\nalloc x 20/512 device=1\noom 900 device=1";
    let mut harness = harness(Some(trace_from_text(text).unwrap()));
    harness.state_mut().current_mut().unwrap().choose_device(0);
    settle(&mut harness);
    harness.get_by_label("1 request failed on device 1").click();
    settle(&mut harness);
    let file = harness.state().current().unwrap();
    assert_eq!((file.selection.device, moment(&harness)), (1, 3));
    harness.get_by_label("1 request failed on device 1");
}

#[test]
fn the_failed_request_that_explain_leads_to_is_shown_in_segments() {
    let text = "segment_alloc 0x10000000 2097152 small\nalloc a 500\noom 900\nalloc b 100\noom 901\nfree a";
    let mut harness = harness(Some(trace_from_text(text).unwrap()));
    run(&mut harness, Command::ShowExplain);
    harness.get_by_label("Show why it failed").click();
    settle(&mut harness);
    assert_eq!((moment(&harness), harness.state().settings().bottom), (3, Some(Bottom::Segments)));
    harness.get_by_label("Why it failed (1 of 2)");
}

#[test]
fn keys_that_no_block_has_cannot_be_chosen() {
    let mut harness = harness(Some(trace_from_text("alloc a 500 activation\nalloc b 300 gradient").unwrap()));
    harness.get_by_label("Group by category").click();
    harness.run_steps(3);
    for (name, can_choose) in [("op", false), ("module (scope)", false), ("step", false), ("size", true)] {
        let entry = harness.get_by_role_and_label(Role::Button, name);
        assert_eq!(!entry.accesskit_node().is_disabled(), can_choose, "{name}");
    }
    harness.key_press(Key::Escape);
    harness.run_steps(2);
    for command in [Command::ColourByOp, Command::ColourByScope, Command::ColourByCallSite] {
        assert!(!harness.state().can(command), "{command:?}");
    }
    let mut seen = Vec::new();
    for _ in 0..8 {
        run(&mut harness, Command::NextKey);
        seen.push(harness.state().settings().choices.first.name());
    }
    assert!(["op", "scope", "step", "stack", "frame"].iter().all(|absent| !seen.contains(absent)), "{seen:?}");
}
