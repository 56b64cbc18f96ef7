//! Tables with aligned columns, no wider than the page.

use std::io;

use highwater_app::report::{self, Fit};
use highwater_snapshots::line_text::{LineText, shorten_line, unique_suffixes};
use highwater_snapshots::shown::{MAX_IN_TABLE, MAX_SHOWN, printable, shown};

use crate::cli::output::wrap::wrapped;

/// The alignment of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Text.
    Left,
    /// Numbers.
    Right,
}

/// A column's title and layout.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    title: &'static str,
    align: Align,
    fit: Fit,
    is_optional: bool,
    /// Whether the lines of its cells are lines of the table; otherwise a cell has one line.
    has_lines: bool,
    /// The position of its cells in a row.
    at: usize,
}

impl Column {
    /// A column of text.
    pub fn text(title: &'static str) -> Self {
        Self { title, align: Align::Left, fit: Fit::Never, is_optional: false, has_lines: false, at: 0 }
    }

    /// A column of numbers.
    pub fn number(title: &'static str) -> Self {
        Self { align: Align::Right, ..Self::text(title) }
    }

    /// The layout of a column of a report.
    fn of(column: &report::Column<'_>) -> Self {
        let align = if column.unit.is_numeric() { Align::Right } else { Align::Left };
        let report::Column { title, fit, is_optional, has_lines, .. } = column;
        Self { title, align, fit: *fit, is_optional: *is_optional, has_lines: *has_lines, at: 0 }
    }

    /// Cuts its cells if the table is wider than the page.
    pub fn cut(self) -> Self {
        Self { fit: Fit::Cut, ..self }
    }

    /// Shortens its source lines as [`shorten_line`] does if the table is wider than the page.
    pub fn source_lines(self) -> Self {
        Self { fit: Fit::SourceLine, ..self }
    }

    /// Lets its cells have several lines.
    pub fn lines(self) -> Self {
        Self { has_lines: true, ..self }
    }

    /// Drops entries at the end of its lists, which are separated by `, `, if the table is wider than the page.
    pub fn entries(self) -> Self {
        Self { fit: Fit::Entries, ..self }
    }

    /// Wraps its cells if the table is wider than the page.
    pub fn wrapped(self) -> Self {
        Self { fit: Fit::Wrap, ..self }
    }

    /// Returns the text of a cell as it is shown: of limited length, and on one line unless the column has lines.
    fn cleaned(&self, cell: &str) -> String {
        let short = |line: &str| match self.fit {
            Fit::SourceLine => shorten_line(&printable(line), MAX_IN_TABLE).into_owned(),
            Fit::Wrap => shown(line, MAX_SHOWN).into_owned(),
            _ => shown(line, MAX_IN_TABLE).into_owned(),
        };
        if self.has_lines { cell.lines().map(short).collect::<Vec<_>>().join("\n") } else { short(cell) }
    }

    /// Leaves the column out if all its cells are empty, and, the last such column first, if other columns would otherwise
    /// be cut to less than `COMFORTABLE` characters.
    pub fn optional(self) -> Self {
        Self { is_optional: true, ..self }
    }
}

/// Rows under titles. A cell may have several lines.
#[derive(Clone, Debug)]
pub struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
}

/// Spaces before each column.
const GAP: usize = 2;

/// Minimum characters of a column whose cells are shortened.
const LEAST: usize = 12;

/// Characters that a shortened column keeps while optional columns can be left out instead.
const COMFORTABLE: usize = 24;

impl Table {
    /// Creates a table without rows.
    pub fn new(columns: Vec<Column>) -> Self {
        let columns = columns.into_iter().enumerate().map(|(at, column)| Column { at, ..column }).collect();
        Self { columns, rows: Vec::new() }
    }

    /// The table of a report, as people read it.
    pub fn of(table: &report::Table<'_>) -> Self {
        let shown: Vec<&report::Column<'_>> = table.columns().iter().filter(|column| column.is_shown()).collect();
        let mut text = Self::new(shown.iter().map(|column| Column::of(column)).collect());
        (0..table.rows()).for_each(|row| text.push(shown.iter().map(|column| column.cell(row)).collect()));
        text
    }

