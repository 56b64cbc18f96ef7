//! Rows of values under typed columns, as the app keeps them from frame to frame: sorted, shown in full, and as CSV.

use eframe::egui::Color32;

use crate::gui::views::view::Action;
use crate::gui::widgets::table::{Cell, Column};
use crate::gui::widgets::theme;
use crate::report::{self, Table, Unit, Value};

/// What the values of a column are.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    unit: Unit,
    /// The colour of a text.
    swatch: Option<fn(&str) -> Option<Color32>>,
    /// Whether a text that does not fit is truncated at the start instead of the end.
    keeps_end: bool,
}

impl Kind {
    const fn of(unit: Unit) -> Self {
        Self { unit, swatch: None, keeps_end: false }
    }
}

/// A column, and what its values are.
pub type KindOf = (Column, Kind);

/// A column of `unit`; a width of 0 takes the remaining width.
pub const fn column(unit: Unit, name: &'static str, tooltip: &'static str, width: f32) -> KindOf {
    let is_number = !matches!(unit, Unit::Text);
    (Column { name, tooltip, width, is_number, is_sortable: true }, Kind::of(unit))
}

/// Gives the texts of a column colours.
pub const fn coloured((column, kind): KindOf, swatch: fn(&str) -> Option<Color32>) -> KindOf {
    (column, Kind { swatch: Some(swatch), ..kind })
}

/// Keeps the ends of texts, such as module paths.
pub(crate) const fn keeping_end((column, kind): KindOf) -> KindOf {
    (column, Kind { keeps_end: true, ..kind })
}

/// A row.
#[derive(Clone, Debug, Default)]
pub struct Line {
    /// A value for each column.
    pub values: Vec<Value>,
    /// The action for double click and Enter.
    pub action: Option<Action>,
}

/// Rows of figures.
#[derive(Clone, Debug, Default)]
pub struct Sheet {
    /// Its name.
    pub name: &'static str,
    /// The columns.
    pub columns: Vec<Column>,
    kinds: Vec<Kind>,
    /// The rows.
    pub lines: Vec<Line>,
    /// Rows at the end that stay there in any order.
    sums: usize,
    /// The column initially shown as bars; `None` if there are no bars.
    pub measure: Option<usize>,
    /// Sentences above the rows.
    pub lead: Vec<String>,
}

/// What a row does not have.
static NOTHING: Value = Value::Nothing;

impl Sheet {
    /// A sheet.
    pub fn new(
        name: &'static str,
        columns: impl IntoIterator<Item = KindOf>,
        lines: impl IntoIterator<Item = Line>,
    ) -> Self {
        let (columns, kinds) = columns.into_iter().unzip();
        Self { name, columns, kinds, lines: lines.into_iter().collect(), ..Self::default() }
    }

    /// A sheet of plain rows.
    pub fn of_rows(
        name: &'static str,
        columns: impl IntoIterator<Item = KindOf>,
        rows: impl IntoIterator<Item = Vec<Value>>,
    ) -> Self {
        Self::new(name, columns, rows.into_iter().map(|values| Line { values, action: None }))
    }

    /// The same, of which the last `sums` rows stay at the end in any order.
    pub fn with_sums(self, sums: usize) -> Self {
        Self { sums, ..self }
    }

    /// The same, of which column `measure` is initially shown as bars.
    pub(crate) fn with_bars(self, measure: usize) -> Self {
        Self { measure: Some(measure), ..self }
    }

    /// The same, with sentences above the rows.
    pub(crate) fn with_lead(self, lead: Vec<String>) -> Self {
        Self { lead, ..self }
    }

    /// The columns that fit into `width` points, at least the first two.
    pub(crate) fn shown_columns(&self, width: f32) -> &[Column] {
        let least = |column: &Column| if column.width == 0.0 { theme::MIN_FIRST_COLUMN } else { column.width };
        let mut used = 0.0;
        let count = self.columns.iter().take_while(|column| {
            used += least(column);
            used <= width
        });
        &self.columns[..count.count().max(2).min(self.columns.len())]
    }

    fn value(&self, row: usize, column: usize) -> &Value {
        self.lines.get(row).and_then(|line| line.values.get(column)).unwrap_or(&NOTHING)
    }

    fn kind(&self, column: usize) -> Kind {
        self.kinds.get(column).copied().unwrap_or(Kind::of(Unit::Text))
    }

    /// The short form of a value.
    pub fn text(&self, row: usize, column: usize) -> String {
        match self.value(row, column) {
            Value::Nothing => "-".to_owned(),
            value => self.kind(column).unit.text(value),
        }
    }

    /// In full, if the short form is rounded.
    pub fn exact(&self, row: usize, column: usize) -> Option<String> {
        self.kind(column).unit.exact(self.value(row, column))
    }

    /// The length of a value's bar, if it can be one.
    pub fn length(&self, row: usize, column: usize) -> Option<u64> {
        match (self.kind(column).unit, self.value(row, column)) {
            (Unit::Bytes | Unit::Count, Value::Number(number)) => Some(*number),
            _ => None,
        }
    }

    /// CSV in exact figures, the rows in this order.
    pub fn csv(&self, order: &[usize]) -> String {
        let columns = self.columns.iter().enumerate();
        let columns = columns
            .map(|(at, column)| report::Column::text(column.name, "", move |row| self.value(order[row], at).clone()));
        Table::new(order.len(), columns).csv()
    }

    /// The columns that can be shown as bars: those with lengths in the first row, and so in all.
    pub fn measures(&self) -> Vec<usize> {
        let columns = if self.measure.is_some() { self.columns.len() } else { 0 };
        (1..columns).filter(|column| self.length(0, *column).is_some()).collect()
    }

    /// The cell of a row and column.
    pub fn cell(&self, row: usize, column: usize) -> Cell {
        let (value, text, kind) = (self.value(row, column), self.text(row, column), self.kind(column));
        let is_faint = matches!(value, Value::Nothing | Value::Difference(0));
        Cell {
            swatch: kind.swatch.and_then(|swatch| swatch(&text)),
            keeps_end: kind.keeps_end,
            is_faint,
            text,
            ..Cell::default()
        }
    }

    /// The rows ordered by a column; in their original order without one.
    pub fn order(&self, sort: Option<(usize, bool)>) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.lines.len()).collect();
        let free = order.len() - self.sums.min(order.len());
        if let Some((column, is_falling)) = sort {
            // Equal rows keep their order.
            order[..free].sort_by(|a, b| {
                let order = self.value(*a, column).compare(self.value(*b, column));
                if is_falling { order.reverse() } else { order }
            });
        }
        order
    }
}
