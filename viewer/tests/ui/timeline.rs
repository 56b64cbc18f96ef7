//! Tests the contents of the timeline, and navigation by pointer and keys.

use super::harness::{click, harness, place_of, press, run, settle, steps, view};
use eframe::egui::{Event, Key, Modifiers, MouseWheelSource, MouseWheelUnit, TouchPhase, vec2};
use egui_kittest::kittest::Queryable as _;
use highwater_analysis::Metric;
use highwater_app::command::Command;
use highwater_notation::trace_from_text;
use highwater_snapshots::{BlockId, Category};

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
    harness.get_by_label("400 B gradient of linear, backward");
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
fn the_pointer_shows_its_moment_in_a_tooltip_and_a_click_shows_it_in_the_table() {
    let mut harness = harness(Some(steps()));
    let at = place_of(&mut harness, BlockId(1), 4);
    harness.hover_at(at);
    settle(&mut harness);
    harness.get_by_label("1000 B requested in all");
    harness.get_by_label("At the peak");
    click(&mut harness, at);
    run(&mut harness, Command::ShowMoment);
    harness.get_by_label("At the pinned moment");
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
    harness.get_by_label_contains("allocated\nstep 0, backward");
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
    let unit = MouseWheelUnit::Point;
    let phase = TouchPhase::Move;
    harness.event(Event::MouseWheel {
        unit,
        phase,
        delta: vec2(0.0, 100.0),
        source: MouseWheelSource::Wheel,
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
fn a_block_that_waits_for_a_stream_from_before_the_recording_is_explained() {
    let mut harness = harness(Some(trace_from_text("baseline w 100 waiting\nalloc a 1").unwrap()));
    press(&mut harness, Key::M);
    press(&mut harness, Key::M);
    assert_eq!(harness.state().current().unwrap().selection.metric, Metric::Active);
    let at = place_of(&mut harness, BlockId(0), 0);
    harness.hover_at(at);
    settle(&mut harness);
    harness.get_by_label("Freed before the recording, awaiting free");
    click(&mut harness, at);
    harness.remove_cursor();
    settle(&mut harness);
    harness.get_by_label("Freed before the recording, awaiting free");
    assert_eq!(harness.get_all_by_label("before the recording").count(), 2, "allocated and freed");
    press(&mut harness, Key::B);
}