    /// Appends a row; missing cells at its end are empty.
    pub fn push(&mut self, cells: Vec<String>) {
        assert!(cells.len() <= self.columns.len(), "a row has no more cells than the table has columns");
        let cells = cleaned(&self.columns, cells);
        self.rows.push(cells);
    }

    /// Returns the table as lines, titles first, none wider than `page_width` if the columns that can be shortened
    /// allow it. If it would be wider, source lines lose the folders that do not distinguish them, then optional
    /// columns are left out, then cells are shortened.
    pub fn lines(&self, page_width: Option<usize>) -> Vec<String> {
        let (table, widths) = self.clone().laid_out(page_width);
        let rows = table.rows.iter().flat_map(|row| table.row_lines(row, &widths));
        table.titles(&widths).into_iter().chain(rows).collect()
    }

    /// Passes the lines of a table with more rows than are kept to `take`, as [`Table::lines`] returns them, but source
    /// lines keep their folders. The rows are made twice: to be measured and to be passed on.
    ///
    /// # Errors
    ///
    /// As `take`.
    pub fn stream(
        table: &report::Table<'_>,
        page_width: Option<usize>,
        mut take: impl FnMut(&str) -> io::Result<()>,
    ) -> io::Result<()> {
        let shown: Vec<&report::Column<'_>> = table.columns().iter().filter(|column| column.is_shown()).collect();
        let columns: Vec<Column> = shown.iter().map(|column| Column::of(column)).collect();
        let cells = |row| cleaned(&columns, shown.iter().map(|column| column.cell(row)).collect());
        let mut widest = vec![String::new(); columns.len()];
        for row in 0..table.rows() {
            for (widest, cell) in widest.iter_mut().zip(cells(row)) {
                if length(&cell) > length(widest) {
                    *widest = cell;
                }
            }
        }
        let mut layout = Self::new(columns.clone());
        layout.push(widest);
        let (layout, widths) = layout.laid_out(page_width);
        layout.titles(&widths).iter().try_for_each(|line| take(line))?;
        (0..table.rows())
            .try_for_each(|row| layout.row_lines(&cells(row), &widths).iter().try_for_each(|line| take(line)))
    }

    /// Leaves out columns and shortens paths so that the table fits the page; returns the widths of its columns too.
    fn laid_out(mut self, page_width: Option<usize>) -> (Self, Vec<usize>) {
        let rows = &self.rows;
        let is_empty = |at: usize| rows.iter().all(|row| row.get(at).is_none_or(String::is_empty));
        self.columns.retain(|column| !column.is_optional || !is_empty(column.at));
        let is_wide = |page: &usize| line_width(&self.widths(None)) > *page;
        let page_width = page_width.filter(is_wide);
        let table = match page_width {
            Some(page) => self.fitted(page),
            None => self,
        };
        let widths = table.widths(page_width);
        (table, widths)
    }

    fn fitted(mut self, page: usize) -> Self {
        let table = &mut self;
        for at in 0..table.columns.len() {
            if table.columns[at].fit == Fit::SourceLine {
                table.shorten_paths(table.columns[at].at);
            }
        }
        while line_width(&table.least_widths(COMFORTABLE)) > page
            && let Some(at) = table.columns.iter().rposition(|column| column.is_optional)
        {
            table.columns.remove(at);
        }
        self
    }

    /// Removes from the cells at `at` the folders that all source lines of a name share.
    fn shorten_paths(&mut self, at: usize) {
        let cells = self.rows.iter().filter_map(|row| row.get(at));
        let lines: Vec<&str> = cells.flat_map(|cell| cell.lines()).collect();
        let mut short = unique_suffixes(&lines).into_iter();
        for cell in self.rows.iter_mut().filter_map(|row| row.get_mut(at)) {
            let lines: Vec<String> = short.by_ref().take(cell.lines().count()).collect();
            *cell = lines.join("\n");
        }
    }

