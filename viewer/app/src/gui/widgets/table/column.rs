//! The columns of a report as shown in a window, with their widths, tooltips and cells.

use eframe::egui::Color32;

use crate::report::{Column, IntoValue, Table, Value};

#[derive(Clone, Debug, Default)]
pub(crate) struct Cell {
    pub text: String,
    /// The text for screen readers and copies, if it is longer.
    pub whole: Option<String>,
    /// The colour of a square before the text.
    pub swatch: Option<Color32>,
    /// The length of a bar beside or below a number, or behind a text, from 0 to 1 of the space for it.
    pub share: Option<f32>,
    /// The colour of the bar; `None` for the default colour.
    pub bar: Option<Color32>,
    /// The length of a bar that extends left or right from the middle of the space before the figure, from -1 to 1.
    pub diverging: Option<f32>,
    pub is_faint: bool,
    pub is_link: bool,
}

pub(crate) struct ShownColumn<'a> {
    pub data: Column<'a>,
    pub tooltip: &'static str,
    /// The width in points; 0 takes the remaining width.
    pub width: f32,
    pub is_sortable: bool,
    /// Whether the column has bars, which use the space that texts do not need.
    pub(super) has_bars: bool,
    order: Option<Box<dyn Fn(usize) -> Value + 'a>>,
    look: Option<Box<dyn Fn(usize, Cell) -> Cell + 'a>>,
    tip: Option<Box<dyn Fn(usize) -> Option<String> + 'a>>,
}

impl<'a> Column<'a> {
    pub(crate) fn wide(self, width: f32, tooltip: &'static str) -> ShownColumn<'a> {
        let (is_sortable, has_bars) = (true, false);
        ShownColumn { data: self, tooltip, width, is_sortable, has_bars, order: None, look: None, tip: None }
    }
}

impl<'a> ShownColumn<'a> {
    /// Disables sorting by the column.
    pub(crate) fn fixed(self) -> Self {
        Self { is_sortable: false, ..self }
    }

    pub(crate) fn with_bars(self) -> Self {
        Self { has_bars: true, ..self }
    }

    pub(crate) fn ordered_by<V: IntoValue>(self, value: impl Fn(usize) -> V + 'a) -> Self {
        Self { order: Some(Box::new(move |row| value(row).into())), ..self }
    }

    pub(crate) fn look(self, look: impl Fn(usize, Cell) -> Cell + 'a) -> Self {
        Self { look: Some(Box::new(look)), ..self }
    }

    /// Shows the text that `tip` returns for a row as the tooltip of its cell, if any, instead of the exact value.
    pub(crate) fn tip(self, tip: impl Fn(usize) -> Option<String> + 'a) -> Self {
        Self { tip: Some(Box::new(tip)), ..self }
    }

    pub(super) fn order(&self, row: usize) -> Value {
        self.order.as_ref().map_or_else(|| self.data.value(row), |order| order(row))
    }

    pub(super) fn cell(&self, row: usize) -> Cell {
        let cell = Cell { text: self.data.cell(row), ..Cell::default() };
        match &self.look {
            Some(look) => look(row, cell),
            None => cell,
        }
    }

    pub(super) fn tooltip(&self, row: usize) -> Option<String> {
        match &self.tip {
            Some(tip) => tip(row),
            None => self.data.unit.exact(&self.data.value(row)),
        }
    }
}

pub(crate) struct ShownTable<'a> {
    pub columns: Vec<ShownColumn<'a>>,
    /// Number of rows, including sums.
    pub count: usize,
    /// Number of rows at the end, such as sums, that are not sorted.
    pub sums: usize,
    /// The columns that only files have.
    files: Vec<Column<'a>>,
    /// Number of rows after the others, such as the total, that only files have.
    files_sums: usize,
}

impl<'a> ShownTable<'a> {
    /// A table of `count` rows, all of which can be sorted.
    pub(crate) fn new(count: usize, columns: impl IntoIterator<Item = ShownColumn<'a>>) -> Self {
        let mut columns: Vec<ShownColumn<'a>> = columns.into_iter().collect();
        columns.iter_mut().for_each(|column| column.data.rows = count);
        Column::align(columns.iter_mut().map(|column| &mut column.data).collect());
        Self { columns, count, sums: 0, files: Vec::new(), files_sums: 0 }
    }

    pub(crate) fn with_sums(self, sums: usize) -> Self {
        Self { sums, ..self }
    }

    /// Adds `columns`, and `sums` rows after the others, to files.
    pub(crate) fn with_files(self, columns: impl IntoIterator<Item = Column<'a>>, sums: usize) -> Self {
        Self { files: columns.into_iter().collect(), files_sums: sums, ..self }
    }

    /// Keeps only the columns with these indices, in this order.
    pub(crate) fn narrowed(self, shown: &[usize]) -> Self {
        let mut columns: Vec<Option<ShownColumn<'a>>> = self.columns.into_iter().map(Some).collect();
        let columns = shown.iter().filter_map(|column| columns.get_mut(*column)?.take()).collect();
        Self { columns, ..self }
    }

    /// The rows in this order as CSV, with exact figures.
    pub(super) fn csv(&self, order: &[usize]) -> String {
        let rows: &Vec<usize> = &order.iter().copied().chain(self.count..self.count + self.files_sums).collect();
        let columns = self.columns.iter().map(|column| &column.data).filter(|column| column.is_in_csv());
        let columns = columns.chain(&self.files);
        let columns = columns.map(|column| Column::text(column.key, "", move |row| column.value(rows[row])));
        Table::new(rows.len(), columns).csv()
    }
}
