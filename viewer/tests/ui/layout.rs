//! Layout: in small windows no text of the frame around the views is cut off or meets another.

use eframe::egui::{Rect, Vec2};
use egui_kittest::Harness;
use egui_kittest::kittest::{NodeT as _, Queryable as _};
use highwater::command::Command;
use highwater::gui::App;
use highwater_snapshots::Trace;
use highwater_snapshots::text::trace_from_text;

use super::harness::{STEPS, harness, run, settle};

/// A recording with all that the status line can say: a long name, failed requests, two devices, facts that limit trust.
fn crowded() -> Trace {
    let text = format!("{STEPS}\nalloc x 50/512 device=1\noom 900 device=1\noom 901 device=1");
    let mut trace = trace_from_text(&text).unwrap();
    trace.trust.events_lost = 12_345;
    trace.trust.unmatched_frees = 7;
    trace.trust.categories_guessed = true;
    trace
}

fn open(size: Vec2) -> Harness<'static, App> {
    let mut harness = harness(None);
    harness.set_size(size);
    harness.state_mut().open_trace("a-recording-with-quite-a-long-name-of-rank-17.snapshot.pickle", crowded());
    settle(&mut harness);
    harness
}

/// The texts and buttons that lie within `area`, and where.
fn texts(harness: &Harness<'_, App>, area: Rect) -> Vec<(String, Rect)> {
    let leaves = harness.root().children_recursive().filter(|node| node.children().next().is_none());
    let named = leaves.filter_map(|node| {
        let accessible = node.accesskit_node();
        let text = accessible.label().or(accessible.value()).filter(|text| !text.is_empty())?;
        Some((text, node.rect()))
    });
    named.filter(|(_, rect)| area.contains(rect.center())).collect()
}

#[test]
fn the_bars_above_and_below_the_views_neither_overlap_nor_leave_the_window() {
    for (width, height) in [(1600.0, 1000.0), (900.0, 600.0), (640.0, 400.0)] {
        let window = Rect::from_min_size(Default::default(), Vec2::new(width, height));
        let mut harness = open(window.size());
        for busy in [false, true] {
            if busy {
                run(&mut harness, Command::NextOom);
            }
            let status = window.with_min_y(height - 24.0);
            let menus = window.with_max_y(26.0);
            for area in [menus, status] {
                let texts = texts(&harness, area);
                assert!(texts.len() >= 3, "{texts:?}");
                for (row, (text, rect)) in texts.iter().enumerate() {
                    assert!(window.expand(0.5).contains_rect(*rect), "'{text}' at {rect:?} leaves {window:?}");
                    for (other, at) in &texts[..row] {
                        let meets = rect.shrink(0.5).intersects(at.shrink(0.5));
                        assert!(!meets, "'{text}' {rect:?} meets '{other}' {at:?} at {width} points");
                    }
                }
            }
        }
    }
}

#[test]
fn a_low_window_leaves_the_overview_out_before_it_cuts_it_off() {
    for height in [1000.0, 600.0, 480.0] {
        let window = Rect::from_min_size(Default::default(), Vec2::new(900.0, height));
        let mut harness = open(window.size());
        run(&mut harness, Command::ShowEvents);
        let below = harness.get_by_label_contains("Events: ").rect().top();
        let overviews: Vec<Rect> = harness.query_all_by_label_contains("Overview").map(|node| node.rect()).collect();
        assert!(height < 700.0 || overviews.len() == 1);
        assert!(overviews.iter().all(|rect| rect.bottom() <= below), "{overviews:?} {below}");
    }
}
