//! Tests that in small windows no text of the frame around the views is cut off or overlaps.

use eframe::egui::{self, Key, Rect, Role, Vec2};
use egui_kittest::Harness;
use egui_kittest::kittest::{NodeT as _, Queryable as _};
use highwater_app::command::Command;
use highwater_app::gui::App;
use highwater_notation::trace_from_text;
use highwater_snapshots::Trace;

use super::harness::{STEPS, harness, run, search, settle, steps};

/// A recording with all that the status line can say: a long name, failed requests, two devices, facts that limit
/// trust.
fn crowded() -> Trace {
    let text = format!("{STEPS}\nalloc x 50/512 device=1\noom 900 device=1\noom 901 device=1");
    trace_from_text(&text).unwrap().edited(|trace| {
        trace.trust.events_lost = 12_345;
        trace.trust.unmatched_frees = 7;
        trace.trust.categories_guessed = true;
    })
}

fn open(size: Vec2) -> Harness<'static, App> {
    let mut harness = harness(None);
    harness.set_size(size);
    harness.state_mut().open_trace("a-recording-with-quite-a-long-name-of-rank-17.snapshot.pickle", crowded());
    settle(&mut harness);
    harness
}

/// The texts and buttons within `area`, with their rectangles.
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
        let overviews: Vec<Rect> = harness.query_all_by_label_contains("Overview").map(|node| node.rect()).collect();
        assert!(height < 700.0 || overviews.len() == 1);
        assert!(overviews.iter().all(|rect| window.contains_rect(*rect)), "{overviews:?}");
        run(&mut harness, Command::ShowEvents);
        assert!(harness.query_by_label_contains("Overview").is_none(), "it folds away for a view below");
    }
}

/// The app in a small window, with a recording of a segment and a failed request.
fn small(text: &str) -> (Harness<'static, App>, Rect) {
    let window = Rect::from_min_size(Default::default(), Vec2::new(900.0, 600.0));
    let mut harness = harness(Some(trace_from_text(text).unwrap()));
    harness.set_size(window.size());
    settle(&mut harness);
    (harness, window)
}

const FAILED: &str = "
    segment_alloc 0x10000000 20971520 large
    alloc a 4194304 activation large
    alloc b 8388608 activation large
    oom 52428800 free=1048576 < forward < main
";

#[test]
fn in_a_small_window_the_analysis_of_a_failed_request_is_in_full_above_the_map() {
    let (mut harness, window) = small(FAILED);
    run(&mut harness, Command::ShowSegments);
    run(&mut harness, Command::NextOom);
    let map = harness.get_by_label_contains("Address map: ").rect();
    assert!(map.height() >= 110.0 && map.bottom() <= window.bottom() - 20.0, "{map:?} in {window:?}");
    for text in ["50 MiB requested at forward: ", "Probable cause: ", "Why: "] {
        let rect = harness.get_by_label_contains(text).rect();
        assert!(rect.bottom() <= map.top(), "'{text}' at {rect:?} is cut off above {map:?}");
    }
}

#[test]
fn a_failed_request_has_a_label_in_the_timeline_that_leads_to_its_analysis() {
    let (mut harness, _) = small(FAILED);
    let flag = harness.get_by_label("Why it failed").rect();
    harness.get_by_label("Out of memory: 50 MiB requested at forward");
    let plot = harness.state().current().unwrap().timeline.frame().unwrap().rect;
    assert!(plot.contains_rect(flag), "{flag:?} in {plot:?}");
    harness.get_by_label("Why it failed").click();
    settle(&mut harness);
    harness.get_by_label_contains("Address map: ");
    harness.get_by_label_contains("50 MiB requested at forward: ");
    assert!(harness.query_by_label("Why it failed").is_none(), "the analysis says the same");
}

#[test]
fn a_recording_without_failed_requests_names_none() {
    let (harness, _) = small(STEPS);
    assert!(harness.query_by_label("Why it failed").is_none());
}

#[test]
fn in_a_low_window_menus_scroll_and_the_palette_stays_where_it_is() {
    let (mut harness, window) = small(STEPS);
    harness.get_by_label("View").click();
    harness.run_steps(3);
    let menu = harness.get_by_label_contains("Show what is using memory").rect();
    let last = harness.get_by_label_contains("Normal size").rect();
    assert!(window.contains_rect(menu) && last.bottom() > window.bottom(), "{menu:?} {last:?} is reached by scrolling");
    harness.key_press(Key::Escape);
    harness.run_steps(2);
    run(&mut harness, Command::Palette);
    let top = |harness: &Harness<'_, App>| harness.get_by_label("Find a command").rect().top();
    let before = top(&harness);
    harness.get_by_label("Find a command").type_text("leak");
    harness.run_steps(4);
    assert_eq!(top(&harness), before);
}

