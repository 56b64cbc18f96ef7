//! A column of a table: its key in files, its title in printed tables, its unit, and the value of each row.

use std::cell::OnceCell;
use std::fmt;

use highwater_snapshots::{format_bytes, format_count, format_nanos, format_signed_bytes};

use super::{Field, IntoValue, Value};

/// The unit of a column's values, which determines formatting, alignment and order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A size in bytes, in binary units.
    Bytes,
    /// A difference in bytes, with its sign.
    Difference,
    /// A count, in groups of three digits.
    Count,
    /// A number that identifies something: a step, a stream, a device.
    Number,
    /// A time in nanoseconds.
    Nanos,
    /// A text, or a value that has none of these units.
    Text,
}

impl Unit {
    /// Whether the values are numbers, which are right-aligned.
    pub(crate) fn is_numeric(self) -> bool {
        self != Self::Text
    }

    /// Formats a value for display.
    pub fn text(self, value: &Value) -> String {
        match (self, value) {
            (Self::Bytes, Value::Number(bytes)) => format_bytes(*bytes),
            (Self::Difference, Value::Difference(bytes)) => format_signed_bytes(*bytes),
            (Self::Count, Value::Number(count)) => format_count(*count),
            (Self::Nanos, Value::Number(nanos)) => format_nanos(*nanos),
            _ => value.bare(),
        }
    }

    /// Returns whether the sizes of a column have decimals: if one of them has decimals, all do. `text` returns the
    /// formatted sizes. Looks only at the first rows of a long column.
    pub(crate) fn has_decimals(self, rows: usize, text: impl FnMut(usize) -> String) -> bool {
        self.is_numeric() && (0..rows.min(MAX_ROWS_JUDGED)).map(text).any(|text| text.contains('.'))
    }

    /// Formats a value without rounding; `None` for units that [`Self::text`] does not round.
    pub fn exact(self, value: &Value) -> Option<String> {
        let count = |number: u128| format_count(u64::try_from(number).unwrap_or(u64::MAX));
        match (self, value) {
            (Self::Bytes, Value::Number(bytes)) => Some(format!("{} B", format_count(*bytes))),
            (Self::Difference, Value::Difference(bytes)) => {
                Some(format!("{}{} B", if *bytes < 0 { "-" } else { "+" }, count(bytes.unsigned_abs())))
            }
            (Self::Nanos, Value::Number(nanos)) => Some(format!("{} ns", format_count(*nanos))),
            _ => None,
        }
    }
}

const MAX_ROWS_JUDGED: usize = 500;

/// Adds decimals to a size that has none, so that `64 MiB` becomes `64.00 MiB`. Other texts, such as `512 B` and `-`,
/// are unchanged.
pub fn with_decimals(text: String) -> String {
    let digits = |number: &str| number.trim_start_matches(['+', '−']).bytes().all(|digit| digit.is_ascii_digit());
    match text.split_once(' ') {
        Some((number, unit)) if unit.ends_with("iB") && digits(number) => format!("{number}.00 {unit}"),
        _ => text,
    }
}

/// Returns a function that formats the sizes of a column, given all of its sizes.
pub fn column_of(sizes: impl IntoIterator<Item = u64>) -> impl Fn(u64) -> String {
    let has_decimals = sizes.into_iter().any(|bytes| format_bytes(bytes).contains('.'));
    move |bytes| if has_decimals { with_decimals(format_bytes(bytes)) } else { format_bytes(bytes) }
}

/// Formats two sizes that are compared, and the second minus the first, with one number of decimals.
pub fn compared([a, b]: [u64; 2]) -> [String; 3] {
    let texts = [format_bytes(a), format_bytes(b), format_signed_bytes(i128::from(b) - i128::from(a))];
    if texts.iter().any(|text| text.contains('.')) { texts.map(with_decimals) } else { texts }
}

