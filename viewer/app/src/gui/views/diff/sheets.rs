//! Groups, phases, totals and settings of both sides as tables.

use std::cmp::Ordering;

use highwater_analysis::diff::{Change, Comparison, DiffGroup, Likeness, PhasePair};
use highwater_analysis::{Diff, GroupKey};
use highwater_snapshots::units::{format_bytes, format_count, format_signed_bytes};

use crate::gui::widgets::table::{Cell, Column};
use crate::gui::widgets::theme;

/// A value in a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Nothing,
    Text(String),
    Bytes(u64),
    Delta(i128),
    Change(Change),
}

impl Value {
    fn text(&self) -> String {
        match self {
            Self::Nothing => "-".to_owned(),
            Self::Text(text) => text.clone(),
            Self::Bytes(bytes) => format_bytes(*bytes),
            Self::Delta(delta) => format_signed_bytes(*delta),
            Self::Change(change) => change.name().to_owned(),
        }
    }

    /// For files: bare digits.
    pub(super) fn bare(&self) -> String {
        match self {
            Self::Nothing => String::new(),
            Self::Bytes(bytes) => bytes.to_string(),
            Self::Delta(delta) => delta.to_string(),
            value => value.text(),
        }
    }

    /// In full, if the short form is rounded.
    pub(super) fn exact(&self) -> Option<String> {
        match self {
            Self::Bytes(bytes) => Some(format!("{} B", format_count(*bytes))),
            Self::Delta(delta) => {
                let sign = if *delta < 0 { "-" } else { "+" };
                let size = u64::try_from(delta.unsigned_abs()).unwrap_or(u64::MAX);
                Some(format!("{sign}{} B", format_count(size)))
            }
            _ => None,
        }
    }

    fn order(&self, other: &Self) -> Ordering {
        let number = |value: &Self| match value {
            Self::Bytes(bytes) => Some(i128::from(*bytes)),
            Self::Delta(delta) => Some(*delta),
            Self::Change(change) => Change::ALL.iter().position(|other| other == change).map(|row| row as i128),
            _ => None,
        };
        // Equal rows keep their order: the largest difference first.
        match (number(self), number(other)) {
            (None, None) => self.text().cmp(&other.text()),
            (one, other) => one.cmp(&other),
        }
    }
}

/// Rows of values.
#[derive(Clone, Debug)]
pub(super) struct Sheet {
    pub(super) name: &'static str,
    pub(super) columns: Vec<Column>,
    pub(super) rows: Vec<Vec<Value>>,
    /// Rows at the end that stay there in any order.
    last: usize,
}

const fn text(name: &'static str, width: f32) -> Column {
    Column { name, tooltip: "", width, is_number: false, is_sortable: true }
}

const fn number(name: &'static str, tooltip: &'static str) -> Column {
    Column { name, tooltip, width: 96.0, is_number: true, is_sortable: true }
}

const A: Column = number("A", "The bytes in A.");
const B: Column = number("B", "The bytes in B.");
const DELTA: Column = number("B − A", "B minus A; the rows add up to the total difference.");

impl Sheet {
    pub(super) fn value(&self, row: usize, column: usize) -> &Value {
        self.rows.get(row).and_then(|row| row.get(column)).unwrap_or(&Value::Nothing)
    }

    pub(super) fn cell(&self, row: usize, column: usize) -> Cell {
        let value = self.value(row, column);
        let swatch = if let Value::Change(change) = value { Some(theme::change(*change)) } else { None };
        let is_faint = *value == Value::Nothing || *value == Value::Delta(0);
        Cell { text: value.text(), swatch, is_faint, ..Cell::default() }
    }