#[test]
fn in_a_small_panel_the_columns_of_statistics_are_scrolled_beside_the_step() {
    let (mut harness, window) = small(STEPS);
    run(&mut harness, Command::ShowStatistics);
    run(&mut harness, Command::ShowEvents);
    let heads = |harness: &Harness<'_, App>| -> Vec<Rect> {
        harness.query_all_by_label_contains("Sort Steps by ").map(|node| node.rect()).collect()
    };
    let before = heads(&harness);
    assert!(before.len() >= 3 && before.iter().all(|head| window.contains_rect(*head)), "{before:?}");
    harness.get_by_label("Steps: 2 rows").focus();
    harness.run_steps(2);
    harness.key_press(Key::ArrowRight);
    harness.run_steps(2);
    let after = heads(&harness);
    assert_eq!(after[0], before[0], "the column of steps stays");
    // A column that is partly behind the first is not drawn.
    assert!(after[1].left() < before[2].left() && after[1].left() >= after[0].right(), "{before:?} {after:?}");
}

#[test]
fn the_tabs_of_statistics_share_one_row() {
    let (mut harness, _) = small(STEPS);
    run(&mut harness, Command::ShowStatistics);
    let tabs =
        ["Steps", "Kept", "Sizes", "Freed", "Lifetimes", "Recording"].map(|tab| harness.get_by_label(tab).rect());
    assert!(tabs.windows(2).all(|two| two[0].top() == two[1].top() && two[0].right() <= two[1].left()), "{tabs:?}");
}

#[test]
fn in_a_small_window_the_verdict_and_the_peaks_are_in_view_beside_the_form() {
    let (mut harness, window) = small(FAILED.rsplit_once("oom").unwrap().0);
    run(&mut harness, Command::ShowWhatIf);
    harness.get_by_role_and_label(Role::TextInput, "Device size").focus();
    harness.run_steps(1);
    harness.get_by_role_and_label(Role::TextInput, "Device size").type_text("1GiB");
    harness.run_steps(1);
    harness.key_press(Key::Enter);
    settle(&mut harness);
    let verdict = harness.get_by_label_contains("Fits. With 1 GiB of memory").rect();
    let peaks = harness.get_by_label_contains("reserved − active · ").rect();
    let form = harness.get_by_label("Replay with the change").rect();
    for (name, rect) in [("verdict", verdict), ("peaks", peaks), ("form", form)] {
        assert!(rect.bottom() <= window.bottom() - 24.0, "{name}: {rect:?}");
    }
    assert!(form.right() < verdict.left(), "{form:?} {verdict:?}");
}

#[test]
fn in_a_small_window_both_timelines_of_a_comparison_have_their_axes() {
    let (mut harness, _) = small(STEPS);
    harness.state_mut().open_trace("other.snap", trace_from_text(STEPS).unwrap());
    settle(&mut harness);
    run(&mut harness, Command::PreviousFile);
    run(&mut harness, Command::Compare);
    // Ticks and the axis's name below the plot.
    let axis = 20.0;
    let comparison = harness.state().comparison().expect("a comparison is in front");
    let plots = comparison.timelines().map(|timeline| timeline.frame().unwrap().rect);
    let next =
        harness.get_all_by_label("other.snap").map(|node| node.rect()).max_by(|a, b| a.top().total_cmp(&b.top()));
    let reading = harness.get_by_label_contains("Move the pointer over either timeline").rect();
    assert!(plots[0].bottom() + axis <= next.unwrap().top(), "{plots:?} {next:?}");
    assert!(plots[1].bottom() + axis <= reading.top(), "{plots:?} {reading:?}");
    assert!(plots.iter().all(|plot| plot.height() >= 40.0), "{plots:?}");
}

