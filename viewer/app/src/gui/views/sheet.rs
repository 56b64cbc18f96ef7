//! Tables with typed columns that the app stores between frames. They support sorting, tooltips and CSV.

use eframe::egui::Color32;

use crate::gui::views::view::Action;
use crate::gui::widgets::{Cell, ShownTable};
use crate::report::{Column, Unit, Value};

/// A column: its heading, and the type of its values.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heading {
    pub name: &'static str,
    pub(crate) tooltip: &'static str,
    pub(crate) width: f32,
    pub(crate) unit: Unit,
    /// Returns the colour to show with a text.
    pub(crate) swatch: Option<fn(&str) -> Option<Color32>>,
    /// Whether to draw bars for differences.
    pub(crate) has_bars: bool,
}

impl Heading {
    /// Creates a column of values in `unit`, `width` points wide; 0 means the remaining width.
    pub(crate) const fn new(unit: Unit, name: &'static str, tooltip: &'static str, width: f32) -> Self {
        Self { name, tooltip, width, unit, swatch: None, has_bars: false }
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Line {
    pub values: Vec<Value>,
    /// The action on double click and Enter.
    pub action: Option<Action>,
}

/// A table of figures with sentences above it, as in Statistics and in comparisons.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sheet {
    pub name: &'static str,
    pub columns: Vec<Heading>,
    /// The rows in their initial order.
    pub lines: Vec<Line>,
    /// Number of rows at the end, such as sums, that are not sorted.
    pub(crate) sums: usize,
    /// The column with a bar in each row; `None` for no bars.
    pub measure: Option<usize>,
    /// Sentences shown above the rows.
    pub lead: Vec<String>,
    /// The largest difference or measure, which determines the scale of bars.
    pub(crate) largest: u128,
}

/// Returns the value as a difference; `None` if it is not a difference, or 0.
fn difference(value: &Value) -> Option<i128> {
    match value {
        Value::Difference(bytes) => Some(*bytes).filter(|bytes| *bytes != 0),
        _ => None,
    }
}

static NOTHING: Value = Value::Nothing;

impl Sheet {
    pub(crate) fn new(
        name: &'static str,
        columns: impl IntoIterator<Item = Heading>,
        lines: impl IntoIterator<Item = Line>,
    ) -> Self {
        let (columns, lines): (_, Vec<Line>) = (columns.into_iter().collect(), lines.into_iter().collect());
        let differences = lines.iter().flat_map(|line| &line.values).filter_map(difference);
        let largest = differences.map(i128::unsigned_abs).max().unwrap_or(0).max(1);
        Self { name, columns, lines, largest, ..Self::default() }
    }

    pub(crate) fn of_rows(
        name: &'static str,
        columns: impl IntoIterator<Item = Heading>,
        rows: impl IntoIterator<Item = Vec<Value>>,
    ) -> Self {
        Self::new(name, columns, rows.into_iter().map(|values| Line { values, action: None }))
    }

    /// Shows the sizes or counts of this column as bars.
    pub(crate) fn measured(mut self, column: usize) -> Self {
        self.measure = Some(column);
        self.largest =
            (0..self.lines.len()).filter_map(|row| self.length(row, column)).max().unwrap_or(0).max(1).into();
        self
    }

    pub(crate) fn rows(&self) -> ShownTable<'_> {
        let column = |(at, heading): (usize, &Heading)| {
            let Heading { name, tooltip, width, unit, swatch, has_bars } = *heading;
            let share = move |row: usize| Some((difference(self.value(row, at))? as f64 / self.largest as f64) as f32);
            let is_measured = self.measure == Some(at);
            let length =
                move |row: usize| Some(self.length(row, at).filter(|_| is_measured)? as f32 / self.largest as f32);
            // The bar of a difference has the colour of the row's state, which is after its category.
            let state = move |row: usize| {
                let colour = |(at, heading): (usize, &Heading)| (heading.swatch?)(&self.text(row, at));
                self.columns.iter().enumerate().rev().find_map(colour).filter(|_| has_bars)
            };
            let look = move |row: usize, cell: Cell| Cell {
                bar: state(row),
                swatch: swatch.and_then(|swatch| swatch(&cell.text)),
                share: length(row),
                diverging: share(row).filter(|_| has_bars),
                is_faint: matches!(self.value(row, at), Value::Nothing | Value::Difference(0)),
                ..cell
            };
            let value = move |row: usize| self.value(row, at).clone();
            let column = Column::new(unit, [name, name], value).shown(move |row| self.text(row, at));
            let column = column.wide(width, tooltip).look(look);
            if has_bars { column.with_bars() } else { column }
        };
        let columns = self.columns.iter().enumerate().map(column);
        ShownTable::new(self.lines.len(), columns).with_sums(self.sums)
    }

    fn value(&self, row: usize, column: usize) -> &Value {
        self.lines.get(row).and_then(|line| line.values.get(column)).unwrap_or(&NOTHING)
    }

    fn unit(&self, column: usize) -> Unit {
        self.columns.get(column).map_or(Unit::Text, |column| column.unit)
    }

    pub(crate) fn text(&self, row: usize, column: usize) -> String {
        match self.value(row, column) {
            Value::Nothing => "-".to_owned(),
            value => self.unit(column).text(value),
        }
    }

    /// The length of a value's bar; `None` for values without bars.
    fn length(&self, row: usize, column: usize) -> Option<u64> {
        match (self.unit(column), self.value(row, column)) {
            (Unit::Bytes | Unit::Count, Value::Number(number)) => Some(*number),
            _ => None,
        }
    }
}
