//! A table as text: aligned columns, no wider than the page.

use std::io;

use highwater_snapshots::line_text::{LineText, shorten_line, unique_suffixes};
use highwater_snapshots::shown::{MAX_IN_TABLE, MAX_SHOWN, printable, shown};

use super::{Column, Fit, Table, wrapped};

/// Number of spaces before each column.
const GAP: usize = 2;

/// Minimum width in characters of a column whose cells are shortened.
const LEAST: usize = 12;

/// Width in characters to which columns are shortened before optional columns are omitted.
const COMFORTABLE: usize = 24;

/// Maximum number of rows of a table whose cells are stored. The cells of a longer table are computed twice.
const MAX_ROWS_KEPT: usize = 4096;

impl Table<'_> {
    /// Passes each line to `take`, titles first. Lines are at most `page_width` wide if shortening suffices.
    /// If a line would be wider, source lines lose the folders that do not distinguish them, then optional columns are
    /// left out, then cells are shortened. In a long table, source lines keep their folders.
    ///
    /// # Errors
    /// Fails if `take` fails.
    pub fn each_line(&self, page_width: Option<usize>, mut take: impl FnMut(&str) -> io::Result<()>) -> io::Result<()> {
        let mut layout = Layout::of(self);
        let is_kept = self.rows() <= MAX_ROWS_KEPT;
        let all = layout.columns.clone();
        let cells = |row: usize| all.iter().map(|(_, column)| cleaned(column, &column.cell(row))).collect::<Vec<_>>();
        if is_kept {
            layout.rows = (0..self.rows()).map(cells).collect();
        } else {
            let mut widest = vec![String::new(); all.len()];
            for row in 0..self.rows() {
                for (widest, cell) in widest.iter_mut().zip(cells(row)) {
                    if length(&cell) > length(widest) {
                        *widest = cell;
                    }
                }
            }
            layout.rows = vec![widest];
        }
        let (layout, widths) = layout.laid_out(page_width);
        let mut lines = |cells: &[String]| layout.row_lines(cells, &widths).iter().try_for_each(|line| take(line));
        lines(&all.iter().map(|(_, column)| column.title.to_owned()).collect::<Vec<_>>())?;
        match is_kept {
            true => layout.rows.iter().try_for_each(|row| lines(row)),
            false => (0..self.rows()).try_for_each(|row| lines(&cells(row))),
        }
    }

    /// Returns the lines of the table. Intended for short tables.
    pub fn lines(&self, page_width: Option<usize>) -> Vec<String> {
        let mut lines = Vec::new();
        let keep = |line: &str| {
            lines.push(line.to_owned());
            Ok(())
        };
        // Writing to memory does not fail.
        let _ = self.each_line(page_width, keep);
        lines
    }
}

/// The displayed columns of a table, and rows of their cells. A cell may have several lines.
struct Layout<'t> {
    /// The remaining columns, each with the index of its cells in a row.
    columns: Vec<(usize, &'t Column<'t>)>,
    rows: Vec<Vec<String>>,
}

impl<'t> Layout<'t> {
    fn of(table: &'t Table<'t>) -> Self {
        let shown = table.columns().iter().filter(|column| column.is_shown());
        Self { columns: shown.enumerate().collect(), rows: Vec::new() }
    }

    /// Omits columns and shortens paths so that the table fits the page; also returns the widths of its columns.
    fn laid_out(mut self, page_width: Option<usize>) -> (Self, Vec<usize>) {
        let rows = &self.rows;
        let is_empty = |at: usize| rows.iter().all(|row| row[at].is_empty());
        self.columns.retain(|(at, column)| !column.is_optional || !is_empty(*at));
        let is_wide = |page: &usize| line_width(&self.widths(None)) > *page;
        let page_width = page_width.filter(is_wide);
        let layout = match page_width {
            Some(page) => self.fitted(page),
            None => self,
        };
        let widths = layout.widths(page_width);
        (layout, widths)
    }

    fn fitted(mut self, page: usize) -> Self {
        for (at, column) in self.columns.clone() {
            if column.fit == Fit::SourceLine {
                self.shorten_paths(at);
            }
        }
        while line_width(&self.least_widths(COMFORTABLE)) > page
            && let Some(last) = self.columns.iter().rposition(|(_, column)| column.is_optional)
        {
            self.columns.remove(last);
        }
        self
    }

    /// Removes the folders shared by all source lines with the same file name from the cells with index `at`.
    fn shorten_paths(&mut self, at: usize) {
        let lines: Vec<&str> = self.rows.iter().flat_map(|row| row[at].lines()).collect();
        let mut short = unique_suffixes(&lines).into_iter();
        for cell in self.rows.iter_mut().map(|row| &mut row[at]) {
            let lines: Vec<String> = short.by_ref().take(cell.lines().count()).collect();
            *cell = lines.join("\n");
        }
    }

