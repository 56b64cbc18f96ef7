//! The table of segments at a moment.

use std::sync::Arc;

use eframe::egui::Ui;
use highwater_analysis::ReservedSegment;
use highwater_analysis::addresses::Usage;
use highwater_snapshots::{format_bytes, format_share};

use super::known::State;
use crate::gui::widgets::{Cell, ShownTable, SortedTable, Touched};
use crate::report::Column;

#[derive(Debug, Default)]
pub(super) struct List {
    table: SortedTable,
    shown: Option<Arc<State>>,
}

impl List {
    /// Shows the table; `chosen` is the first address of the selected segment. The rows of the result are indices of
    /// segments in the map.
    pub(super) fn list_ui(&mut self, ui: &mut Ui, state: &Arc<State>, chosen: Option<u64>) -> Touched {
        self.renew(state);
        let is_chosen = |row: &usize| state.map.segments.get(*row).map(|segment| segment.addresses.start) == chosen;
        self.table.mark(chosen.and_then(|_| state.order.iter().position(is_chosen)));
        let mut touched = self.table.table_ui(ui, "Segments", &rows(state));
        for row in [&mut touched.hovered, &mut touched.chosen, &mut touched.opened] {
            *row = row.and_then(|row| state.order.get(row).copied());
        }
        touched
    }

    /// Selects the segment with index `segment` in the map, and scrolls to it.
    pub(super) fn show(&mut self, segment: usize) {
        let row = self.shown.as_ref().and_then(|state| state.order.iter().position(|row| *row == segment));
        if let Some(row) = row {
            self.table.choose(row);
        }
    }

    /// Returns the table as CSV, with sizes in bytes.
    pub(super) fn csv(&mut self, state: &Arc<State>) -> String {
        self.renew(state);
        self.table.csv(&rows(state))
    }

    fn renew(&mut self, state: &Arc<State>) {
        if !self.shown.as_ref().is_some_and(|shown| Arc::ptr_eq(shown, state)) {
            self.table.renew(&rows(state));
            self.shown = Some(Arc::clone(state));
        }
    }
}

/// Returns the segments as table rows, sorted by pool and stream, then by address.
fn rows(state: &State) -> ShownTable<'_> {
    let segments = &state.map.segments;
    let of = move |row: usize| &segments[state.order[row]];
    let home = move |row: usize| state.order.partition_point(|other| segments[*other].home < of(row).home);
    let used = move |row: usize| of(row).usage.allocated() as f64 / of(row).usage.reserved().max(1) as f64;
    let bytes = |[key, title]: [&'static str; 2], bytes: fn(&Usage) -> u64| {
        let bytes = move |row: usize| bytes(&of(row).usage);
        let shown = move |row: usize| if bytes(row) == 0 { "-".to_owned() } else { format_bytes(bytes(row)) };
        let faint = move |row: usize, cell: Cell| Cell { is_faint: bytes(row) == 0, ..cell };
        move |width: f32, tooltip: &'static str| {
            Column::bytes(key, title, bytes).shown(shown).wide(width, tooltip).look(faint)
        }
    };
    let address = move |row: usize| of(row).addresses.start;
    let columns = [
        Column::text("pool", "pool", move |row| pool_text(of(row)))
            .wide(0.0, "The pool of the segment: small or large, default or private.")
            .ordered_by(home),
        Column::number("stream", "stream", move |row| of(row).home.stream.0).wide(50.0, "The stream of the segment."),
        Column::number("address", "address", address)
            .shown(move |row| format!("{:#x}", address(row)))
            .wide(116.0, "The first address."),
        Column::bytes("bytes", "bytes", move |row| of(row).usage.reserved())
            .wide(72.0, "Bytes reserved from the driver, without unmapped parts."),
        Column::number("used_share", "use", used)
            .shown(move |row| format_share(of(row).usage.allocated(), of(row).usage.reserved()))
            .wide(66.0, "Share of live blocks, including rounding.")
            .look(move |row, cell| Cell { share: Some(used(row) as f32), ..cell }),
        bytes(["largest_free_bytes", "largest free"], |usage| usage.largest_hole)(84.0, "The largest free range."),
        bytes(["free_bytes", "free"], |usage| usage.free)(80.0, "Sum of all free ranges."),
        bytes(["waiting_bytes", "waiting"], |usage| usage.waiting)(
            66.0,
            "Bytes of freed blocks awaiting free, because another stream still uses them.",
        ),
        Column::count("blocks", "blocks", move |row| of(row).usage.blocks)
            .wide(54.0, "Number of blocks that are live or awaiting free.")
            .look(move |row, cell| Cell { is_faint: of(row).usage.blocks == 0, ..cell }),
    ];
    ShownTable::new(state.order.len(), columns)
}

/// Describes the pool, such as `large, expandable` or `private small 0.1`.
fn pool_text(segment: &ReservedSegment) -> String {
    let pool = segment.home.pool_text().replacen(" pool", "", 1);
    if segment.is_expandable { format!("{pool}, expandable") } else { pool }
}
