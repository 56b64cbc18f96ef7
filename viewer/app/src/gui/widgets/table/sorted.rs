//! A table that sorts its rows by the column that the user clicks.

use eframe::egui::Ui;

use super::{ShownTable, TableState, Touched, shown_ui};
use crate::report::Value;

/// The state of a sorted table. Rows are identified by their index in the unsorted table.
#[derive(Clone, Debug, Default)]
pub(crate) struct SortedTable {
    state: TableState,
    order: Vec<usize>,
}

impl SortedTable {
    /// Replaces the rows. The sort order is kept if its column still exists, and no row is selected.
    pub(crate) fn renew(&mut self, rows: &ShownTable<'_>) {
        self.state.sort = self.state.sort.filter(|(column, _)| *column < rows.columns.len());
        self.state.chosen = None;
        self.sort(rows);
    }

    pub(crate) fn table_ui(&mut self, ui: &mut Ui, label: &str, rows: &ShownTable<'_>) -> Touched {
        let Self { state, order } = self;
        let row_of = |row: usize| order.get(row).copied();
        let touched = shown_ui(ui, label, (&rows.columns, order.len()), state, row_of);
        let of = |row: Option<usize>| row.and_then(row_of);
        let [hovered, chosen, opened] = [touched.hovered, touched.chosen, touched.opened].map(of);
        if touched.is_resorted {
            self.sort(rows);
        }
        Touched { hovered, chosen, opened, ..touched }
    }

    fn sort(&mut self, rows: &ShownTable<'_>) {
        self.order = (0..rows.count).collect();
        let free = rows.count - rows.sums.min(rows.count);
        let column = self.state.sort.and_then(|(column, is_falling)| Some((rows.columns.get(column)?, is_falling)));
        if let Some((column, is_falling)) = column {
            let values: Vec<Value> = (0..free).map(|row| column.order(row)).collect();
            // Equal rows keep their order.
            self.order[..free].sort_by(|a, b| {
                let order = values[*a].compare(&values[*b]);
                if is_falling { order.reverse() } else { order }
            });
        }
    }

    pub(crate) fn order(&self) -> &[usize] {
        &self.order
    }

    pub(crate) fn chosen(&self) -> Option<usize> {
        self.order.get(self.state.chosen?).copied()
    }

    pub(crate) fn choose(&mut self, row: usize) {
        if let Some(at) = self.position(row) {
            self.state.choose(at);
        }
    }

    /// Selects a row, or none, without scrolling.
    pub(crate) fn mark(&mut self, row: Option<usize>) {
        self.state.chosen = row.and_then(|row| self.position(row));
    }

    fn position(&self, row: usize) -> Option<usize> {
        self.order.iter().position(|other| *other == row)
    }

    pub(crate) fn rewind(&mut self) {
        self.state.first = 0;
    }

    pub(crate) fn focus(&mut self) {
        self.state.focus();
    }

    /// The rows in the displayed order as CSV, with exact figures.
    pub(crate) fn csv(&self, rows: &ShownTable<'_>) -> String {
        rows.csv(&self.order)
    }
}
