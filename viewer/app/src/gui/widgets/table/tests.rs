//! Tests of tables, driven by pointer and keyboard through the accessibility tree.

use eframe::egui::{Event, Key, Modifiers, MouseWheelSource, MouseWheelUnit, OutputCommand, TouchPhase, Vec2};
use egui_kittest::Harness;
use egui_kittest::kittest::{NodeT as _, Queryable as _};

use super::*;
use crate::report::Column;

/// Rows of a name and a size, the latter `width` points wide.
fn rows<'a>(count: usize, width: f32, name: impl Fn(usize) -> String + 'a) -> ShownTable<'a> {
    let bytes = Column::shown_alone("bytes", true, |row| row.to_string()).wide(width, "");
    let bytes = bytes.tip(|row| Some(format!("exactly {row}")));
    ShownTable::new(count, [Column::text("name", "name", name).wide(0.0, "What it is called."), bytes])
}

/// A table of many rows, what was touched last, and what was touched at all.
#[derive(Default)]
struct Many {
    rows: usize,
    state: TableState,
    chosen: Vec<usize>,
    opened: Vec<usize>,
    hovered: Option<usize>,
    asked: usize,
    sorts: usize,
}

fn harness(count: usize) -> Harness<'static, Many> {
    let mut harness = Harness::builder().with_size(Vec2::new(300.0, 219.0)).build_ui_state(
        |ui, many: &mut Many| {
            let asked = std::cell::Cell::new(0);
            let name = |row: usize| {
                asked.set(asked.get() + 1);
                format!("row number {row} of a table with a name that is longer than its column")
            };
            let touched = table_ui(ui, "Rows", &rows(many.rows, 90.0, name), &mut many.state);
            many.chosen.extend(touched.chosen);
            many.opened.extend(touched.opened);
            many.sorts += usize::from(touched.is_resorted);
            (many.hovered, many.asked) = (touched.hovered, asked.get());
        },
        Many { rows: count, ..Many::default() },
    );
    harness.run_steps(2);
    harness
}

fn press(harness: &mut Harness<'_, Many>, key: Key) {
    harness.key_press(key);
    harness.run_steps(2);
}

fn is_table_focused(harness: &Harness<'_, Many>) -> bool {
    let focused = harness.ctx.memory(|memory| memory.focused());
    focused.is_some_and(|id| id.accesskit_id() == harness.get_by_role(Role::Table).accesskit_node().locate().0)
}

fn focus(harness: &mut Harness<'_, Many>) {
    harness.get_by_role(Role::Table).focus();
    harness.run_steps(2);
}

#[test]
fn columns_share_the_room_that_fixed_ones_leave() {
    assert_eq!(widths(&rows(1, 90.0, |_| String::new()).columns, &[0.0, 0.0], 400.0), [0.0, 310.0, 400.0]);
    let needed = [0.0, 120.0];
    assert_eq!(
        widths(&rows(1, 90.0, |_| String::new()).columns, &needed, 400.0),
        [0.0, 280.0, 400.0],
        "names give way"
    );
}

#[test]
fn of_ten_million_rows_those_in_view_are_laid_out_and_keys_reach_all() {
    let mut harness = harness(10_000_000);
    assert!(harness.state().asked <= 12, "only rows in view are asked for: {}", harness.state().asked);
    focus(&mut harness);
    press(&mut harness, Key::ArrowDown);
    press(&mut harness, Key::ArrowDown);
    press(&mut harness, Key::End);
    press(&mut harness, Key::ArrowUp);
    assert_eq!(harness.state().chosen, [0, 1, 9_999_999, 9_999_998]);
    harness.get_by_label_contains("row number 9999999 of");
    press(&mut harness, Key::PageUp);
    let page = 9_999_998 - harness.state().state.chosen.unwrap();
    assert!((5..12).contains(&page), "{page}");
    press(&mut harness, Key::Home);
    press(&mut harness, Key::Enter);
    assert_eq!((harness.state().state.chosen, harness.state().opened.as_slice()), (Some(0), [0].as_slice()));
}

#[test]
fn the_keyboard_belongs_to_the_table_until_escape() {
    let mut harness = harness(50);
    press(&mut harness, Key::ArrowDown);
    assert!(harness.state().chosen.is_empty(), "it does not listen before it has the keyboard");
    harness.get_by_label_contains("row number 4 of").click();
    harness.run_steps(2);
    assert!(is_table_focused(&harness), "a click on a row gives the keyboard to the table");
    let told = harness.query_all_by(|node| node.is_focused()).filter_map(|node| node.accesskit_node().label()).next();
    assert!(told.unwrap().starts_with("row number 4 of"), "the chosen row is what a screen reader tells");
    press(&mut harness, Key::ArrowDown);
    assert_eq!(harness.state().chosen, [4, 5]);
    press(&mut harness, Key::Escape);
    press(&mut harness, Key::ArrowDown);
    assert_eq!(harness.state().chosen, [4, 5]);
}

#[test]
fn tab_visits_headings_and_table_but_not_every_row() {
    let mut harness = harness(50);
    let mut stops = Vec::new();
    for _ in 0..6 {
        press(&mut harness, Key::Tab);
        stops.push((harness.ctx.memory(|memory| memory.focused()), is_table_focused(&harness)));
    }
    assert_eq!(stops[..3].iter().filter(|(_, is_table)| *is_table).count(), 1, "two headings and the table: {stops:?}");
    assert_eq!(stops[..3], stops[3..], "and then again from the first");
}

