//! The columns of a table: their headings, values and formatting.

use eframe::egui::Color32;

use crate::report::{Unit, Value};

/// The content of a cell.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cell {
    /// The text, on one line.
    pub text: String,
    /// The colour of a square before the text.
    pub swatch: Option<Color32>,
    /// The length of a bar behind the text, from 0 to 1 of the cell's width.
    pub share: Option<f32>,
    /// The colour of the bar; `None` for the usual one.
    pub bar: Option<Color32>,
    /// The length of a bar that extends left or right from the middle of the space before the figure, from -1 to 1.
    pub diverging: Option<f32>,
    /// Whether it is shown faint.
    pub is_faint: bool,
    /// Whether it is shown as a link.
    pub is_link: bool,
    /// Whether text that does not fit is truncated at the start instead of the end.
    pub keeps_end: bool,
}

/// The name of a column, and its width in points.
type Head = (&'static str, f32);

/// A column of a table whose rows are identified by index.
pub(crate) struct Column<'a> {
    /// The heading, and its name in CSV.
    pub name: &'static str,
    /// The tooltip of its heading.
    pub tooltip: &'static str,
    /// The width in points; 0 takes the remaining width.
    pub width: f32,
    /// The unit of its values, which determines how they are shown, aligned and ordered.
    pub unit: Unit,
    /// Whether rows can be sorted by it.
    pub is_sortable: bool,
    /// Whether it has bars, which use the space that texts do not need.
    pub(super) has_bars: bool,
    value: Box<dyn Fn(usize) -> Value + 'a>,
    order: Option<Box<dyn Fn(usize) -> Value + 'a>>,
    look: Option<Box<dyn Fn(usize, Cell) -> Cell + 'a>>,
    tip: Option<Box<dyn Fn(usize) -> Option<String> + 'a>>,
}

impl<'a> Column<'a> {
    /// A column of `width` points with the value of each row.
    pub(crate) fn new<V: Into<Value>>(
        unit: Unit,
        (name, width): Head,
        tooltip: &'static str,
        value: impl Fn(usize) -> V + 'a,
    ) -> Self {
        let value = Box::new(move |row| value(row).into());
        let (is_sortable, has_bars) = (true, false);
        Self { name, tooltip, width, unit, is_sortable, has_bars, value, order: None, look: None, tip: None }
    }

    /// Creates a column of sizes in bytes.
    pub(crate) fn bytes<V: Into<Value>>(head: Head, tooltip: &'static str, value: impl Fn(usize) -> V + 'a) -> Self {
        Self::new(Unit::Bytes, head, tooltip, value)
    }

    /// Creates a column of counts.
    pub(crate) fn count<V: Into<Value>>(head: Head, tooltip: &'static str, value: impl Fn(usize) -> V + 'a) -> Self {
        Self::new(Unit::Count, head, tooltip, value)
    }

    /// Creates a column of texts.
    pub(crate) fn text<V: Into<Value>>(head: Head, tooltip: &'static str, value: impl Fn(usize) -> V + 'a) -> Self {
        Self::new(Unit::Text, head, tooltip, value)
    }

    /// Creates a column of texts that consist of numbers, such as shares, and are aligned like numbers.
    pub(crate) fn figure(head: Head, tooltip: &'static str, value: impl Fn(usize) -> String + 'a) -> Self {
        Self::new(Unit::Number, head, tooltip, value)
    }

    /// Disables sorting by the column.
    pub(crate) fn fixed(self) -> Self {
        Self { is_sortable: false, ..self }
    }

    /// Draws bars in the space that the column's texts do not need.
    pub(crate) fn with_bars(self) -> Self {
        Self { has_bars: true, ..self }
    }

    /// Sorts rows by `value` instead of the displayed value.
    pub(crate) fn ordered_by<V: Into<Value>>(self, value: impl Fn(usize) -> V + 'a) -> Self {
        Self { order: Some(Box::new(move |row| value(row).into())), ..self }
    }

    /// Modifies each cell by `look`.
    pub(crate) fn look(self, look: impl Fn(usize, Cell) -> Cell + 'a) -> Self {
        Self { look: Some(Box::new(look)), ..self }
    }

    /// Uses `tip` as the tooltip of each cell instead of its full value.
    pub(crate) fn tip(self, tip: impl Fn(usize) -> Option<String> + 'a) -> Self {
        Self { tip: Some(Box::new(tip)), ..self }
    }

    /// The value of a row.
    pub(crate) fn value(&self, row: usize) -> Value {
        (self.value)(row)
    }

    /// The value by which a row is sorted.
    pub(super) fn order(&self, row: usize) -> Value {
        self.order.as_ref().map_or_else(|| self.value(row), |order| order(row))
    }

    /// The value of a row in its unit.
    pub(super) fn text_of(&self, row: usize) -> String {
        self.unit.text(&self.value(row))
    }

    pub(super) fn cell(&self, row: usize) -> Cell {
        let cell = Cell { text: self.text_of(row), ..Cell::default() };
        match &self.look {
            Some(look) => look(row, cell),
            None => cell,
        }
    }

    /// The tooltip of a cell.
    pub(super) fn tooltip(&self, row: usize) -> Option<String> {
        match &self.tip {
            Some(tip) => tip(row),
            None => self.unit.exact(&self.value(row)),
        }
    }
}

/// The columns of a table, and the number of its rows.
pub(crate) struct Rows<'a> {
    /// The columns.
    pub columns: Vec<Column<'a>>,
    /// Number of rows, including sums.
    pub count: usize,
    /// Number of rows at the end, such as sums, that are not sorted.
    pub sums: usize,
}

impl<'a> Rows<'a> {
    /// A table of `count` rows, all of which can be sorted.
    pub(crate) fn new(count: usize, columns: impl IntoIterator<Item = Column<'a>>) -> Self {
        Self { columns: columns.into_iter().collect(), count, sums: 0 }
    }

    /// Keeps only the columns with these indices, in this order.
    pub(crate) fn narrowed(self, shown: &[usize]) -> Self {
        let mut columns: Vec<Option<Column<'a>>> = self.columns.into_iter().map(Some).collect();
        let columns = shown.iter().filter_map(|column| columns.get_mut(*column)?.take()).collect();
        Self { columns, ..self }
    }
}
