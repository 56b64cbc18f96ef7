//! The groups at the peak and the peak without each, as a sortable table with keyboard navigation and CSV export.

use std::rc::Rc;

use eframe::egui::{Align, Button, Label, Layout, Rect, RichText, Separator, Ui, vec2};
use highwater_analysis::{Explanation, GroupKey, Moment, TreeKey};
use highwater_snapshots::{count_of, format_bytes, format_share, parse_bytes};

use super::Looks;
use super::job::{Explained, Row};
use crate::gui::views::group_keys::key_name;
use crate::gui::views::view::Action;
use crate::gui::widgets::{Cell, ShownColumn, ShownTable, SortedTable, place_ui, theme, when};
use crate::report::{Column, Value};

/// Number of columns after the keys.
const FIGURES: usize = 6;
/// Number of columns after the keys for a recording without events, which has no peak.
const OF_STATE: usize = 3;

#[derive(Debug, Default)]
pub(super) struct Groups(SortedTable);

impl Groups {
    /// Replaces the rows by those of another explanation. With other keys, also resets the table.
    pub(super) fn renew(&mut self, explained: &Explained, has_same_keys: bool) {
        if !has_same_keys {
            self.0 = SortedTable::default();
        }
        self.0.renew(&rows(explained, Looks { colouring: None, leak: None }));
    }

    pub(super) fn groups_ui(
        &mut self,
        ui: &mut Ui,
        explained: &Explained,
        looks: Looks<'_>,
        can_click: bool,
    ) -> Option<Action> {
        let whole = ui.available_rect_before_wrap();
        ui.allocate_rect(whole, eframe::egui::Sense::hover());
        let row_of = |row: usize| explained.rows.get(row);
        let chosen = self.0.chosen().and_then(row_of);
        let below = (theme::ROW_HEIGHT + 4.0) * if chosen.is_some() && can_click { 2.0 } else { 1.0 };
        // The sum is right below the rows, of which as many as fit are shown.
        let shown = (explained.rows.len() as f32 + 1.5).min((whole.height() - below) / theme::ROW_HEIGHT);
        let place = whole.with_max_y(whole.top() + shown.max(3.0) * theme::ROW_HEIGHT);
        let rest = Rect::from_min_max(eframe::egui::pos2(whole.left(), place.bottom()), whole.max);
        let mut action = None;
        place_ui(ui, "under groups", rest, |ui| {
            total_ui(ui, explained);
            if let Some(row) = chosen.filter(|_| can_click) {
                action = chosen_ui(ui, row);
            }
        });
        let rows = rows(explained, looks);
        let is_state = explained.explanation.peak.is_state;
        let name = if is_state { "Groups of the state" } else { "Groups of the peak" };
        let touched = place_ui(ui, "groups", place, |ui| self.0.table_ui(ui, name, &rows));
        let linked = touched.chosen.filter(|_| touched.column == Some(rows.columns.len() - 1));
        // In a recording without events there is nothing to go to.
        if let Some(row) = touched.opened.or(linked).and_then(row_of).filter(|row| !row.without.is_state) {
            action = Some(Action::Event(row.without.number()));
        }
        action
    }

    /// Returns the rows in the displayed order, with sizes in bytes, then the rest and the total.
    pub(super) fn csv(&self, explained: &Explained) -> String {
        self.0.csv(&rows(explained, Looks { colouring: None, leak: None }))
    }
}