    /// Returns the minimum widths of columns: at least `least`, and enough for files and lines of source lines.
    fn least_widths(&self, least: usize) -> Vec<usize> {
        let of = |((at, column), width): (&(usize, &Column<'_>), usize)| match column.fit {
            Fit::SourceLine => {
                let places = self.rows.iter().flat_map(|row| row[*at].lines()).map(place_width);
                places.max().unwrap_or(0).max(least).min(width)
            }
            Fit::Cut | Fit::Entries | Fit::Wrap => width.min(least),
            Fit::Never => width,
        };
        self.columns.iter().zip(self.widths(None)).map(of).collect()
    }

    fn widths(&self, page_width: Option<usize>) -> Vec<usize> {
        let mut widths: Vec<usize> = self.columns.iter().map(|(_, column)| length(column.title)).collect();
        for row in &self.rows {
            for (width, (at, _)) in widths.iter_mut().zip(&self.columns) {
                *width = row[*at].lines().map(length).max().unwrap_or(0).max(*width);
            }
        }
        let Some(page) = page_width else { return widths };
        let least = self.least_widths(LEAST);
        let mut excess = line_width(&widths).saturating_sub(page);
        // The widest first, so that several end up equally wide.
        while excess > 0 {
            let cuttable = (0..widths.len()).filter(|&at| widths[at] > least[at]);
            let Some(widest) = cuttable.max_by_key(|&at| widths[at]) else { break };
            widths[widest] -= 1;
            excess -= 1;
        }
        widths
    }

    fn row_lines(&self, cells: &[String], widths: &[usize]) -> Vec<String> {
        let fitted = |((at, column), width): (&(usize, &Column<'_>), &usize)| -> Vec<String> {
            let fit = |line: &str| match column.fit {
                Fit::SourceLine => vec![shorten_line(line, *width).into_owned()],
                Fit::Entries => vec![cut_entries(line, *width)],
                Fit::Wrap => wrapped(line, *width),
                Fit::Cut | Fit::Never => vec![cut(line, *width)],
            };
            cells[*at].lines().flat_map(fit).collect()
        };
        let cells: Vec<Vec<String>> = self.columns.iter().zip(widths).map(fitted).collect();
        let height = cells.iter().map(Vec::len).max().unwrap_or(0).max(1);
        let line = |at: usize| {
            let mut line = String::new();
            for (((_, column), cell), width) in self.columns.iter().zip(&cells).zip(widths) {
                let cell = cell.get(at).map_or("", String::as_str);
                let padding = " ".repeat(width.saturating_sub(length(cell)));
                line.push_str(&" ".repeat(GAP));
                match column.unit.is_numeric() {
                    true => line.extend([&padding, cell]),
                    false => line.extend([cell, &padding]),
                }
            }
            line.truncate(line.trim_end().len());
            line
        };
        (0..height).map(line).collect()
    }
}

/// Returns the displayed text of a cell, which has limited length, and one line unless the column may have several.
fn cleaned(column: &Column<'_>, cell: &str) -> String {
    let short = |line: &str| match column.fit {
        Fit::SourceLine => shorten_line(&printable(line), MAX_IN_TABLE).into_owned(),
        Fit::Wrap => shown(line, MAX_SHOWN).into_owned(),
        _ => shown(line, MAX_IN_TABLE).into_owned(),
    };
    if column.has_lines { cell.lines().map(short).collect::<Vec<_>>().join("\n") } else { short(cell) }
}

/// Returns the width of the file name and line number of a source line, which are never truncated; 0 if the text is not
/// a source line.
fn place_width(text: &str) -> usize {
    match LineText::parse(text) {
        LineText { line: 0, .. } => 0,
        line => length(line.file_name()) + 1 + line.line.to_string().len(),
    }
}

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

/// Shortens `text` to `width` characters, between two of its entries if one fits, and appends `, …`.
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

/// Formats `part` of `whole` in percent, such as `12.3%`; empty if `whole` is 0.
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
    use std::rc::Rc;

    use super::*;

    /// A table of cells under columns made from their positions.
    fn of_cells<const C: usize>(columns: [fn(Cells) -> Column<'static>; C], rows: &[[&str; C]]) -> Table<'static> {
        let cells: Rc<[Vec<String>]> = rows.iter().map(|row| row.map(str::to_owned).to_vec()).collect();
        let count = rows.len();
        let of = |at: usize| -> Cells {
            let cells = Rc::clone(&cells);
            Box::new(move |row| cells[row][at].clone())
        };
        Table::new(count, columns.into_iter().enumerate().map(|(at, column)| column(of(at))))
    }

    type Cells = Box<dyn Fn(usize) -> String>;

    fn table() -> Table<'static> {
        of_cells(
            [|cells| Column::text("", "what", cells).cut().lines(), |cells| Column::number("", "bytes", cells)],
            &[["activation of a long name", "7"], ["two\nlines", "1,000"]],
        )
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
        let table = of_cells(
            [|cells| Column::number("", "step", cells), |cells| Column::text("", "at its peak", cells).entries()],
            &[["0", "parameter 1.13 GiB, gradient 1.13 GiB, others 3 MiB"]],
        );
        assert_eq!(table.lines(Some(40))[1], "     0  parameter 1.13 GiB, …");
        assert_eq!(table.lines(Some(20))[1], "     0  parameter 1…", "one entry does not fit");
        let table = of_cells(
            [|cells| Column::text("", "name", cells), |cells| Column::text("", "about", cells).wrapped()],
            &[["gpt2", "a small language model"]],
        );
        assert_eq!(table.lines(Some(24)), ["  name  about", "  gpt2  a small language", "        model"]);
    }

    #[test]
    fn a_name_takes_one_line_of_limited_width() {
        let long = format!("/p/model.py:7 {}", "f::".repeat(1 << 20));
        let table = of_cells(
            [
                |cells| Column::text("", "frame", cells).source_lines(),
                |cells| Column::text("", "op", cells),
                |cells| Column::number("", "bytes", cells),
            ],
            &[[&long, "a\nb\u{202e}", "7"]],
        );
        let lines = table.lines(None);
        assert!(lines.len() == 2 && lines[1].contains("a\u{fffd}b\u{fffd}"), "{}", lines.len());
        assert!(lines[1].contains("model.py:7") && length(&lines[1]) < MAX_IN_TABLE + 20, "{}", lines[1]);
    }

    #[test]
    fn optional_columns_are_left_out_before_names_are_cut_short() {
        let table = of_cells(
            [|cells| Column::text("", "scope", cells).cut(), |cells| Column::number("", "share", cells).optional()],
            &[["encoder.layers.10.attention", "12.5%"]],
        );
        assert_eq!(table.lines(Some(34))[1], "  encoder.layers.10.attent…  12.5%");
        assert_eq!(table.lines(Some(32))[1], "  encoder.layers.10.attention");
    }

    #[test]
    fn a_source_line_keeps_its_file_name_and_line_number_where_it_is_cut() {
        let table = of_cells(
            [|cells| Column::text("", "frame", cells).source_lines(), |cells| Column::number("", "bytes", cells)],
            &[["/home/me/projects/model.py:14 forward", "7"]],
        );
        assert_eq!(table.lines(Some(35))[1], "  model.py:14 forward      7");
        assert_eq!(table.lines(Some(24))[1], "  model.py:14 fo…      7");
    }

    #[test]
    fn a_narrow_page_drops_shared_folders_and_optional_columns_and_never_a_line_number() {
        let table = of_cells(
            [
                |cells| Column::text("", "frame", cells).source_lines(),
                |cells| Column::number("", "bytes", cells),
                |cells| Column::text("", "", cells).optional(),
            ],
            &[
                ["/home/me/projects/net/model.py:184 forward", "7", "█████"],
                ["/home/me/projects/net/train.py:9 main", "1,000", "█"],
                ["total", "1,007", ""],
            ],
        );
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
        let table = of_cells(
            [
                |cells| Column::text("", "name", cells).optional(),
                |cells| Column::text("", "lost", cells).optional(),
                |cells| Column::text("", "phase", cells).optional(),
                |cells| Column::text("", "bytes", cells).optional(),
            ],
            &[["a", "", "", "7"], ["b", "", "forward", ""]],
        );
        assert_eq!(table.lines(None), ["  name  phase    bytes", "  a              7", "  b     forward"]);
        let kept =
            of_cells([|cells| Column::text("", "name", cells), |cells| Column::text("", "lost", cells)], &[["a", ""]]);
        assert_eq!(kept.lines(None)[0], "  name  lost", "a column that is not optional stays");
    }

    #[test]
    fn a_long_table_has_the_columns_of_a_short_one() {
        let of_rows = |rows: usize| {
            let parts = |row: usize| format!("parameter {} MiB, gradient {} KiB, others 3 MiB", row % 200, row % 200);
            let columns = [
                Column::number("step", "step", |row| row % 200),
                Column::text("lost", "lost", |_| "").optional(),
                Column::text("phase", "phase", |_| "for\nward").optional(),
                Column::shown_alone("", false, |row| "█".repeat(row % 3)).optional(),
                Column::text("parts", "at its peak", parts).entries(),
                Column::nested("more", |row| row),
            ];
            Table::new(rows, columns)
        };
        for width in [None, Some(20), Some(40), Some(60), Some(200)] {
            let (long, short) = (of_rows(MAX_ROWS_KEPT + 1).lines(width), of_rows(200).lines(width));
            assert_eq!(long[..short.len()], short, "{width:?}");
            assert_eq!(long.len(), MAX_ROWS_KEPT + 2);
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
