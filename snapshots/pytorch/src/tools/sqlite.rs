//! Reads tables of an SQLite database row by row. Implements the part of the [file
//! format](https://www.sqlite.org/fileformat2.html) that a table scan needs.
//!
//! Each page of a table is visited once, and no page may claim more contents than fit, so that a damaged file takes no
//! more time than an intact one.

use std::cell::Cell;

use highwater_snapshots::error::{Error, Result};

pub(crate) const MAGIC: &[u8] = b"SQLite format 3\0";

const HEADER_BYTES: usize = 100;
/// Maximum number of columns of a table that are read. Tables of exports have fewer.
const MAX_COLUMNS: usize = 256;
/// Maximum depth of a table's tree. Even with two children per inner page, a deeper tree would have about 2^40 leaf
/// pages, more than fit into any file.
const MAX_DEPTH: usize = 40;

/// An SQLite database file that is read page by page.
#[derive(Clone, Debug)]
pub(super) struct Database<'a> {
    bytes: &'a [u8],
    page_bytes: usize,
    /// Number of usable bytes per page, without the reserved bytes at its end.
    usable: usize,
    tables: Vec<Table>,
    visited: Cell<u64>,
}

#[derive(Clone, Debug)]
pub(super) struct Table {
    name: String,
    root: u32,
    columns: Vec<String>,
    /// The column that is an alias of the row id and is not contained in records.
    row_id: Option<usize>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Value<'r> {
    #[default]
    Null,
    Integer(i64),
    Text(&'r [u8]),
    /// A floating-point number or a blob. No column that is read contains one.
    Other,
}

#[derive(Clone, Debug)]
pub(super) struct Row<'r> {
    values: Vec<Value<'r>>,
}

impl Row<'_> {
    pub(super) fn integer(&self, column: Option<usize>) -> Option<i64> {
        match self.values.get(column?)? {
            Value::Integer(number) => Some(*number),
            _ => None,
        }
    }

    pub(super) fn text(&self, column: Option<usize>) -> Option<&str> {
        match self.values.get(column?)? {
            Value::Text(text) => std::str::from_utf8(text).ok(),
            _ => None,
        }
    }
}

impl Table {
    pub(super) fn column(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column == name)
    }
}

fn damaged(offset: usize, what: &str) -> Error {
    Error::Damaged { offset: offset as u64, what: format!("the SQLite database is damaged: {what}") }
}

impl<'a> Database<'a> {
    pub(super) fn open(bytes: &'a [u8]) -> Result<Self> {
        let header = bytes.get(..HEADER_BYTES).ok_or_else(|| damaged(bytes.len(), "it ends within its header"))?;
        let page_bytes = match u16::from_be_bytes([header[16], header[17]]) {
            1 => 1 << 16,
            bytes => usize::from(bytes),
        };
        let usable = page_bytes.saturating_sub(usize::from(header[20]));
        if !page_bytes.is_power_of_two() || page_bytes < 512 || usable < 480 {
            return Err(damaged(16, "its pages have no valid size"));
        }
        if u32::from_be_bytes([header[56], header[57], header[58], header[59]]) > 1 {
            return Err(damaged(56, "its text is UTF-16; exports of Nsight Systems are UTF-8"));
        }
        let schema = Table { name: String::new(), root: 1, columns: Vec::new(), row_id: None };
        let mut database = Self { bytes, page_bytes, usable, tables: Vec::new(), visited: Cell::new(0) };
        let mut tables = Vec::new();
        // type, name, tbl_name, rootpage, sql
        let schema = Table { columns: vec![String::new(); 5], ..schema };
        database.scan(&schema, &mut |row| {
            let root = row.integer(Some(3)).and_then(|root| u32::try_from(root).ok());
            if let (Some("table"), Some(name), Some(root), Some(sql)) =
                (row.text(Some(0)), row.text(Some(1)), root, row.text(Some(4)))
            {
                let (columns, row_id) = columns_of(sql);
                tables.push(Table { name: name.to_owned(), root, columns, row_id });
            }
            Ok(())
        })?;
        database.tables = tables;
        Ok(database)
    }

    pub(super) fn table(&self, name: &str) -> Option<&Table> {
        self.tables.iter().find(|table| table.name == name)
    }

    /// Returns the bytes of the pages visited so far, more than the file's size if tables share pages or are scanned
    /// again.
    pub(super) fn bytes_read(&self) -> u64 {
        self.visited.get().saturating_mul(self.page_bytes as u64)
    }

