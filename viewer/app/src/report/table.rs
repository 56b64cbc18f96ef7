//! A table with rows and typed columns. All output formats are made from it.

use std::io::{self, Write};
use std::rc::Rc;

use highwater_snapshots::shown::spreadsheet_text;
use serde::ser::{Serialize, Serializer};

use super::{Column, Value};

/// A table. Its values are computed on demand, since there may be a million rows.
#[derive(Debug)]
pub struct Table<'a> {
    columns: Vec<Column<'a>>,
    rows: usize,
    sums: usize,
}

impl<'a> Table<'a> {
    /// A table of `rows` rows.
    pub fn new(rows: usize, columns: impl IntoIterator<Item = Column<'a>>) -> Self {
        let mut columns: Vec<Column<'a>> = columns.into_iter().collect();
        columns.iter_mut().for_each(|column| column.rows = rows);
        Column::align(columns.iter_mut().collect());
        Self { columns, rows, sums: 0 }
    }

    /// Marks the last `sums` rows as sums of other rows, such as the total. The list of the JSON object omits them.
    #[must_use]
    pub fn with_sums(self, sums: usize) -> Self {
        Self { sums: sums.min(self.rows), ..self }
    }

    /// All columns.
    pub fn columns(&self) -> &[Column<'a>] {
        &self.columns
    }

    pub(crate) fn into_columns(self) -> Vec<Column<'a>> {
        self.columns
    }

    /// Number of rows, including sums.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// A row in the form of the JSON object.
    pub fn object(&self, row: usize) -> Value {
        let columns = self.columns.iter().filter(|column| column.is_in_json());
        Value::Map(columns.map(|column| (column.key, column.field(row))).collect())
    }

    /// All rows except sums in the form of the JSON object.
    pub fn list(&self) -> Value {
        Value::List((0..self.rows - self.sums).map(|row| self.object(row)).collect())
    }

    /// Writes the table as CSV: the column keys, then the rows. Text is quoted and never interpreted as a formula;
    /// numbers are not formatted.
    ///
    /// # Errors
    /// Fails if `out` cannot be written.
    pub fn write_csv(&self, out: &mut dyn Write) -> io::Result<()> {
        let names = self.csv_columns().map(|column| quoted(column.key));
        writeln!(out, "{}", names.collect::<Vec<_>>().join(","))?;
        self.write_csv_rows(out)
    }

    /// Writes the rows without the column keys.
    ///
    /// # Errors
    /// Fails if `out` cannot be written.
    pub fn write_csv_rows(&self, out: &mut dyn Write) -> io::Result<()> {
        for row in 0..self.rows {
            let cells = self.csv_columns().map(|column| csv_cell(&column.value(row)));
            writeln!(out, "{}", cells.collect::<Vec<_>>().join(","))?;
        }
        Ok(())
    }

    /// Returns the table as CSV, for short tables.
    pub fn csv(&self) -> String {
        let mut out = Vec::new();
        // Writing to memory does not fail.
        let _ = self.write_csv(&mut out);
        String::from_utf8(out).unwrap_or_default()
    }

    fn csv_columns(&self) -> impl Iterator<Item = &Column<'a>> {
        self.columns.iter().filter(|column| column.is_in_csv())
    }
}

/// Formats a value as a CSV cell. Text is quoted and never interpreted as a formula; numbers are not formatted.
fn csv_cell(value: &Value) -> String {
    match value {
        Value::Text(_) | Value::List(_) | Value::Map(_) | Value::Json(_) => quoted(&value.bare()),
        _ => value.bare(),
    }
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", spreadsheet_text(text).replace('"', "\"\""))
}

/// Serializes as a list with one object per row, except sums.
impl Serialize for Table<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq((0..self.rows - self.sums).map(|row| self.object(row)))
    }
}

/// The rows of a table, dropped together with its columns.
#[derive(Debug)]
pub struct Rows<R>(Rc<[R]>);

