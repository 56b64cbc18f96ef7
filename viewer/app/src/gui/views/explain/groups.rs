//! The groups at the peak and the peak without each, as a sortable table with keyboard navigation that is saved as CSV.

use std::cmp::Ordering;

use eframe::egui::{Align, Button, Label, Layout, Rect, RichText, Ui, UiBuilder, vec2};
use highwater_analysis::{GroupKey, Moment, TreeKey};
use highwater_snapshots::units::{format_bytes, format_count, parse_bytes};

use super::job::{Explained, Row};
use crate::figures::moment::count_of;
use crate::gui::legend::share;
use crate::gui::views::group_keys::key_name;
use crate::gui::views::view::Action;
use crate::gui::widgets::table::{Cell, Column, TableState, table_with_tips_ui};
use crate::gui::widgets::theme;
use crate::gui::widgets::words::when;
use crate::report::{self, Table};

/// The columns after those of the keys.
const FIGURES: [Column; 6] = [
    Column {
        name: "At the peak",
        tooltip: "Bytes of these blocks at the peak.",
        width: 80.0,
        is_number: true,
        is_sortable: true,
    },
    Column { name: "Share", tooltip: "Share of the listed bytes.", width: 50.0, is_number: true, is_sortable: false },
    Column { name: "Blocks", tooltip: "Number of blocks.", width: 50.0, is_number: true, is_sortable: true },
    Column {
        name: "Without it",
        tooltip: "The peak without any block of the group, over the whole recording.",
        width: 80.0,
        is_number: true,
        is_sortable: true,
    },
    Column {
        name: "Saves",
        tooltip: "How much lower that peak is; less than the size of the group if the peak moves to another moment.",
        width: 78.0,
        is_number: true,
        is_sortable: true,
    },
    Column {
        name: "New peak at",
        tooltip: "The moment of that peak. Click or press Enter to go there.",
        width: 200.0,
        is_number: false,
        is_sortable: true,
    },
];

/// The first of them that a state has, which is no peak.
const OF_STATE: usize = 3;
/// The first of them for a state.
const BYTES_OF_STATE: Column =
    Column { name: "Bytes", tooltip: "Bytes of these blocks.", width: 80.0, is_number: true, is_sortable: true };

/// State of the table.
#[derive(Debug, Default)]
pub(super) struct Groups {
    state: TableState,
    /// The rows in the order shown.
    order: Vec<usize>,
}

impl Groups {
    /// Takes over other rows.
    pub(super) fn renew(&mut self, explained: &Explained, has_same_keys: bool) {
        if !has_same_keys {
            self.state = TableState::default();
        }
        self.state.chosen = None;
        self.order = order(explained, self.state.sort);
    }

    /// Shows the table, the actions for the selected row, and the total.
    pub(super) fn groups_ui(&mut self, ui: &mut Ui, explained: &Explained, can_click: bool) -> Option<Action> {
        let keys = explained.keys.list();
        let mut columns = columns(&keys);
        let is_state = explained.explanation.peak.is_state;
        if is_state {
            columns.truncate(keys.len() + OF_STATE);
            columns[keys.len()] = BYTES_OF_STATE;
        }
        let whole = ui.available_rect_before_wrap();
        ui.allocate_rect(whole, eframe::egui::Sense::hover());
        let chosen = self.state.chosen.and_then(|row| self.order.get(row)).and_then(|row| explained.rows.get(*row));
        let below = (theme::ROW_HEIGHT + 8.0) * if chosen.is_some() && can_click { 2.0 } else { 1.0 };
        let place = whole.with_max_y((whole.bottom() - below).max(whole.top() + 3.0 * theme::ROW_HEIGHT));
        let rest = Rect::from_min_max(eframe::egui::pos2(whole.left(), place.bottom()), whole.max);
        let mut action = None;
        let under = UiBuilder::new().id_salt("under groups").max_rect(rest);
        ui.scope_builder(under, |ui| {
            total_ui(ui, explained);
            if let Some(row) = chosen.filter(|_| can_click) {
                action = chosen_ui(ui, row);
            }
        });
        let most = explained.rows.iter().map(|row| row.bytes).max().unwrap_or(0).max(1);
        let row_of = |row: usize| self.order.get(row).and_then(|row| explained.rows.get(*row));
        let cell = |row: usize, column: usize| {
            row_of(row).map_or_else(Cell::default, |row| cell(row, &keys, column, (most, explained.bytes)))
        };
        let tip = |row: usize, column: usize| row_of(row).and_then(|row| tip(row, keys.len(), column));
        let state = &mut self.state;
        let rows = UiBuilder::new().id_salt("groups").max_rect(place);
        let show = |ui: &mut Ui| {
            table_with_tips_ui(
                ui,
                if is_state { "Groups of the state" } else { "Groups of the peak" },
                &columns,
                explained.rows.len(),
                state,
                (cell, tip),
            )
        };
        let touched = ui.scope_builder(rows, show).inner;
        let linked = touched.chosen.filter(|_| touched.column == Some(columns.len() - 1));
        // In a recording without events there is nothing to go to.
        if let Some(row) = touched.opened.or(linked).and_then(row_of).filter(|row| !row.without.is_state) {
            action = Some(Action::Event(row.without.number()));
        }
        if touched.is_resorted {
            self.order = order(explained, self.state.sort);
        }
        action
    }