    /// Passes each row of `table` to `take`, in order of row ids.
    pub(super) fn scan(&self, table: &Table, take: &mut dyn FnMut(&Row<'_>) -> Result<()>) -> Result<()> {
        let mut scan = Scan { database: self, table, pages_left: self.bytes.len() / self.page_bytes + 1, take };
        scan.tree(table.root, 0)
    }

    /// Returns the bytes of a page, and the offset of the page in the file.
    fn page(&self, number: u32) -> Result<(&'a [u8], usize)> {
        let offset = (number as usize).checked_sub(1).and_then(|before| before.checked_mul(self.page_bytes));
        let page = offset.and_then(|offset| Some((self.bytes.get(offset..)?.get(..self.page_bytes)?, offset)));
        page.ok_or_else(|| damaged(self.bytes.len(), &format!("page {number} is missing: copy the file again")))
    }
}

struct Scan<'s, 'a> {
    database: &'s Database<'a>,
    table: &'s Table,
    pages_left: usize,
    take: &'s mut dyn FnMut(&Row<'_>) -> Result<()>,
}

impl<'a> Scan<'_, 'a> {
    fn visit(&mut self, number: u32) -> Result<(&'a [u8], usize)> {
        let (page, offset) = self.database.page(number)?;
        self.database.visited.set(self.database.visited.get() + 1);
        self.pages_left = self.pages_left.checked_sub(1).ok_or_else(|| damaged(offset, "pages refer to each other"))?;
        Ok((page, offset))
    }

    fn tree(&mut self, number: u32, depth: usize) -> Result<()> {
        let (page, offset) = self.visit(number)?;
        let wrong = |what: &str| damaged(offset, what);
        if depth > MAX_DEPTH {
            return Err(wrong("a table is too deep"));
        }
        // The first page begins with the file's header.
        let start = if number == 1 { HEADER_BYTES } else { 0 };
        let (kind, cells) = (page[start], usize::from(u16::from_be_bytes([page[start + 3], page[start + 4]])));
        let cells_start = start + if kind == INTERIOR { 12 } else { 8 };
        let pointers =
            page.get(cells_start..cells_start + 2 * cells).ok_or_else(|| wrong("a page has too many rows"))?;
        let mut bytes_left = self.database.usable;
        for pointer in pointers.chunks_exact(2) {
            let at = usize::from(u16::from_be_bytes([pointer[0], pointer[1]]));
            let cell = page.get(at..self.database.usable).ok_or_else(|| wrong("a row is outside its page"))?;
            let used = match kind {
                INTERIOR => {
                    let child = cell.first_chunk().ok_or_else(|| wrong("a row is outside its page"))?;
                    self.tree(u32::from_be_bytes(*child), depth + 1)?;
                    4
                }
                LEAF => self.row(cell, offset + at)?,
                _ => return Err(wrong("a page in a table is not a table page")),
            };
            bytes_left = bytes_left.checked_sub(used).ok_or_else(|| wrong("the rows of a page overlap"))?;
        }
        if kind == INTERIOR {
            let last = [page[start + 8], page[start + 9], page[start + 10], page[start + 11]];
            return self.tree(u32::from_be_bytes(last), depth + 1);
        }
        Ok(())
    }

    /// Reads the row at `offset`. Returns its length in `cell`.
    fn row(&mut self, cell: &[u8], offset: usize) -> Result<usize> {
        let cut = || damaged(offset, "a row is cut off");
        let mut rest = cell;
        let length = usize::try_from(varint(&mut rest).ok_or_else(cut)?).map_err(|_| cut())?;
        let row_id = varint(&mut rest).ok_or_else(cut)?;
        let usable = self.database.usable;
        let (most, least) = (usable - 35, (usable - 12) * 32 / 255 - 23);
        let local = if length <= most {
            length
        } else {
            let fitting = least + (length - least) % (usable - 4);
            if fitting <= most { fitting } else { least }
        };
        let payload = rest.get(..local).ok_or_else(cut)?;
        let used = cell.len() - rest.len() + local;
        if length == local {
            self.record(payload, row_id, offset)?;
            return Ok(used);
        }
        let next = rest.get(local..).and_then(|rest| rest.first_chunk()).ok_or_else(cut)?;
        let whole = self.overflow(payload, length, u32::from_be_bytes(*next), offset)?;
        self.record(&whole, row_id, offset)?;
        Ok(used + 4)
    }

    /// Returns the whole payload of a row that continues in overflow pages.
    fn overflow(&mut self, start: &[u8], length: usize, mut next: u32, offset: usize) -> Result<Vec<u8>> {
        let mut whole = start.to_vec();
        while whole.len() < length {
            if next == 0 {
                return Err(damaged(offset, "a row is cut off"));
            }
            let (page, _) = self.visit(next)?;
            let (following, content) = page[..self.database.usable].split_at(4);
            next = u32::from_be_bytes([following[0], following[1], following[2], following[3]]);
            whole.extend_from_slice(&content[..content.len().min(length - whole.len())]);
        }
        Ok(whole)
    }

    fn record(&mut self, payload: &[u8], row_id: u64, offset: usize) -> Result<()> {
        let cut = || damaged(offset, "a row is shorter than its columns");
        let mut types = payload;
        let length = varint(&mut types).and_then(|length| usize::try_from(length).ok()).ok_or_else(cut)?;
        let (header, mut content) = payload.split_at_checked(length).ok_or_else(cut)?;
        let mut types = header.get(payload.len() - types.len()..).ok_or_else(cut)?;
        let mut values = Vec::with_capacity(self.table.columns.len());
        while !types.is_empty() && values.len() < self.table.columns.len() {
            let code = varint(&mut types).ok_or_else(cut)?;
            let bytes = usize::try_from(bytes_of(code)).map_err(|_| cut())?;
            let (value, rest) = content.split_at_checked(bytes).ok_or_else(cut)?;
            content = rest;
            values.push(value_of(code, value));
        }
        if let Some(value) = self.table.row_id.and_then(|column| values.get_mut(column)) {
            *value = Value::Integer(row_id as i64);
        }
        (self.take)(&Row { values })
    }
}