    /// The rows ordered by a column; in their original order without one.
    pub(super) fn order(&self, sort: Option<(usize, bool)>) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.rows.len()).collect();
        let free = order.len() - self.last.min(order.len());
        if let Some((column, is_falling)) = sort {
            order[..free].sort_by(|a, b| {
                let order = self.value(*a, column).order(self.value(*b, column));
                if is_falling { order.reverse() } else { order }
            });
        }
        order
    }

    /// The groups by `keys`, then one row for the groups not listed. `stacks` has each group's stack on one line, if
    /// stacks are a key.
    pub(super) fn of_groups(diff: &Diff, keys: &[GroupKey], stacks: &[String]) -> Self {
        let has_loose = diff.groups.iter().any(|group| group.likeness != Likeness::Equal);
        let mut columns: Vec<Column> = keys.iter().map(|key| text(key.name(), 0.0)).collect();
        columns.extend([text("state", 104.0), A, B, DELTA]);
        columns.extend(has_loose.then_some(text("matched", 108.0)));
        let row = |(row, group): (usize, &DiffGroup)| {
            // A stack has many lines, a row only one.
            let name = |(key, value): (&GroupKey, &String)| match stacks.get(row) {
                Some(stack) if *key == GroupKey::Stack && !stack.is_empty() => Value::Text(stack.clone()),
                _ => Value::Text(value.clone()),
            };
            let mut cells: Vec<Value> = keys.iter().zip(&group.key).map(name).collect();
            cells.push(Value::Change(group.change()));
            cells.extend([Value::Bytes(group.a_bytes), Value::Bytes(group.b_bytes), Value::Delta(group.delta())]);
            let matched = if group.likeness == Likeness::Equal { "" } else { group.likeness.name() };
            cells.extend(has_loose.then(|| Value::Text(matched.to_owned())));
            cells
        };
        let mut rows: Vec<Vec<Value>> = diff.groups.iter().enumerate().map(row).collect();
        let has_rest = diff.rest_groups > 0;
        if has_rest {
            let [a, b] = diff.rest_bytes;
            let mut cells = vec![Value::Text(String::new()); keys.len()];
            if let Some(first) = cells.first_mut() {
                *first = Value::Text(format!("{} more groups", format_count(diff.rest_groups)));
            }
            cells.push(Value::Text(String::new()));
            cells.extend([Value::Bytes(a), Value::Bytes(b), Value::Delta(i128::from(b) - i128::from(a))]);
            cells.extend(has_loose.then(|| Value::Text(String::new())));
            rows.push(cells);
        }
        Self { name: "Groups", columns, rows, last: usize::from(has_rest) }
    }

    /// The phases of both, step by step.
    pub(super) fn of_phases(comparison: &Comparison) -> Self {
        let row = |pair: &PhasePair| {
            let peaks = [&pair.a, &pair.b].map(|row| row.as_ref().map(|row| row.peak_bytes));
            let change = Change::of(peaks.map(|peak| peak.unwrap_or(0)), peaks.map(|peak| u64::from(peak.is_some())));
            let value = |peak: Option<u64>| peak.map_or(Value::Nothing, Value::Bytes);
            vec![
                Value::Text(pair.steps().unwrap_or_else(|| "-".to_owned())),
                Value::Text(pair.phase().map_or_else(String::new, |phase| phase.to_string())),
                Value::Change(change),
                value(peaks[0]),
                value(peaks[1]),
                pair.delta().map_or(Value::Nothing, Value::Delta),
            ]
        };
        const PEAK_A: Column = number("A's peak", "The peak of this phase in A.");
        const PEAK_B: Column = number("B's peak", "The peak of this phase in B.");
        const APART: Column = number("B − A", "The peak in B minus the peak in A.");
        let columns = vec![text("step", 90.0), text("phase", 0.0), text("state", 104.0), PEAK_A, PEAK_B, APART];
        Self { name: "Phases", columns, rows: comparison.phases.iter().map(row).collect(), last: 0 }
    }

    /// The peaks of all totals.
    pub(super) fn of_totals(comparison: &Comparison) -> Self {
        const PEAK_A: Column = number("A's peak", "The peak of this total in A.");
        const PEAK_B: Column = number("B's peak", "The peak of this total in B.");
        const APART: Column = number("B − A", "The peak in B minus the peak in A.");
        let totals = comparison.totals.iter().map(|(metric, [a, b])| {
            vec![
                Value::Text(metric.name().replace('_', " ")),
                Value::Change(Change::of([*a, *b], [1, 1])),
                Value::Bytes(*a),
                Value::Bytes(*b),
                Value::Delta(i128::from(*b) - i128::from(*a)),
            ]
        });
        let columns = vec![text("total", 0.0), text("state", 104.0), PEAK_A, PEAK_B, APART];
        Self { name: "Totals", columns, rows: totals.collect(), last: 0 }
    }

    /// The facts recorded about the recordings, those that differ first.
    pub(super) fn of_settings(comparison: &Comparison) -> Self {
        let settings = &comparison.settings;
        let (differing, same): (Vec<_>, Vec<_>) = settings.iter().partition(|setting| setting.differs());
        let value = |value: &Option<String>| value.clone().map_or(Value::Nothing, Value::Text);
        let rows = differing.into_iter().chain(same).map(|setting| {
            let state = if setting.differs() { "differs" } else { "same" };
            vec![Value::Text(setting.name.clone()), Value::Text(state.to_owned()), value(&setting.a), value(&setting.b)]
        });
        let columns = vec![text("setting", 200.0), text("state", 104.0), text("in A", 0.0), text("in B", 0.0)];
        Self { name: "Settings", columns, rows: rows.collect(), last: 0 }
    }
}