#[test]
fn headings_sort_by_click_and_by_key_and_say_so() {
    let mut harness = harness(50);
    harness.get_by_label("Sort Rows by Bytes").click();
    harness.run_steps(2);
    assert_eq!(harness.state().state.sort, Some((1, true)));
    harness.get_by_label("Sort Rows by Bytes (largest first)").focus();
    harness.run_steps(2);
    press(&mut harness, Key::Enter);
    harness.get_by_label("Sort Rows by Bytes (smallest first)");
    assert_eq!((harness.state().state.sort, harness.state().sorts), (Some((1, false)), 2));
}

fn wheel(harness: &mut Harness<'_, Many>, delta: Vec2) {
    harness.event(Event::MouseWheel {
        unit: MouseWheelUnit::Point,
        phase: TouchPhase::Move,
        delta,
        source: MouseWheelSource::Wheel,
        modifiers: Modifiers::NONE,
    });
    harness.run_steps(12);
}

#[test]
fn the_wheel_turns_whole_rows_and_stops_at_both_ends() {
    let mut harness = harness(50);
    harness.get_by_label_contains("row number 4 of").hover();
    harness.run_steps(2);
    wheel(&mut harness, vec2(0.0, -5.0 * theme::ROW_HEIGHT));
    let first = harness.state().state.first;
    assert!((4..=5).contains(&first), "{first}");
    wheel(&mut harness, vec2(0.0, 500.0));
    assert_eq!(harness.state().state.first, 0);
    wheel(&mut harness, vec2(0.0, -5000.0));
    harness.get_by_label_contains("row number 49 of");
    harness.remove_cursor();
    harness.run_steps(1);
    let first = harness.state().state.first;
    wheel(&mut harness, vec2(0.0, 500.0));
    assert_eq!(harness.state().state.first, first, "away from the pointer the wheel is another's");
}

#[test]
fn what_covers_a_row_keeps_the_pointer_and_the_wheel_from_it() {
    let mut covered = Harness::builder().with_size(Vec2::new(300.0, 219.0)).build_ui_state(
        |ui, many: &mut Many| {
            let touched = table_ui(ui, "Rows", &rows(50, 90.0, |row| row.to_string()), &mut many.state);
            many.hovered = touched.hovered;
            let window = egui::Window::new("Over it").fixed_pos([10.0, 60.0]).fixed_size([150.0, 90.0]);
            window.show(ui.ctx(), |ui| ui.allocate_space(vec2(150.0, 90.0)));
        },
        Many::default(),
    );
    covered.run_steps(3);
    covered.hover_at(pos2(60.0, 110.0));
    covered.run_steps(2);
    assert_eq!(covered.state().hovered, None);
    wheel(&mut covered, vec2(0.0, -200.0));
    assert_eq!(covered.state().state.first, 0);
    covered.hover_at(pos2(250.0, 110.0));
    covered.run_steps(2);
    assert!(covered.state().hovered.is_some());
    wheel(&mut covered, vec2(0.0, -200.0));
    assert!(covered.state().state.first > 5);
}

#[test]
fn a_cell_that_is_cut_off_shows_all_of_itself_and_others_what_there_is_to_show() {
    let mut harness = harness(50);
    let y = harness.get_by_label_contains("row number 4 of").rect().center().y;
    let tells = |harness: &mut Harness<'_, Many>, x: f32, text: &str| {
        harness.hover_at(pos2(x, y));
        harness.run_steps(60);
        harness.query_all_by(|node| node.role() == Role::Label && node.value().as_deref() == Some(text)).count()
    };
    let name = "row number 4 of a table with a name that is longer than its column";
    assert_eq!(tells(&mut harness, 40.0, name), 1);
    assert_eq!(tells(&mut harness, 270.0, "exactly 4"), 1);
}

#[test]
fn a_row_chosen_from_outside_comes_into_view_and_one_in_view_stays_where_it_is() {
    let mut harness = harness(10_000_000);
    harness.state_mut().state.choose(5_000_000);
    harness.run_steps(2);
    let first = harness.state().state.first;
    assert_eq!(first, 4_999_997);
    harness.state_mut().state.choose(5_000_002);
    harness.run_steps(2);
    assert_eq!(harness.state().state.first, first);
    let row = harness.get_by_label_contains("row number 5000002 of");
    assert_eq!(row.accesskit_node().data().row_index(), Some(5_000_002));
    harness.state_mut().rows = 4;
    harness.run_steps(2);
    assert_eq!((harness.state().state.first, harness.state().state.chosen), (0, None), "a table can become short");
}

#[test]
fn the_chosen_row_is_copied_with_tabs_between_its_cells() {
    let mut harness = harness(50);
    focus(&mut harness);
    press(&mut harness, Key::ArrowDown);
    harness.event(Event::Copy);
    harness.step();
    let copied = harness.output().platform_output.commands.iter().find_map(|command| match command {
        OutputCommand::CopyText(text) => Some(text.clone()),
        _ => None,
    });
    assert_eq!(copied.unwrap().split('\t').next_back(), Some("0"));
}

#[test]
fn columns_without_room_are_reached_by_keys() {
    let mut wide = Harness::builder().with_size(Vec2::new(300.0, 219.0)).build_ui_state(
        |ui, state: &mut TableState| {
            table_ui(ui, "Rows", &rows(50, 600.0, |row| row.to_string()), state);
        },
        TableState::default(),
    );
    wide.run_steps(2);
    wide.get_by_role(Role::Table).focus();
    wide.run_steps(2);
    for _ in 0..3 {
        wide.key_press(Key::ArrowRight);
        wide.run_steps(2);
    }
    assert_eq!(wide.state().aside, 180.0);
    for _ in 0..30 {
        wide.key_press(Key::ArrowRight);
        wide.run_steps(1);
    }
    let most = wide.state().aside;
    assert!(most > 300.0 && most < 700.0, "{most}");
}