/// Page types of tables in the file format.
const INTERIOR: u8 = 5;
const LEAF: u8 = 13;

/// Returns the length in bytes of a value of serial type `code`.
fn bytes_of(code: u64) -> u64 {
    match code {
        0 | 8 | 9 | 10 | 11 => 0,
        1..=4 => code,
        5 => 6,
        6 | 7 => 8,
        _ => (code - 12) / 2,
    }
}

fn value_of(code: u64, bytes: &[u8]) -> Value<'_> {
    match code {
        0 => Value::Null,
        1..=6 => {
            let sign = if bytes.first().is_some_and(|byte| *byte > 127) { -1 } else { 0 };
            Value::Integer(bytes.iter().fold(sign, |number, byte| number << 8 | i64::from(*byte)))
        }
        8 => Value::Integer(0),
        9 => Value::Integer(1),
        code if code >= 13 && code % 2 == 1 => Value::Text(bytes),
        _ => Value::Other,
    }
}

/// Reads a variable-length integer of up to nine bytes, most significant bits first; `None` if `bytes` ends within it.
fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for index in 0..9 {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        if index == 8 {
            return Some(number << 8 | u64::from(byte));
        }
        number = number << 7 | u64::from(byte & 127);
        if byte < 128 {
            return Some(number);
        }
    }
    None
}

/// Returns the names of the columns in a `CREATE TABLE` statement, and the index of the column that is an alias of the
/// row id.
fn columns_of(sql: &str) -> (Vec<String>, Option<usize>) {
    let text: Vec<&str> = sql.lines().map(|line| line.split_once("--").map_or(line, |(code, _)| code)).collect();
    let text = text.join("\n");
    let body = text.split_once('(').map_or("", |(_, body)| body);
    let (mut columns, mut row_id, mut depth, mut start) = (Vec::new(), None, 0, 0);
    for (at, letter) in body.char_indices().chain([(body.len(), ')')]) {
        match letter {
            '(' => depth += 1,
            ')' if depth > 0 => depth -= 1,
            ',' | ')' if depth == 0 => {
                let mut words = body[start..at].split_whitespace();
                let name = words.next().unwrap_or_default().trim_matches(['"', '`', '[', ']']);
                let rest: Vec<String> = words.map(str::to_ascii_uppercase).collect();
                let is_constraint =
                    ["PRIMARY", "UNIQUE", "CHECK", "FOREIGN", "CONSTRAINT"].contains(&&*name.to_ascii_uppercase());
                if !is_constraint && !name.is_empty() && columns.len() < MAX_COLUMNS {
                    if rest.join(" ").starts_with("INTEGER") && rest.join(" ").contains("PRIMARY KEY") {
                        row_id = Some(columns.len());
                    }
                    columns.push(name.to_owned());
                }
                if letter == ')' {
                    break;
                }
                start = at + 1;
            }
            _ => {}
        }
    }
    (columns, row_id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_read_from_the_statement_that_made_the_table() {
        let (columns, row_id) = columns_of(
            "CREATE TABLE T (\n    -- of threads, and (more)\n    id INTEGER NOT NULL PRIMARY KEY, -- its id, 1\n    \
             \"end\" INT CHECK (a > 1, b),\n    name TEXT,\n    PRIMARY KEY (id, name)\n)",
        );
        assert_eq!((columns.join(" "), row_id), ("id end name".to_owned(), Some(0)));
        assert_eq!(columns_of("CREATE TABLE T (id INT PRIMARY KEY)"), (vec!["id".to_owned()], None));
        assert_eq!(columns_of(""), (Vec::new(), None));
    }

    #[test]
    fn numbers_have_one_to_nine_bytes_and_a_sign() {
        assert_eq!(varint(&mut &[0x81, 0x00][..]), Some(128));
        assert_eq!(varint(&mut &[0xff; 9][..]), Some(u64::MAX));
        assert_eq!(varint(&mut &[0xff; 8][..]), None);
        assert_eq!(value_of(2, &[0xff, 0xfe]), Value::Integer(-2));
        assert_eq!(value_of(5, &[0, 0x7f, 0, 0, 0, 1]), Value::Integer(0x7f_0000_0001));
        assert_eq!(value_of(15, b"a"), Value::Text(b"a"));
    }
}
