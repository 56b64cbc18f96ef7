//! A table in Markdown.

use std::fmt::Write as _;

use highwater_snapshots::shown::{MAX_IN_TABLE, shown};

use super::Table;

impl Table<'_> {
    /// Formats the table in Markdown: the titles, the alignment of the columns, then one line per row.
    pub fn markdown(&self) -> String {
        let columns: Vec<_> = self.columns().iter().filter(|column| column.is_shown()).collect();
        let titles = columns.iter().map(|column| match column.title {
            "" => "| ".to_owned(),
            title => format!("| {title} "),
        });
        let lines = columns.iter().map(|column| if column.unit.is_numeric() { "|--:" } else { "|---" });
        let mut out = format!("{}|\n{}|\n", titles.collect::<String>(), lines.collect::<String>());
        for row in 0..self.rows() {
            for column in &columns {
                let _ = write!(out, "| {} ", column.markdown_cell(row));
            }
            out.push_str("|\n");
        }
        out
    }
}

/// Formats a name as code. Characters of names from files that would end the cell, code or line are replaced.
pub fn code(name: &str) -> String {
    format!("`{}`", shown(name, MAX_IN_TABLE).replace('`', "'").replace('|', "\\|"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Column;

    #[test]
    fn a_table_has_its_alignment_and_cells_of_their_own_form() {
        let names = ["a|b", "total"];
        let own = move |row: usize| (row == 0).then(|| code(names[row]));
        let columns = [
            Column::text("mark", "", |_| "met"),
            Column::text("name", "name", move |row| names[row]).in_markdown(own),
            Column::bytes("bytes", "size", |row| row as u64 + 1),
            Column::number("step", "step", |row| row).in_files(),
        ];
        let expected = "| | name | size |\n|---|---|--:|\n| met | `a\\|b` | 1 B |\n| met | total | 2 B |\n";
        assert_eq!(Table::new(2, columns).markdown(), expected);
        assert_eq!(code("a|b`c\nd"), "`a\\|b'c\u{fffd}d`", "names cannot end a cell or begin markup");
    }
}
