//! Shows the groups as a table, with one row per distinct value of the keys; the rows add up to the total.

use eframe::egui::{Align, Layout, Rect, Ui, UiBuilder};
use highwater_analysis::NodeId;
use highwater_analysis::tree::Part;
use highwater_snapshots::{count_of, format_bytes, format_share};

use super::job::{Answer, Order};
use super::names;
use super::tile::{self, Act};
use crate::gui::widgets::{Cell, Column, MEANING_OF_NONE, Rows, TableState, place_ui, table_ui, theme};

/// The order of the table's state, and whether it is descending.
pub(super) fn order_of(state: &TableState) -> (Order, bool) {
    match state.sort {
        Some((0, is_falling)) => (Order::Name, is_falling),
        Some((3, is_falling)) => (Order::Blocks, is_falling),
        Some((_, is_falling)) => (Order::Bytes, is_falling),
        None => (Order::Bytes, true),
    }
}

/// Shows the rows of the answer, and their sum below.
pub(super) fn groups_ui(ui: &mut Ui, answer: &Answer, state: &mut TableState) -> Option<Act> {
    let whole = ui.available_rect_before_wrap();
    let below = theme::ROW_HEIGHT + 8.0;
    let rows = &answer.rows;
    // The sum is right below the rows.
    let height = (rows.len() as f32 + 1.5) * theme::ROW_HEIGHT;
    let place = whole.with_max_y((whole.bottom() - below).min(whole.top() + height));
    // The order may have changed since the row was selected.
    let chosen = answer.chosen.as_ref().map(|chosen| chosen.node);
    let is_elsewhere = state.chosen.and_then(|row| rows.get(row)).copied() != chosen;
    if is_elsewhere && !ui.memory(|memory| memory.focused().is_some()) {
        state.chosen = chosen.and_then(|id| rows.iter().take(10_000).position(|row| *row == id));
    }
    let touched = place_ui(ui, "rows", place, |ui| table_ui(ui, "Groups", &table_rows(answer, place.width()), state));
    let rest = Rect::from_min_max(eframe::egui::pos2(whole.left(), place.bottom()), whole.max);
    ui.scope_builder(UiBuilder::new().max_rect(rest), |ui| total_ui(ui, answer));
    let node = |row: Option<usize>| row.and_then(|row| rows.get(row)).copied();
    match (node(touched.opened), node(touched.chosen)) {
        (Some(id), _) => Some(Act::Filter(id)),
        (None, Some(id)) => Some(Act::Choose(id)),
        _ => None,
    }
}

/// Minimum width of a table for bars next to the shares, and the least and greatest length of these.
const WIDTH_WITH_BARS: f32 = 330.0;
const BARS: [f32; 2] = [40.0, 150.0];
/// Width of the name before bars grow.
const NAME_WIDTH: f32 = 190.0;

/// Widths of the other columns.
const BYTES_WIDTH: f32 = 82.0;
const BLOCKS_WIDTH: f32 = 48.0;

/// The rows, already in order, for a table of `width` points.
fn table_rows(answer: &Answer, width: f32) -> Rows<'_> {
    let (recording, tree) = (&answer.request.source.recording, &answer.tree);
    let own = |row: usize| answer.own(answer.rows[row]);
    let colour = move |row: usize| tile::row_colour(answer, answer.rows[row]);
    let look = move |row: usize, cell: Cell| {
        let part = &tree.node(answer.rows[row]).part;
        Cell { swatch: colour(row), keeps_end: matches!(part, Part::Scope(_)), ..cell }
    };
    let in_full = |row: usize| {
        let full = |id: &NodeId| names::in_full(recording, tree, *id).join("\n").replace("; ", "\n");
        let mut full = answer.nodes(&answer.rows[row]).iter().map(full).collect::<Vec<_>>().join("\n");
        if full == "(none)" {
            full = format!("{full}: {MEANING_OF_NONE}");
        }
        Some(full).filter(|text| !text.is_empty())
    };
    let total = tree.node(answer.focus).bytes;
    let has_bars = width >= WIDTH_WITH_BARS;
    let room = width - theme::SHARE_WIDTH - BYTES_WIDTH - BLOCKS_WIDTH - NAME_WIDTH;
    let share_width = if has_bars { theme::SHARE_WIDTH + room.clamp(BARS[0], BARS[1]) } else { 50.0 };
    let columns = [
        Column::text(("Name", 0.0), "The value that these blocks have in common.", |row| {
            name(answer, answer.rows[row])
        })
        .look(look)
        .tip(in_full),
        Column::bytes(("Bytes", BYTES_WIDTH), "Sum of their bytes.", move |row| own(row).0),
        Column::figure(("Share", share_width), "Their share of the bytes shown.", move |row| {
            format_share(own(row).0, total)
        })
        .fixed()
        .look(move |row, cell| Cell {
            share: has_bars.then(|| own(row).0 as f32 / total.max(1) as f32),
            bar: colour(row),
            ..cell
        }),
        Column::count(("Blocks", BLOCKS_WIDTH), "Number of blocks.", move |row| own(row).1),
    ];
    Rows::new(answer.rows.len(), columns)
}

/// The name of a row: for identical modules, including the size of each; for a block, including its origin.
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
        ui.strong(format!("Total of {groups}, {blocks}"));
        ui.with_layout(Layout::right_to_left(Align::Center), |ui| ui.strong(format_bytes(focus.bytes)));
    });
}
