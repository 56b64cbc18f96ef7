//! Tests of direct interaction with the timeline by pointer: lanes, the menu, zooming to a block, and a selected row.

use eframe::egui::{Key, Modifiers, Pos2};
use egui_kittest::Harness;
use egui_kittest::kittest::Queryable as _;
use highwater_app::command::Command;
use highwater_app::gui::App;
use highwater_notation::trace_from_text;
use highwater_snapshots::BlockId;

use super::harness::{chord, click, harness, moment, pinned, place_of, right_click_at, run, settle, steps, view};

/// Height of a lane above the plot, in points.
const LANE: f32 = 18.0;

/// The middle of the second step on the screen, in the lane of steps.
fn second_step(harness: &Harness<'_, App>) -> Pos2 {
    let file = harness.state().current().unwrap();
    let events = file.recording.steps[1].1.clone();
    let middle = file.selection.middle_of(&file.recording.trace, (events.start + events.end) as usize / 2);
    let frame = file.timeline.frame().unwrap();
    Pos2::new(frame.screen_x(middle), frame.rect.top() - 2.0 - 1.5 * LANE)
}

#[test]
fn a_click_on_a_step_zooms_to_it_and_a_second_one_shows_everything_again() {
    let mut harness = harness(Some(steps()));
    let whole = view(&harness);
    let at = second_step(&harness);
    click(&mut harness, at);
    let zoomed = view(&harness).x;
    let file = harness.state().current().unwrap();
    let [first, second] = [0, 1].map(|step| file.recording.steps[step].1.clone());
    let middle = |events: std::ops::Range<u32>| {
        file.selection.middle_of(&file.recording.trace, (events.start + events.end) as usize / 2)
    };
    assert!(zoomed.contains(&middle(second)) && !zoomed.contains(&middle(first)), "{zoomed:?}");
    let at = second_step(&harness);
    click(&mut harness, at);
    assert_eq!(view(&harness), whole);
}

#[test]
fn a_click_on_the_label_of_a_peak_with_leaks_shows_all_lines_that_leak() {
    let step = |step: u32| {
        format!(
            "step {step}\nphase forward\nalloc a{step} 512 #linear @net\nfree a{step}\nalloc k{step} 4096 #cache @net\n"
        )
    };
    let text: String = (0..6).map(step).collect();
    let mut leaking = harness(Some(trace_from_text(&text).unwrap()));
    leaking.get_by_label("Show leaks").click();
    settle(&mut leaking);
    leaking.get_by_label_contains("20 KiB from 5 steps (1 to 5) is still live.");
    assert!(leaking.query_by_label("Show leaks").is_none(), "statistics say the same");
    let sound = harness(Some(steps()));
    assert!(sound.query_by_label("Show leaks").is_none());
}

#[test]
fn a_right_click_offers_what_can_be_done_with_the_block_and_the_moment() {
    let mut harness = harness(Some(steps()));
    let at = place_of(&mut harness, BlockId(3), 7);
    right_click_at(&mut harness, at);
    harness.get_by_label("Zoom to its lifetime");
    harness.get_by_label("Mark this moment as A");
    harness.get_by_label("Pin this moment").click();
    settle(&mut harness);
    assert_eq!((moment(&harness), pinned(&harness)), (7, None));
    assert!(harness.query_by_label("Pin this moment").is_none(), "the menu is closed");
}

#[test]
fn shift_and_up_zooms_the_bytes_around_the_pinned_block_else_around_the_top_of_the_stack() {
    let mut harness = harness(Some(steps()));
    let top = |harness: &Harness<'_, App>| {
        let file = harness.state().current().unwrap();
        file.timeline.frame().unwrap().screen_y(file.moment().0.bytes as f64)
    };
    let (before, height) = (top(&harness), view(&harness).y);
    chord(&mut harness, Modifiers::SHIFT, Key::ArrowUp);
    let zoomed = view(&harness).y;
    assert!(zoomed.end - zoomed.start < 0.6 * (height.end - height.start), "{zoomed:?} is zoomed");
    assert!((top(&harness) - before).abs() < 1.0, "the top of the stack stays");
    run(&mut harness, Command::FitAll);
    let at = place_of(&mut harness, BlockId(3), 7);
    click(&mut harness, at);
    chord(&mut harness, Modifiers::SHIFT, Key::ArrowUp);
    let after = place_of(&mut harness, BlockId(3), 7);
    assert!((after.y - at.y).abs() < 1.0, "the block stays at {at:?}, not {after:?}");
}

#[test]
fn a_row_that_is_chosen_in_moment_keeps_its_colours_in_the_timeline() {
    let mut harness = harness(Some(steps()));
    let colours = |harness: &Harness<'_, App>| {
        let picture = harness.state().current().unwrap().timeline.picture().unwrap();
        [0, 1].map(|block| picture.colouring.colour(BlockId(block)))
    };
    let [parameter, activation] = colours(&harness);
    harness.get_by_label_contains("parameter · 400 B · ").click();
    settle(&mut harness);
    settle(&mut harness);
    let [chosen, other] = colours(&harness);
    assert_eq!(chosen, parameter);
    assert_ne!(other, activation, "other blocks turn pale");
}
