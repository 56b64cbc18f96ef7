//! The groups as a table: one row for each distinct value of the keys; the rows add up to the total.

use eframe::egui::{Align, Layout, Rect, Ui, UiBuilder};
use highwater_analysis::tree::{NodeId, Part};
use highwater_snapshots::units::format_bytes;

use super::job::{Answer, Order};
use super::names::{self, counted};
use super::tile::{self, Act, What};
use crate::gui::legend::share;
use crate::gui::widgets::table::{Cell, Column, TableState, table_with_tips_ui};
use crate::gui::widgets::theme;

const COLUMNS: [Column; 4] = [
    Column {
        name: "Name",
        tooltip: "The value that these blocks have in common.",
        width: 0.0,
        is_number: false,
        is_sortable: true,
    },
    Column { name: "Bytes", tooltip: "Sum of their bytes.", width: 82.0, is_number: true, is_sortable: true },
    Column {
        name: "Share",
        tooltip: "Their share of the bytes shown.",
        width: 50.0,
        is_number: true,
        is_sortable: false,
    },
    Column { name: "Blocks", tooltip: "Number of blocks.", width: 58.0, is_number: true, is_sortable: true },
];

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
    let place = Rect::from_min_max(whole.min, whole.max - eframe::egui::vec2(0.0, below));
    let rows = &answer.rows;
    // The order may have changed since the row was selected.
    let chosen = answer.chosen.as_ref().map(|chosen| chosen.node);
    let is_elsewhere = state.chosen.and_then(|row| rows.get(row)).copied() != chosen;
    if is_elsewhere && !ui.memory(|memory| memory.focused().is_some()) {
        state.chosen = chosen.and_then(|id| rows.iter().take(10_000).position(|row| *row == id));
    }
    let touched = ui
        .scope_builder(UiBuilder::new().id_salt("rows").max_rect(place), |ui| {
            let recording = &answer.request.source.recording;
            let tip = |row: usize, column: usize| {
                let in_full = || {
                    let full =
                        |id: &NodeId| names::in_full(recording, &answer.tree, *id).join("\n").replace("; ", "\n");
                    answer.nodes(&rows[row]).iter().map(full).collect::<Vec<_>>().join("\n")
                };
                (column == 0).then(in_full).filter(|text| !text.is_empty())
            };
            let cell = |row: usize, column: usize| cell(answer, rows[row], column);
            table_with_tips_ui(ui, "Groups", &COLUMNS, rows.len(), state, (cell, tip))
        })
        .inner;
    let rest = Rect::from_min_max(eframe::egui::pos2(whole.left(), place.bottom()), whole.max);
    ui.scope_builder(UiBuilder::new().max_rect(rest), |ui| total_ui(ui, answer));
    let node = |row: Option<usize>| row.and_then(|row| rows.get(row)).copied();
    match (node(touched.opened), node(touched.chosen)) {
        (Some(id), _) => Some(Act::Filter(id)),
        (None, Some(id)) => Some(Act::Choose(id)),
        _ => None,
    }
}

fn cell(answer: &Answer, id: NodeId, column: usize) -> Cell {
    let (recording, tree) = (&answer.request.source.recording, &answer.tree);
    let node = tree.node(id);
    let (own_bytes, own_blocks) = answer.own(id);
    match column {
        0 => {
            let mut text = match answer.labels.get(&id) {
                Some(label) => label.clone(),
                None => names::label(recording, tree, id),
            };
            if let [_, _, ..] = answer.nodes(&id) {
                let count = answer.nodes(&id).len();
                text = format!("{text}  {count} × {}", format_bytes(node.own_bytes));
            }
            if let Part::Block(block) = node.part {
                let maker = names::maker(&recording.trace, block);
                if !maker.is_empty() {
                    text = format!("{text} by {maker}");
                }
            }
            let has_fixed_colour = matches!(node.part, Part::Category(_) | Part::Block(_));
            let swatch = has_fixed_colour.then(|| tile::colour(answer, What::Node(id)));
            let most = answer.most.max(1);
            let keeps_end = matches!(node.part, Part::Scope(_));
            Cell { text, swatch, share: Some((own_bytes as f64 / most as f64) as f32), keeps_end, ..Cell::default() }
        }
        1 => format_bytes(own_bytes).into(),
        2 => share(own_bytes, tree.node(answer.focus).bytes).into(),
        _ => highwater_snapshots::units::format_count(own_blocks).into(),
    }
}

fn total_ui(ui: &mut Ui, answer: &Answer) {
    let focus = answer.tree.node(answer.focus);
    ui.separator();
    ui.horizontal(|ui| {
        let groups = counted(answer.rows.len() as u64, "group");
        let blocks = counted(u64::from(focus.blocks), "block");
        ui.strong(format!("Total of {groups}, {blocks}"));
        ui.with_layout(Layout::right_to_left(Align::Center), |ui| ui.strong(format_bytes(focus.bytes)));
    });
}