impl<R> Rows<R> {
    /// Number of rows.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Returns a function from the index of a row to a value, for a column.
    pub fn of<'a, V>(&self, value: impl Fn(&R) -> V + 'a) -> impl Fn(usize) -> V + 'a
    where
        R: 'a,
    {
        let rows = Rc::clone(&self.0);
        move |row| value(&rows[row])
    }
}

impl<R> FromIterator<R> for Rows<R> {
    fn from_iter<I: IntoIterator<Item = R>>(rows: I) -> Self {
        Self(rows.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table<'static> {
        let names = ["=a \"b\"", "c", "total"];
        Table::new(
            3,
            [
                Column::text("name", "who", move |row| names[row]),
                Column::bytes("bytes", "size", |row| (row as u64 + 1) * 1024),
                Column::difference("delta_bytes", "change", |row| 5_i128 - 10 * row as i128),
                Column::shown_alone("", false, |row| "#".repeat(row)),
                Column::number("step", "step", |row| (row == 0).then_some(7_u32)).in_files(),
                Column::nested("keys", |row| Value::or_absent((row == 1).then_some(vec![1_u64, 2]))),
            ],
        )
        .with_sums(1)
    }

    #[test]
    fn one_description_gives_text_csv_and_json() {
        let table = table();
        let shown: Vec<&Column<'_>> = table.columns().iter().filter(|column| column.is_shown()).collect();
        assert_eq!(shown.iter().map(|column| column.title).collect::<Vec<_>>(), ["who", "size", "change", ""]);
        assert_eq!(shown.iter().map(|column| column.cell(2)).collect::<Vec<_>>(), ["total", "3 KiB", "−15 B", "##"]);
        let mut out = Vec::new();
        table.write_csv(&mut out).unwrap();
        let csv = "\"name\",\"bytes\",\"delta_bytes\",\"step\"\n\"'=a \"\"b\"\"\",1024,5,7\n\"c\",2048,-5,\n\
                   \"total\",3072,-15,\n";
        assert_eq!(String::from_utf8(out).unwrap(), csv);
        let json = "[{\"name\":\"=a \\\"b\\\"\",\"bytes\":1024,\"delta_bytes\":5,\"step\":7},\
                    {\"name\":\"c\",\"bytes\":2048,\"delta_bytes\":-5,\"step\":null,\"keys\":[1,2]}]";
        assert_eq!(serde_json::to_string(&table).unwrap(), json);
    }

    #[test]
    fn sizes_of_a_column_have_decimals_if_one_of_them_has() {
        let cells = |bytes: [u64; 3]| {
            let table = Table::new(3, [Column::bytes("bytes", "size", move |row| bytes[row])]);
            [0, 1, 2].map(|row| table.columns()[0].cell(row))
        };
        assert_eq!(cells([64 << 20, 1 << 30, 512]), ["64 MiB", "1 GiB", "512 B"]);
        assert_eq!(cells([64 << 20, 3 << 19, 512]), ["64.00 MiB", "1.50 MiB", "512 B"]);
        let grown = |row: usize| [-(64_i128 << 20), 1536, 0][row];
        let table = Table::new(3, [Column::difference("delta_bytes", "change", grown)]);
        assert_eq!([0, 1, 2].map(|row| table.columns()[0].cell(row)), ["−64.00 MiB", "+1.50 KiB", "0 B"]);
        let sizes = Column::bytes("bytes", "size", |_| 64_u64 << 20);
        let table = Table::new(3, [sizes, Column::difference("delta_bytes", "change", grown)]);
        assert_eq!(table.columns()[0].cell(0), "64.00 MiB", "what is compared has one number of decimals");
    }

    #[test]
    fn rows_are_ordered_by_value() {
        let table = table();
        let order = |column: usize| {
            let mut rows = [0, 1, 2];
            rows.sort_by(|a, b| table.columns()[column].value(*a).compare(&table.columns()[column].value(*b)));
            rows
        };
        assert_eq!([order(0), order(1), order(2)], [[0, 1, 2], [0, 1, 2], [2, 1, 0]]);
    }
}
