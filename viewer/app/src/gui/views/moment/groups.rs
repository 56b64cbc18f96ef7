//! Shows the groups as a table, with one row per distinct value of the keys; the rows add up to the total.

use eframe::egui::{Align, FontId, Layout, Ui};
use highwater_analysis::NodeId;
use highwater_analysis::tree::Part;
use highwater_snapshots::{count_of, format_bytes, format_share};

use super::job::{Answer, Order};
use super::names;
use super::tile::{self, Act};
use crate::gui::widgets::{Cell, MEANING_OF_NONE, ShownTable, TableState, fit, place_ui, table_ui, theme};
use crate::report::Column;

/// Returns the order selected in the table, and whether it is descending.
pub(super) fn order_of(state: &TableState) -> (Order, bool) {
    match state.sort {
        Some((0, is_falling)) => (Order::Name, is_falling),
        Some((3, is_falling)) => (Order::Blocks, is_falling),
        Some((_, is_falling)) => (Order::Bytes, is_falling),
        None => (Order::Bytes, true),
    }
}

pub(super) fn groups_ui(ui: &mut Ui, answer: &Answer, state: &mut TableState) -> Option<Act> {
    let whole = ui.available_rect_before_wrap();
    // A few rows say more than their sum, unless they are those of a search, of which no other sum is shown.
    let is_search = !answer.request.source.matches.is_all();
    let has_total = is_search || whole.height() + 1.0 > needed_height(answer).min(6.0 * theme::ROW_HEIGHT);
    let below = if has_total { theme::ROW_HEIGHT + 8.0 } else { 0.0 };
    let rows = &answer.rows;
    let place = whole.with_max_y(whole.bottom().min(whole.top() + needed_height(answer)) - below);
    // The order may have changed since the row was selected.
    let chosen = answer.chosen.as_ref().map(|chosen| chosen.node);
    let is_elsewhere = state.chosen.and_then(|row| rows.get(row)).copied() != chosen;
    if is_elsewhere && !ui.memory(|memory| memory.focused().is_some()) {
        state.chosen = chosen.and_then(|id| rows.iter().take(10_000).position(|row| *row == id));
    }
    let touched =
        place_ui(ui, "rows", place, |ui| table_ui(ui, "Groups", &table_rows(ui, answer, place.width()), state));
    if has_total {
        place_ui(ui, "total", whole.with_min_y(place.bottom()), |ui| total_ui(ui, answer));
    }
    let node = |row: Option<usize>| row.and_then(|row| rows.get(row)).copied();
    match (node(touched.opened), node(touched.chosen)) {
        (Some(id), _) => Some(Act::Filter(id)),
        (None, Some(id)) => Some(Act::Choose(id)),
        _ => None,
    }
}

/// Maximum share of the width for names in a table with bars.
const NAMES_PART: f32 = 0.4;
/// Minimum width, in points, of the other columns of a table with bars.
const FIGURES_WIDTH: f32 = 247.0;

/// Returns the height of the rows and of their sum, in points.
pub(super) fn needed_height(answer: &Answer) -> f32 {
    (answer.rows.len() as f32 + 2.5) * theme::ROW_HEIGHT + 8.0
}

/// Returns the width of the names in a table of `width` points with bars, which take the rest; `None` if there is not
/// enough room for both.
fn name_width(ui: &Ui, answer: &Answer, width: f32) -> Option<f32> {
    let names = answer.rows.iter().take(50).map(|row| name(answer, *row));
    let longest = fit::widest(ui, names, &FontId::proportional(13.0));
    let needed = (longest + theme::SWATCH + 22.0).min(width * NAMES_PART).max(theme::MIN_OPEN_COLUMN);
    Some(needed).filter(|needed| needed + FIGURES_WIDTH <= width)
}

fn table_rows<'a>(ui: &Ui, answer: &'a Answer, width: f32) -> ShownTable<'a> {
    let own = |row: usize| answer.own(answer.rows[row]);
    let colour = move |row: usize| tile::row_colour(answer, answer.rows[row]);
    let in_full = |row: usize| {
        let mut full = answer.in_full(answer.rows[row]);
        if full == "(none)" {
            full = format!("{full}: {MEANING_OF_NONE}");
        }
        Some(full).filter(|text| !text.is_empty())
    };
    let total = answer.tree.node(answer.focus).bytes;
    let for_bars = name_width(ui, answer, width);
    let [name_width, share_width] = for_bars.map_or([0.0, 50.0], |names| [names, 0.0]);
    let columns = [
        Column::text("name", "name", |row| name(answer, answer.rows[row]))
            .wide(name_width, "The value that all blocks of the group have in common.")
            .look(move |row, cell| Cell { swatch: colour(row), ..cell })
            .tip(in_full),
        Column::bytes("bytes", "bytes", move |row| own(row).0).wide(82.0, "Sum of the bytes in this group."),
        Column::shown_alone("share", true, move |row| format_share(own(row).0, total))
            .wide(share_width, "Share of the bytes shown.")
            .fixed()
            .look(move |row, cell| Cell {
                share: for_bars.map(|_| own(row).0 as f32 / total.max(1) as f32),
                bar: colour(row),
                ..cell
            }),
        Column::count("blocks", "blocks", move |row| own(row).1)
            .wide(48.0, "Number of blocks.")
            .look(|_, cell| Cell { is_faint: true, ..cell }),
    ];
    ShownTable::new(answer.rows.len(), columns)
}

/// Returns the name of a row, for identical modules with their number and the size of each, for a block with its
/// origin.
fn name(answer: &Answer, id: NodeId) -> String {
    let (recording, tree) = (&answer.request.source.recording, &answer.tree);
    let node = tree.node(id);
    let mut text = answer.labels.get(&id).cloned().unwrap_or_else(|| names::label(recording, tree, id));
    let count = answer.nodes(&id).len();
    if count > 1 {
        text = format!("{text}  {count} × {}", format_bytes(node.own_bytes));
    }
    match node.part {
        Part::Block(block) => match names::maker(&recording.trace, block).as_str() {
            "" => text,
            maker => format!("{text} by {maker}"),
        },
        _ => text,
    }
}

fn total_ui(ui: &mut Ui, answer: &Answer) {
    let focus = answer.tree.node(answer.focus);
    ui.separator();
    ui.horizontal(|ui| {
        let groups = count_of(answer.rows.len() as u64, "group");
        let blocks = count_of(u64::from(focus.blocks), "block");
        ui.label(format!("Total of {groups}, {blocks}"));
        ui.with_layout(Layout::right_to_left(Align::Center), |ui| ui.strong(format_bytes(focus.bytes)));
    });
}