#[test]
fn in_a_small_window_the_tool_bar_and_the_totals_take_one_line_each() {
    let (mut harness, window) = small(STEPS);
    for is_searching in [false, true] {
        if is_searching {
            search(&mut harness, "category=activation");
        }
        let rect = |label: &str| harness.get_by_label_contains(label).rect();
        let peak = rect("Peak P");
        for label in ["Total requested", "Colour by ", "Stack by "] {
            assert!((rect(label).center().y - peak.center().y).abs() < 3.0, "{label}: {:?} {peak:?}", rect(label));
        }
        let field = harness.get_by_role_and_label(Role::TextInput, "Search").rect();
        assert!((field.center().y - peak.center().y).abs() < 3.0 && window.contains_rect(field), "{field:?}");
        if is_searching {
            let found = rect("Found ");
            assert!((found.center().y - peak.center().y).abs() < 5.0 && window.contains_rect(found), "{found:?}");
        }
    }
    let row = |label: &str| harness.get_by_label(label).rect().center().y;
    assert_eq!(row("requested 1.46 KiB"), row("reserved 0 B"));
}

#[test]
fn over_the_right_half_of_the_timeline_the_tooltip_opens_to_the_left() {
    let (mut harness, _) = small(STEPS);
    let plot = harness.state().current().unwrap().timeline.frame().unwrap().rect;
    for share in [0.1, 0.45, 0.7, 0.95] {
        harness.hover_at(egui::pos2(plot.left() + plot.width() * share, plot.bottom() - 10.0));
        harness.run_steps(4);
        let tip = harness.get_by_label_contains("requested in all").rect();
        assert!(tip.right() <= plot.right() + 8.0 && tip.left() >= 0.0, "{share}: {tip:?} over {plot:?}");
    }
}

#[test]
fn the_panel_at_the_side_folds_away_and_is_below_the_timeline_in_an_upright_window() {
    let plot = |harness: &Harness<'_, App>| harness.state().current().unwrap().timeline.frame().unwrap().rect;
    let (mut harness, window) = small(STEPS);
    let before = plot(&harness);
    harness.get_by_label("Fold the side panel").click();
    settle(&mut harness);
    assert!(plot(&harness).width() > before.width() + 200.0, "{:?}", plot(&harness));
    assert!(harness.query_by_label("At the peak").is_none());
    let button = harness.get_by_label("Fold the side panel");
    assert!(window.contains_rect(button.rect()));
    button.click();
    settle(&mut harness);
    assert_eq!(plot(&harness), before);
    harness.set_size(Vec2::new(390.0, 800.0));
    settle(&mut harness);
    let field = harness.get_by_role_and_label(Role::TextInput, "Search").rect();
    assert!(field.right() <= 390.0, "the tool bar wraps: {field:?}");
    let (upright, panel) = (plot(&harness), harness.get_by_label("requested at the peak").rect());
    assert!(
        upright.width() > 250.0 && upright.height() > 100.0 && panel.top() > upright.bottom(),
        "{upright:?} {panel:?}"
    );
}

#[test]
fn messages_lie_above_the_bottom_line_move_nothing_and_stay_until_they_are_dismissed() {
    let (mut harness, window) = small(STEPS);
    let plot = |harness: &Harness<'_, App>| harness.state().current().unwrap().timeline.frame().unwrap().rect;
    let before = plot(&harness);
    let words = "There is no view below the timeline";
    run(&mut harness, Command::SaveBelow);
    let message = harness.get_by_label_contains(words).rect();
    assert!(message.bottom() < window.bottom() - 24.0 && message.top() > window.center().y, "{message:?}");
    assert_eq!(plot(&harness), before);
    harness.run_steps(8);
    harness.get_by_label_contains(words);
    harness.get_by_label("Dismiss").click();
    settle(&mut harness);
    assert!(harness.query_by_label_contains(words).is_none());
}

#[test]
fn the_bottom_line_has_the_device_first_and_then_the_file() {
    let harness = open(Vec2::new(1600.0, 1000.0));
    let left = |label: &str| harness.get_by_label_contains(label).rect().left();
    let file = left("File: a-recording");
    assert!(left("device 1  ·") < file && file < left("2 requests failed on device 1"));
    assert!(left("2 requests failed on device 1") < left("events are missing"));
}

#[test]
fn the_timeline_has_its_final_size_in_the_first_frame() {
    let mut harness = harness(None);
    harness.set_size(Vec2::new(1440.0, 900.0));
    harness.run_steps(2);
    harness.state_mut().open_trace("steps.snap", steps());
    harness.run_steps(1);
    let rect = |harness: &Harness<'_, App>| harness.state().current().unwrap().timeline.frame().unwrap().rect;
    let first = rect(&harness);
    settle(&mut harness);
    assert_eq!(first, rect(&harness));
}