    /// The rows in the order shown, sizes in bytes; then the groups not listed, and the total.
    pub(super) fn csv(&self, explained: &Explained) -> String {
        let explanation = &explained.explanation;
        let rest = (explanation.rest_groups > 0).then(|| count_of(explanation.rest_groups, "more group"));
        let rest = rest.map(|name| (name, explanation.rest_bytes));
        let sums: Vec<_> = rest.into_iter().chain([("total".to_owned(), explained.bytes)]).collect();
        let rows: Vec<&Row> = self.order.iter().filter_map(|row| explained.rows.get(*row)).collect();
        let of = |row: usize| rows.get(row).copied();
        let sum = |row: usize| &sums[row - rows.len()];
        let value = &|row: usize, key: usize| match of(row) {
            Some(row) => row.in_full[key].clone(),
            None if key == 0 => sum(row).0.clone(),
            None => String::new(),
        };
        let without = |row: usize| of(row).map(|row| &row.without);
        let keys = explained.keys.list().into_iter().enumerate();
        let keys = keys.map(|(at, key)| report::Column::text(key.name(), "", move |row| value(row, at)));
        let figures = [
            report::Column::bytes("bytes_at_peak", "", |row| of(row).map_or_else(|| sum(row).1, |row| row.bytes)),
            report::Column::count("blocks_at_peak", "", |row| of(row).map(|row| row.blocks)),
            report::Column::bytes("peak_without", "", |row| without(row).map(|peak| peak.bytes)),
            report::Column::bytes("saved_bytes", "", |row| of(row).map(|row| row.saved)),
            report::Column::number("new_peak_step", "", |row| without(row).map(|peak| peak.step)),
            report::Column::text("new_peak_phase", "", |row| without(row).map(|peak| peak.phase.name())),
            report::Column::number("new_peak_event", "", |row| without(row).map(Moment::number)),
        ];
        Table::new(rows.len() + sums.len(), keys.chain(figures)).csv()
    }
}

fn columns(keys: &[GroupKey]) -> Vec<Column> {
    let of_key = |(row, key): (usize, &GroupKey)| Column {
        name: key_name(TreeKey::By(*key)),
        tooltip: "The value that these blocks have in common.",
        // The first key takes the remaining width; so do all keys with long values.
        width: if row == 0 { 0.0 } else { least_width(*key).unwrap_or(0.0) },
        is_number: false,
        is_sortable: true,
    };
    keys.iter().enumerate().map(of_key).chain(FIGURES).collect()
}

/// The width of a key's column in points, if its values are short.
fn least_width(key: GroupKey) -> Option<f32> {
    match key {
        GroupKey::Category | GroupKey::Lifetime => Some(126.0),
        GroupKey::Phase => Some(80.0),
        GroupKey::Step | GroupKey::Pool => Some(54.0),
        GroupKey::Size | GroupKey::Stream => Some(96.0),
        GroupKey::Op | GroupKey::Scope | GroupKey::ScopeTo(_) | GroupKey::Stack | GroupKey::Frame => None,
    }
}

