//! A sheet of rows, shown as a table and as bars, and written as CSV.

use std::cmp::Ordering;

use highwater_snapshots::Category;
use highwater_snapshots::units::{format_bytes, format_count, format_nanos, format_signed_bytes};

use crate::gui::view_context::Action;
use crate::gui::widgets::table::{Cell, Column};
use crate::gui::widgets::theme;

/// A cell's value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Nothing,
    Text(String),
    /// A module path, truncated at the start.
    Path(String),
    Count(u64),
    Bytes(u64),
    /// A signed difference in bytes.
    Change(i64),
    Nanos(u64),
    Category(Category),
}

impl Value {
    /// The short form.
    pub(super) fn text(&self) -> String {
        match self {
            Self::Nothing => String::new(),
            Self::Text(text) | Self::Path(text) => text.clone(),
            Self::Count(count) => format_count(*count),
            Self::Bytes(bytes) => format_bytes(*bytes),
            Self::Change(bytes) => format_signed_bytes(*bytes),
            Self::Nanos(nanos) => format_nanos(*nanos),
            Self::Category(category) => category.name().to_owned(),
        }
    }

    /// In full, if the short form is rounded.
    pub(super) fn exact(&self) -> Option<String> {
        match self {
            Self::Bytes(bytes) => Some(format!("{} B", format_count(*bytes))),
            Self::Change(bytes) => {
                let sign = if *bytes < 0 { "-" } else { "+" };
                Some(format!("{sign}{} B", format_count(bytes.unsigned_abs())))
            }
            Self::Nanos(nanos) => Some(format!("{} ns", format_count(*nanos))),
            _ => None,
        }
    }

    /// For files: bare digits.
    pub(super) fn bare(&self) -> String {
        match self {
            Self::Count(number) | Self::Bytes(number) | Self::Nanos(number) => number.to_string(),
            Self::Change(number) => number.to_string(),
            _ => self.text(),
        }
    }

    /// The length of its bar, if it can be one.
    pub(super) fn length(&self) -> Option<u64> {
        match self {
            Self::Count(number) | Self::Bytes(number) => Some(*number),
            _ => None,
        }
    }

    fn order(&self, other: &Self) -> Ordering {
        let number = |value: &Self| match value {
            Self::Count(number) | Self::Bytes(number) | Self::Nanos(number) => Some(i128::from(*number)),
            Self::Change(number) => Some(i128::from(*number)),
            _ => None,
        };
        number(self).cmp(&number(other)).then_with(|| self.text().cmp(&other.text()))
    }
}

/// A row.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub values: Vec<Value>,
    /// The action for double click and Enter.
    pub action: Option<Action>,
}

/// Rows of figures.
#[derive(Clone, Debug)]
pub(super) struct Sheet {
    pub name: &'static str,
    pub columns: Vec<Column>,
    pub lines: Vec<Line>,
    /// The column initially shown as bars; `None` if there are no bars.
    pub measure: Option<usize>,
    /// Sentences above the rows.
    pub lead: Vec<String>,
}

impl Sheet {
    /// The columns that fit into `width` points, at least the first two.
    pub(super) fn shown_columns(&self, width: f32) -> &[Column] {
        let least = |column: &Column| if column.width == 0.0 { theme::LEAST_FIRST_COLUMN } else { column.width };
        let mut used = 0.0;
        let count = self.columns.iter().take_while(|column| {
            used += least(column);
            used <= width
        });
        &self.columns[..count.count().max(2).min(self.columns.len())]
    }

    /// The value at a row and column.
    pub(super) fn value(&self, row: usize, column: usize) -> &Value {
        self.lines.get(row).and_then(|line| line.values.get(column)).unwrap_or(&Value::Nothing)
    }

    /// The columns that can be shown as bars: those with lengths in the first row, and so in all.
    pub(super) fn measures(&self) -> Vec<usize> {
        let is_length = |column: &usize| self.value(0, *column).length().is_some();
        let columns = if self.measure.is_some() { self.columns.len() } else { 0 };
        (1..columns).filter(is_length).collect()
    }

    /// The cell of a row and column.
    pub(super) fn cell(&self, row: usize, column: usize) -> Cell {
        let value = self.value(row, column);
        let swatch = if let Value::Category(category) = value { Some(theme::category(*category)) } else { None };
        Cell { text: value.text(), swatch, keeps_end: matches!(value, Value::Path(_)), ..Cell::default() }
    }

    /// The rows ordered by a column; in their original order without one.
    pub(super) fn order(&self, sort: Option<(usize, bool)>) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.lines.len()).collect();
        if let Some((column, is_falling)) = sort {
            order.sort_by(|a, b| {
                let order = self.value(*a, column).order(self.value(*b, column));
                if is_falling { order.reverse() } else { order }
            });
        }
        order
    }
}