/// How the cells of a column are shortened if a text table is too wide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// Cells are never shortened.
    Never,
    /// Cells are truncated at the end.
    Cut,
    /// Cells are source lines, shortened by [`highwater_snapshots::line_text::shorten_line`].
    SourceLine,
    /// Cells are lists of entries, truncated between two entries.
    Entries,
    /// Cells are wrapped to several lines.
    Wrap,
}

/// The outputs that contain a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Everywhere,
    /// Printed tables and CSV; the JSON object contains it in another form.
    Tables,
    /// Printed tables only, such as shares and bars.
    Shown,
    /// The JSON object and CSV, not printed tables.
    Files,
    /// The JSON object only, such as values with several parts.
    Json,
}

/// A column of a table whose rows are identified by index.
pub struct Column<'a> {
    /// The name in JSON and CSV.
    pub key: &'static str,
    /// The heading in printed tables.
    pub title: &'static str,
    /// The unit of the values. Determines their format.
    pub unit: Unit,
    /// How the cells are shortened if a text table is too wide.
    pub fit: Fit,
    /// Whether a text table omits the column if it is empty or does not fit.
    pub is_optional: bool,
    /// Whether the cells may have several lines.
    pub has_lines: bool,
    /// Whether some rows may have no value.
    pub may_lack_values: bool,
    place: Place,
    pub(crate) rows: usize,
    /// Whether all sizes in the column have decimals; determined on first use.
    has_decimals: OnceCell<bool>,
    value: Box<dyn Fn(usize) -> Value + 'a>,
    shown: Option<Box<dyn Fn(usize) -> String + 'a>>,
    markdown: Option<Box<dyn Fn(usize) -> Option<String> + 'a>>,
}