fn cell(row: &Row, keys: &[GroupKey], column: usize, (most, total): (u64, u64)) -> Cell {
    let Some(figure) = column.checked_sub(keys.len()) else {
        let text = row.names.get(column).cloned().unwrap_or_default();
        let is_category = keys.get(column) == Some(&GroupKey::Category);
        let category = highwater_snapshots::Category::ALL.iter().find(|category| category.name() == text);
        let swatch = category.filter(|_| is_category).map(|of| theme::category(*of));
        // Module paths of one model have a common prefix.
        return Cell {
            swatch,
            keeps_end: keys.get(column).is_some_and(|key| key.name() == GroupKey::Scope.name()),
            ..text.into()
        };
    };
    match figure {
        0 => Cell { share: Some((row.bytes as f64 / most as f64) as f32), ..format_bytes(row.bytes).into() },
        1 => share(row.bytes, total).into(),
        2 => format_count(row.blocks).into(),
        3 => format_bytes(row.without.bytes).into(),
        4 => Cell { is_faint: row.saved == 0, ..format_bytes(row.saved).into() },
        _ => Cell { is_link: !row.without.is_state, ..when(&row.without).into() },
    }
}

/// The full value of a cell.
fn tip(row: &Row, keys: usize, column: usize) -> Option<String> {
    let exact = |bytes: u64| Some(format!("{} B", format_count(bytes)));
    match column.checked_sub(keys) {
        None => row.in_full.get(column).filter(|text| row.names.get(column) != Some(*text)).cloned(),
        Some(0) => exact(row.bytes),
        Some(3) => exact(row.without.bytes),
        Some(4) => exact(row.saved),
        Some(_) => None,
    }
}

/// The rows ordered by a column; without one, the largest first.
fn order(explained: &Explained, sort: Option<(usize, bool)>) -> Vec<usize> {
    let rows = &explained.rows;
    let mut order: Vec<usize> = (0..rows.len()).collect();
    let Some((column, is_falling)) = sort else { return order };
    let keys = explained.keys.list();
    let compare = |a: &Row, b: &Row| match column.checked_sub(keys.len()) {
        None => by_value(keys[column], &a.in_full[column], &b.in_full[column]),
        Some(2) => a.blocks.cmp(&b.blocks),
        Some(3) => a.without.bytes.cmp(&b.without.bytes),
        Some(4) => a.saved.cmp(&b.saved),
        Some(5) => a.without.number().cmp(&b.without.number()),
        Some(_) => a.bytes.cmp(&b.bytes),
    };
    order.sort_by(|a, b| {
        let order = compare(&rows[*a], &rows[*b]);
        if is_falling { order.reverse() } else { order }
    });
    order
}

/// Compares two values of a key: numbers numerically, after all other values.
fn by_value(key: GroupKey, a: &str, b: &str) -> Ordering {
    match key {
        GroupKey::Step | GroupKey::Stream => a.parse::<u64>().ok().cmp(&b.parse().ok()),
        GroupKey::Size => parse_bytes(a).ok().cmp(&parse_bytes(b).ok()),
        _ => a.cmp(b),
    }
}

fn total_ui(ui: &mut Ui, explained: &Explained) {
    let explanation = &explained.explanation;
    ui.separator();
    ui.horizontal(|ui| {
        let groups = count_of(explained.rows.len() as u64 + explanation.rest_groups, "group");
        let mut text = format!("Total of {groups}: {}", format_bytes(explained.bytes));
        if explanation.rest_groups > 0 {
            let rest = count_of(explanation.rest_groups, "group");
            text += &format!(", of which {} in {rest} not listed", format_bytes(explanation.rest_bytes));
        }
        ui.add(Label::new(RichText::new(text).strong()).truncate());
    });
}

/// The actions for the selected group.
fn chosen_ui(ui: &mut Ui, row: &Row) -> Option<Action> {
    let mut action = None;
    ui.allocate_ui(vec2(ui.available_width(), theme::ROW_HEIGHT), |ui| {
        ui.horizontal(|ui| {
            let button = ui.add_enabled(row.condition.is_some(), Button::new("Only these").small());
            let button = button.on_disabled_hover_text("No condition selects exactly these blocks.");
            let why = row.condition.as_ref().map_or_else(String::new, |told| format!("Adds the condition {told}"));
            if button.on_hover_text(why).clicked() {
                action = row.condition.clone().map(Action::Where);
            }
            if !row.without.is_state {
                let there = ui.small_button("Go to the peak without it").on_hover_text(when(&row.without));
                if there.clicked() {
                    action = Some(Action::Event(row.without.number()));
                }
            }
            ui.with_layout(Layout::left_to_right(Align::Center), |ui| {
                ui.add(Label::new(RichText::new(row.names.join(" · ")).weak()).truncate());
            });
        });
    });
    action
}
