//! The segments of a moment as a table.

use std::sync::Arc;

use eframe::egui::Ui;
use highwater_analysis::addresses::HeldSegment;
use highwater_snapshots::units::{format_bytes, format_count};

use super::known::State;
use crate::gui::widgets::table::{Cell, Column, TableState, Touched, table_ui};
use crate::report::{self, Table, Value};

const COLUMNS: [Column; 9] = [
    column("pool", "The pool of the segment: small or large, default or private.", 0.0, false),
    column("stream", "The stream of the segment.", 50.0, true),
    column("address", "The first address.", 116.0, true),
    column("bytes", "Bytes reserved from the driver, without unmapped parts.", 72.0, true),
    column("use", "Share of live blocks, including rounding.", 66.0, true),
    column("largest free", "The largest free range.", 84.0, true),
    column("free", "Sum of all free ranges.", 80.0, true),
    column("waiting", "Bytes of freed blocks that wait for a stream.", 66.0, true),
    column("blocks", "Number of live and waiting blocks.", 54.0, true),
];

const fn column(name: &'static str, tooltip: &'static str, width: f32, is_number: bool) -> Column {
    Column { name, tooltip, width, is_number, is_sortable: true }
}

/// The table's state, and its rows in order.
#[derive(Debug, Default)]
pub(super) struct List {
    table: TableState,
    /// Rows of the map's segments in order.
    rows: Vec<usize>,
    /// The key of the order: the state, and the column.
    sorted: Option<Arc<State>>,
    sort: Option<(usize, bool)>,
}

impl List {
    /// Shows the table; `chosen` is the first address of the selected segment. Returns the user's action, by map row.
    pub(super) fn list_ui(&mut self, ui: &mut Ui, state: &Arc<State>, chosen: Option<u64>) -> Touched {
        let segments = &state.map.segments;
        self.sort(state);
        self.table.chosen = chosen.and_then(|address| {
            self.rows.iter().position(|row| segments.get(*row).is_some_and(|held| held.addresses.start == address))
        });
        let rows = &self.rows;
        let cell = |row: usize, column: usize| match rows.get(row).and_then(|row| segments.get(*row)) {
            Some(segment) => cell(segment, column),
            None => Cell::default(),
        };
        let mut touched = table_ui(ui, "Segments", &COLUMNS, rows.len(), &mut self.table, cell);
        for row in [&mut touched.hovered, &mut touched.chosen, &mut touched.opened] {
            *row = row.and_then(|row| rows.get(row).copied());
        }
        touched
    }

    /// Scrolls to the segment in row `segment` of the map.
    pub(super) fn show(&mut self, segment: usize) {
        if let Some(row) = self.rows.iter().position(|row| *row == segment) {
            self.table.choose(row);
        }
    }

    /// The table as CSV, sizes in bytes.
    pub(super) fn csv(&mut self, state: &Arc<State>) -> String {
        self.sort(state);
        let of = |row: usize| &state.map.segments[self.rows[row]];
        let columns = COLUMNS.iter().enumerate().map(|(at, column)| {
            report::Column::text(column.name, "", move |row| match at {
                0 => Value::from(pool_text(of(row))),
                2 => format!("{:#x}", of(row).addresses.start).into(),
                4 => share(of(row)).into(),
                _ => number(of(row), at).into(),
            })
        });
        Table::new(self.rows.len(), columns).csv()
    }

    fn sort(&mut self, state: &Arc<State>) {
        let is_same = self.sorted.as_ref().is_some_and(|sorted| Arc::ptr_eq(sorted, state));
        if is_same && self.sort == self.table.sort {
            return;
        }
        let segments = &state.map.segments;
        self.rows.clone_from(&state.order);
        if let Some((column, is_falling)) = self.table.sort {
            self.rows.sort_by(|one, other| {
                let (one, other) = (&segments[*one], &segments[*other]);
                let order = match column {
                    0 => one.home.cmp(&other.home),
                    4 => share(one).total_cmp(&share(other)),
                    _ => number(one, column).cmp(&number(other, column)),
                };
                if is_falling { order.reverse() } else { order }
            });
        }
        (self.sorted, self.sort) = (Some(Arc::clone(state)), self.table.sort);
    }
}

/// The share of a segment in live blocks.
fn share(segment: &HeldSegment) -> f64 {
    segment.usage.allocated() as f64 / segment.usage.held().max(1) as f64
}

fn number(segment: &HeldSegment, column: usize) -> u64 {
    let usage = &segment.usage;
    match column {
        1 => segment.home.stream.0,
        2 => segment.addresses.start,
        3 => usage.held(),
        5 => usage.largest_hole,
        6 => usage.free,
        7 => usage.waiting,
        _ => usage.blocks,
    }
}

/// `large, expandable`, `private small 0.1`.
fn pool_text(segment: &HeldSegment) -> String {
    let pool = segment.home.pool_text().replacen(" pool", "", 1);
    if segment.is_expandable { format!("{pool}, expandable") } else { pool }
}

fn cell(segment: &HeldSegment, column: usize) -> Cell {
    let is_none = column > 3 && column != 4 && number(segment, column) == 0;
    let text = match column {
        0 => pool_text(segment),
        1 => segment.home.stream.0.to_string(),
        2 => format!("{:#x}", segment.addresses.start),
        4 => format!("{:.1}%", share(segment) * 100.0),
        8 => format_count(segment.usage.blocks),
        _ if is_none => "-".to_owned(),
        _ => format_bytes(number(segment, column)),
    };
    let share = (column == 4).then(|| share(segment) as f32);
    Cell { text, share, is_faint: is_none, ..Cell::default() }
}