impl<'a> Column<'a> {
    pub(crate) fn new<V: IntoValue>(
        unit: Unit,
        [key, title]: [&'static str; 2],
        value: impl Fn(usize) -> V + 'a,
    ) -> Self {
        let value = Box::new(move |row| value(row).into());
        Self {
            key,
            title,
            unit,
            fit: Fit::Never,
            is_optional: false,
            has_lines: false,
            may_lack_values: V::IS_OPTIONAL,
            place: Place::Everywhere,
            rows: 0,
            has_decimals: OnceCell::new(),
            value,
            shown: None,
            markdown: None,
        }
    }

    /// Creates a column of sizes in bytes.
    pub fn bytes<V: IntoValue>(key: &'static str, title: &'static str, value: impl Fn(usize) -> V + 'a) -> Self {
        Self::new(Unit::Bytes, [key, title], value)
    }

    /// Creates a column of differences in bytes.
    pub fn difference<V: IntoValue>(key: &'static str, title: &'static str, value: impl Fn(usize) -> V + 'a) -> Self {
        Self::new(Unit::Difference, [key, title], value)
    }

    /// Creates a column of counts.
    pub fn count<V: IntoValue>(key: &'static str, title: &'static str, value: impl Fn(usize) -> V + 'a) -> Self {
        Self::new(Unit::Count, [key, title], value)
    }

    /// Creates a column of numbers that identify something, such as steps.
    pub fn number<V: IntoValue>(key: &'static str, title: &'static str, value: impl Fn(usize) -> V + 'a) -> Self {
        Self::new(Unit::Number, [key, title], value)
    }

    /// Creates a column of texts.
    pub fn text<V: IntoValue>(key: &'static str, title: &'static str, value: impl Fn(usize) -> V + 'a) -> Self {
        Self::new(Unit::Text, [key, title], value)
    }

    /// Creates a column for printed tables only, aligned like numbers or like text.
    pub fn shown_alone(title: &'static str, is_number: bool, text: impl Fn(usize) -> String + 'a) -> Self {
        let unit = if is_number { Unit::Number } else { Unit::Text };
        Self { place: Place::Shown, ..Self::new(unit, ["", title], text) }
    }

    /// Creates a column of objects or lists, which only the JSON output contains.
    pub fn nested<V: IntoValue>(key: &'static str, value: impl Fn(usize) -> V + 'a) -> Self {
        Self { place: Place::Json, ..Self::new(Unit::Text, [key, ""], value) }
    }

    /// Omits the column from printed tables.
    pub fn in_files(self) -> Self {
        Self { place: Place::Files, ..self }
    }

    /// Omits the column from the JSON object.
    pub fn in_tables(self) -> Self {
        Self { place: Place::Tables, ..self }
    }

    /// Formats values by `text` in printed tables.
    pub fn shown(self, text: impl Fn(usize) -> String + 'a) -> Self {
        Self { shown: Some(Box::new(text)), ..self }
    }

    /// Formats a value in Markdown by `text`, if `text` returns a text for the row.
    pub fn in_markdown(self, text: impl Fn(usize) -> Option<String> + 'a) -> Self {
        Self { markdown: Some(Box::new(text)), ..self }
    }

    /// Truncates the cells if a text table is wider than the page.
    pub fn cut(self) -> Self {
        Self { fit: Fit::Cut, ..self }
    }

    /// Shortens the cells as source lines if a text table is wider than the page.
    pub fn source_lines(self) -> Self {
        Self { fit: Fit::SourceLine, ..self }
    }

    /// Allows several lines in the cells.
    pub fn lines(self) -> Self {
        Self { has_lines: true, ..self }
    }

    /// If a text table is wider than the page, shortens the lists in the cells by dropping entries at the end. Entries
    /// are separated by `, `.
    pub fn entries(self) -> Self {
        Self { fit: Fit::Entries, ..self }
    }

    /// Wraps the cells if a text table is wider than the page.
    pub fn wrapped(self) -> Self {
        Self { fit: Fit::Wrap, ..self }
    }

    /// Omits the column from a text table if all cells are empty, or if other columns would be truncated.
    pub fn optional(self) -> Self {
        Self { is_optional: true, ..self }
    }

    /// Whether the column appears in tables for people.
    pub fn is_shown(&self) -> bool {
        matches!(self.place, Place::Everywhere | Place::Tables | Place::Shown)
    }

    pub(crate) fn is_in_csv(&self) -> bool {
        matches!(self.place, Place::Everywhere | Place::Tables | Place::Files)
    }

    /// Whether the column appears in the JSON object.
    pub fn is_in_json(&self) -> bool {
        matches!(self.place, Place::Everywhere | Place::Files | Place::Json)
    }

    /// The value of a row.
    pub fn value(&self, row: usize) -> Value {
        (self.value)(row)
    }

    /// Returns the value of a row as a field of an object.
    pub fn field(&self, row: usize) -> Field {
        Field { value: self.value(row), is_optional: self.may_lack_values }
    }

    /// The value of a row as text, for tables.
    pub fn cell(&self, row: usize) -> String {
        if self.has_decimals() { with_decimals(self.shown_text(row)) } else { self.shown_text(row) }
    }

    fn shown_text(&self, row: usize) -> String {
        self.shown.as_ref().map_or_else(|| self.unit.text(&self.value(row)), |shown| shown(row))
    }

    fn has_decimals(&self) -> bool {
        *self.has_decimals.get_or_init(|| self.unit.has_decimals(self.rows, |row| self.shown_text(row)))
    }

    /// Gives the sizes of all `columns` the same number of decimals if there are differences among them.
    pub(crate) fn align(mut columns: Vec<&mut Self>) {
        if columns.iter().any(|column| column.unit == Unit::Difference) {
            let are_sizes = |column: &Self| matches!(column.unit, Unit::Bytes | Unit::Difference);
            let has_decimals = columns.iter().any(|column| are_sizes(column) && column.has_decimals());
            let sizes = columns.iter_mut().filter(|column| are_sizes(column));
            sizes.for_each(|column| column.has_decimals = OnceCell::from(has_decimals));
        }
    }

    pub(crate) fn markdown_cell(&self, row: usize) -> String {
        let own = self.markdown.as_ref().and_then(|text| text(row));
        own.unwrap_or_else(|| self.cell(row))
    }
}

impl fmt::Debug for Column<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Column").field("key", &self.key).field("title", &self.title).finish_non_exhaustive()
    }
}