/// The largest group is first by default.
fn rows<'a>(explained: &'a Explained, looks: Looks<'a>) -> ShownTable<'a> {
    let (rows, total) = (&explained.rows, explained.bytes);
    let most = rows.iter().map(|row| row.bytes).max().unwrap_or(0).max(1);
    let is_state = explained.explanation.peak.is_state;
    let (bytes, of_bytes) = match is_state {
        true => ("bytes", "Bytes of the group."),
        false => ("at the peak", "Bytes of the group at the peak."),
    };
    let of = |row: usize| rows.get(row);
    let without = move |row: usize| of(row).map(|row| &row.without);
    let sums = sums(explained);
    let sum = Rc::clone(&sums);
    let figures: [ShownColumn<'a>; FIGURES] = [
        Column::bytes("bytes_at_peak", bytes, move |row| {
            of(row).map_or_else(|| sum[row - rows.len()].1, |row| row.bytes)
        })
        .wide(80.0, of_bytes)
        .with_bars()
        .look(move |row, cell| Cell { share: Some((rows[row].bytes as f64 / most as f64) as f32), ..cell }),
        Column::shown_alone("share", true, move |row| format_share(rows[row].bytes, total))
            .wide(50.0, "Share of the listed bytes.")
            .fixed(),
        Column::count("blocks_at_peak", "blocks", move |row| of(row).map(|row| row.blocks))
            .wide(50.0, "Number of blocks."),
        Column::bytes("peak_without", "without it", move |row| without(row).map(|peak| peak.bytes))
            .wide(80.0, "The peak without any block of the group, over the whole recording."),
        Column::bytes("saved_bytes", "saves", move |row| of(row).map(|row| row.saved))
            .wide(
                78.0,
                "How much lower that peak is; less than the size of the group if the peak moves to another moment.",
            )
            .look(|row, cell| Cell { is_faint: rows[row].saved == 0, ..cell }),
        Column::shown_alone("new peak at", false, |row| when(&rows[row].without))
            .wide(200.0, "The moment of that peak. Click or press Enter to go there.")
            .ordered_by(|row| rows[row].without.number())
            .look(|row, cell| Cell { is_link: !rows[row].without.is_state, ..cell }),
    ];
    let files = [
        Column::number("new_peak_step", "", move |row| without(row).map(|peak| peak.step)),
        Column::text("new_peak_phase", "", move |row| without(row).map(|peak| peak.phase.name())),
        Column::number("new_peak_event", "", move |row| without(row).map(Moment::number)),
    ];
    let keys = explained.keys.list().into_iter().enumerate();
    let keys = keys.map(|(at, key)| key_column(rows, looks, (at, key), Rc::clone(&sums)));
    let mut shown: Vec<_> = keys.chain(figures).collect();
    let hidden = shown.split_off(shown.len() - if is_state { FIGURES - OF_STATE } else { 0 });
    let hidden = hidden.into_iter().map(|column| column.data).filter(Column::is_in_csv);
    ShownTable::new(rows.len(), shown).with_files(hidden.chain(files), sums.len())
}

/// The rows below the groups in files.
fn sums(explained: &Explained) -> Rc<[(String, u64)]> {
    let Explanation { rest_groups, rest_bytes, .. } = explained.explanation;
    let rest = (rest_groups > 0).then(|| (count_of(rest_groups, "more group"), rest_bytes));
    rest.into_iter().chain([("total".to_owned(), explained.bytes)]).collect()
}

/// The column of the key with index `at`. The first key's column also has the labels of the sums.
fn key_column<'a>(
    rows: &'a [Row],
    looks: Looks<'a>,
    (at, key): (usize, GroupKey),
    sums: Rc<[(String, u64)]>,
) -> ShownColumn<'a> {
    // The first key takes the remaining width; so do all keys with long values.
    let width = if at == 0 { 0.0 } else { least_width(key).unwrap_or(0.0) };
    let look = move |row: usize, cell: Cell| Cell { swatch: looks.colour(key, &rows[row].in_full[at]), ..cell };
    let in_full = move |row: usize| match rows.get(row) {
        Some(row) => row.in_full[at].clone(),
        None if at == 0 => sums[row - rows.len()].0.clone(),
        None => String::new(),
    };
    let name = move |row: usize| {
        let name = rows[row].names[at].clone();
        if key == GroupKey::Category { looks.name(name) } else { name }
    };
    Column::text(key.name(), key_name(TreeKey::By(key)), in_full)
        .shown(name)
        .wide(width, "The value that all blocks of the group have in common.")
        .ordered_by(move |row| by_value(key, &rows[row].in_full[at]))
        .look(look)
        .tip(move |row| Some(rows[row].in_full[at].clone()).filter(|text| *text != rows[row].names[at]))
}

/// The width of a key's column in points; `None` if its values may be long.
fn least_width(key: GroupKey) -> Option<f32> {
    match key {
        GroupKey::Category | GroupKey::Lifetime => Some(126.0),
        GroupKey::Phase => Some(80.0),
        GroupKey::Step | GroupKey::Pool => Some(54.0),
        key => key.has_numbers().then_some(96.0),
    }
}

/// Returns the sort key of a value; numbers are sorted numerically, after all other values.
fn by_value(key: GroupKey, value: &str) -> Value {
    if key.has_numbers() { parse_bytes(value).ok().into() } else { value.into() }
}

fn total_ui(ui: &mut Ui, explained: &Explained) {
    let explanation = &explained.explanation;
    ui.add(Separator::default().spacing(2.0));
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

fn chosen_ui(ui: &mut Ui, row: &Row) -> Option<Action> {
    let mut action = None;
    ui.allocate_ui(vec2(ui.available_width(), theme::ROW_HEIGHT), |ui| {
        ui.horizontal(|ui| {
            let button = ui.add_enabled(row.condition.is_some(), Button::new("Only these").small());
            let button = button.on_disabled_hover_text("No condition selects exactly these blocks.");
            let why = row.condition.as_ref().map_or_else(String::new, |text| format!("Adds the condition {text}"));
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