    /// Returns the minimum widths of columns: `least`, or more for source lines, whose file name and line number stay.
    fn least_widths(&self, least: usize) -> Vec<usize> {
        let of = |(at, width): (usize, usize)| match self.columns[at].fit {
            Fit::SourceLine => {
                let cells = self.rows.iter().filter_map(|row| row.get(self.columns[at].at));
                let places = cells.flat_map(|cell| cell.lines()).map(place_width);
                places.max().unwrap_or(0).max(least).min(width)
            }
            Fit::Cut | Fit::Entries | Fit::Wrap => width.min(least),
            Fit::Never => width,
        };
        self.widths(None).into_iter().enumerate().map(of).collect()
    }

    fn titles(&self, widths: &[usize]) -> Vec<String> {
        let mut titles = Vec::new();
        for column in &self.columns {
            titles.resize(column.at, String::new());
            titles.push(column.title.to_owned());
        }
        self.row_lines(&titles, widths)
    }

    fn widths(&self, page_width: Option<usize>) -> Vec<usize> {
        let mut widths: Vec<usize> = self.columns.iter().map(|column| length(column.title)).collect();
        for row in &self.rows {
            for (width, column) in widths.iter_mut().zip(&self.columns) {
                let Some(cell) = row.get(column.at) else { continue };
                *width = cell.lines().map(length).max().unwrap_or(0).max(*width);
            }
        }
        let Some(page) = page_width else { return widths };
        let least = self.least_widths(LEAST);
        let mut excess = line_width(&widths).saturating_sub(page);
        // The widest first, so that several end up equally wide.
        while excess > 0 {
            let cuttable = (0..widths.len()).filter(|&at| widths[at] > least[at]);
            let Some(widest) = cuttable.max_by_key(|&at| widths[at]) else {
                break;
            };
            widths[widest] -= 1;
            excess -= 1;
        }
        widths
    }

    fn row_lines(&self, cells: &[String], widths: &[usize]) -> Vec<String> {
        let fitted = |(at, column): (usize, &Column)| -> Vec<String> {
            let lines = cells.get(column.at).map(|cell| cell.lines()).into_iter().flatten();
            let fit = |line: &str| match column.fit {
                Fit::SourceLine => vec![shorten_line(line, widths[at]).into_owned()],
                Fit::Entries => vec![cut_entries(line, widths[at])],
                Fit::Wrap => wrapped(line, widths[at]),
                Fit::Cut | Fit::Never => vec![cut(line, widths[at])],
            };
            lines.flat_map(fit).collect()
        };
        let cells: Vec<Vec<String>> = self.columns.iter().enumerate().map(fitted).collect();
        let height = cells.iter().map(Vec::len).max().unwrap_or(0).max(1);
        let line = |at: usize| {
            let mut line = String::new();
            for ((column, cell), width) in self.columns.iter().zip(&cells).zip(widths) {
                let cell = cell.get(at).map_or("", String::as_str);
                let padding = " ".repeat(width.saturating_sub(length(cell)));
                line.push_str(&" ".repeat(GAP));
                match column.align {
                    Align::Left => line.extend([cell, &padding]),
                    Align::Right => line.extend([&padding, cell]),
                }
            }
            line.truncate(line.trim_end().len());
            line
        };
        (0..height).map(line).collect()
    }
}

/// Returns the cells of a row of `columns` as they are shown.
fn cleaned(columns: &[Column], cells: Vec<String>) -> Vec<String> {
    columns.iter().zip(cells).map(|(column, cell)| column.cleaned(&cell)).collect()
}

/// Returns the width of a source line's file name and number, which are never cut; 0 if it has none.
fn place_width(text: &str) -> usize {
    match LineText::parse(text) {
        LineText { line: 0, .. } => 0,
        line => length(line.file_name()) + 1 + line.line.to_string().len(),
    }
}

/// Returns the width of a line with columns of these widths.
fn line_width(widths: &[usize]) -> usize {
    widths.iter().map(|width| width + GAP).sum()
}

/// Shortens `text` to `width` characters, marked by an ellipsis.
pub fn cut(text: &str, width: usize) -> String {
    if length(text) <= width {
        return text.to_owned();
    }
    let kept: String = text.chars().take(width.saturating_sub(1)).collect();
    kept.trim_end().to_owned() + "…"
}

/// Shortens `text` to `width` characters, between two of its entries if one fits, marked by `, …`.
fn cut_entries(text: &str, width: usize) -> String {
    if length(text) <= width {
        return text.to_owned();
    }
    let ends = text.match_indices(", ").map(|(end, _)| &text[..end]);
    let longest = ends.take_while(|head| length(head) + length(", …") <= width).last();
    longest.map_or_else(|| cut(text, width), |head| format!("{head}, …"))
}

/// Draws `part` of `whole` as a bar of at most `width` characters, exact to an eighth of a character.
pub fn bar(part: u64, whole: u64, width: usize) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    if whole == 0 {
        return String::new();
    }
    let eighths = u128::from(part.min(whole)) * 8 * width as u128 / u128::from(whole);
    let eighths = (eighths as usize).max(usize::from(part > 0));
    "█".repeat(eighths / 8) + EIGHTHS[eighths % 8]
}

/// Formats `part` of `whole` in percent: `12.3%`.
pub fn percent(part: u64, whole: u64) -> String {
    if whole == 0 {
        return String::new();
    }
    format!("{:.1}%", part as f64 * 100.0 / whole as f64)
}

fn length(text: &str) -> usize {
    text.chars().count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new(vec![Column::text("what").cut().lines(), Column::number("bytes")]);
        table.push(vec!["activation of a long name".into(), "7".into()]);
        table.push(vec!["two\nlines".into(), "1,000".into()]);
        table
    }

    #[test]
    fn numbers_stand_right_and_cells_may_have_lines() {
        let lines = table().lines(None);
        assert_eq!(
            lines,
            [
                "  what                       bytes",
                "  activation of a long name      7",
                "  two                        1,000",
                "  lines"
            ]
        );
    }

    #[test]
    fn a_column_that_gives_way_is_cut_to_the_page() {
        let lines = table().lines(Some(24));
        assert_eq!(lines[1], "  activation of…       7");
        assert!(lines.iter().all(|line| line.chars().count() <= 24));
        assert!(table().lines(Some(3)).iter().all(|line| line.chars().count() <= 2 + LEAST + 2 + 5));
    }

    #[test]
    fn lists_are_cut_between_entries_and_wrapped_cells_lose_nothing() {
        let mut table = Table::new(vec![Column::number("step"), Column::text("at its peak").entries()]);
        table.push(vec!["0".into(), "parameter 1.13 GiB, gradient 1.13 GiB, others 3 MiB".into()]);
        assert_eq!(table.lines(Some(40))[1], "     0  parameter 1.13 GiB, …");
        assert_eq!(table.lines(Some(20))[1], "     0  parameter 1…", "one entry does not fit");
        let mut table = Table::new(vec![Column::text("name"), Column::text("about").wrapped()]);
        table.push(vec!["gpt2".into(), "a small language model".into()]);
        assert_eq!(table.lines(Some(24)), ["  name  about", "  gpt2  a small language", "        model"]);
    }

    #[test]
    fn a_name_takes_one_line_of_limited_width() {
        let columns = || vec![Column::text("frame").source_lines(), Column::text("op"), Column::number("bytes")];
        let row =
            || vec![format!("/p/model.py:7 {}", "f::".repeat(1 << 20)), "a\nb\u{202e}".to_owned(), "7".to_owned()];
        let mut table = Table::new(columns());
        table.push(row());
        let lines = table.lines(None);
        assert!(lines.len() == 2 && lines[1].contains("a\u{fffd}b\u{fffd}"), "{}", lines.len());
        assert!(lines[1].contains("model.py:7") && length(&lines[1]) < MAX_IN_TABLE + 20, "{}", lines[1]);
    }

    #[test]
    fn optional_columns_are_left_out_before_names_are_cut_short() {
        let mut table = Table::new(vec![Column::text("scope").cut(), Column::number("share").optional()]);
        table.push(vec!["encoder.layers.10.attention".into(), "12.5%".into()]);
        assert_eq!(table.lines(Some(34))[1], "  encoder.layers.10.attent…  12.5%");
        assert_eq!(table.lines(Some(32))[1], "  encoder.layers.10.attention");
    }

    #[test]
    fn a_source_line_keeps_its_file_name_and_line_number_where_it_is_cut() {
        let mut table = Table::new(vec![Column::text("frame").source_lines(), Column::number("bytes")]);
        table.push(vec!["/home/me/projects/model.py:14 forward".into(), "7".into()]);
        assert_eq!(table.lines(Some(35))[1], "  model.py:14 forward      7");
        assert_eq!(table.lines(Some(24))[1], "  model.py:14 fo…      7");
    }

    #[test]
    fn a_narrow_page_drops_shared_folders_and_optional_columns_and_never_a_line_number() {
        let columns = vec![Column::text("frame").source_lines(), Column::number("bytes"), Column::text("").optional()];
        let mut table = Table::new(columns);
        table.push(vec!["/home/me/projects/net/model.py:184 forward".into(), "7".into(), "█████".into()]);
        table.push(vec!["/home/me/projects/net/train.py:9 main".into(), "1,000".into(), "█".into()]);
        table.push(vec!["total".into(), "1,007".into()]);
        assert!(table.lines(None)[1].starts_with("  /home/me/projects/net/model.py:184 forward"), "a pipe has all");
        assert_eq!(table.lines(Some(40))[1], "  model.py:184 forward      7  █████");
        for width in 26..60 {
            let lines = table.lines(Some(width));
            assert!(lines[1].contains("model.py:184") && lines[2].contains("train.py:9"), "{lines:?}");
            assert!(lines.iter().all(|line| length(line) <= width), "{width}: {lines:?}");
        }
        assert!(!table.lines(Some(26))[1].contains('█'), "{:?}", table.lines(Some(26)));
    }

    #[test]
    fn an_optional_column_without_a_cell_is_left_out() {
        let columns = ["name", "lost", "phase", "bytes"].map(Column::text);
        let mut table = Table::new(columns.map(Column::optional).into());
        table.push(vec!["a".into(), String::new(), String::new(), "7".into()]);
        table.push(vec!["b".into(), String::new(), "forward".into()]);
        assert_eq!(table.lines(None), ["  name  phase    bytes", "  a              7", "  b     forward"]);
        let mut kept = Table::new(vec![Column::text("name"), Column::text("lost")]);
        kept.push(vec!["a".into()]);
        assert_eq!(kept.lines(None)[0], "  name  lost", "a column that is not optional stays");
    }

    #[test]
    fn a_streamed_table_has_the_lines_of_one_in_memory() {
        let parts = |row: usize| format!("parameter {row} MiB, gradient {} KiB, others 3 MiB", row * 999);
        let columns = [
            report::Column::number("step", "step", |row| row),
            report::Column::text("lost", "lost", |_| "").optional(),
            report::Column::text("phase", "phase", |_| "for\nward").optional(),
            report::Column::shown_alone("", false, |row| "█".repeat(row % 3)).optional(),
            report::Column::text("parts", "at its peak", parts).entries(),
            report::Column::nested("more", |row| row),
        ];
        let table = report::Table::new(200, columns);
        for width in [None, Some(20), Some(40), Some(60), Some(200)] {
            let mut lines = Vec::new();
            let take = |line: &str| {
                lines.push(line.to_owned());
                Ok(())
            };
            Table::stream(&table, width, take).unwrap();
            assert_eq!(lines, Table::of(&table).lines(width), "{width:?}");
        }
    }

    #[test]
    fn a_bar_is_never_empty_for_something_and_never_longer_than_its_width() {
        assert_eq!(bar(0, 100, 4), "");
        assert_eq!(bar(1, 1_000_000, 4), "▏");
        assert_eq!(bar(50, 100, 4), "██");
        assert_eq!(bar(u64::MAX, u64::MAX, 4), "████");
        assert_eq!(bar(5, 0, 4), "");
        assert_eq!(percent(1, 3), "33.3%");
    }
}
