//! Reads a log line by line.

use std::io::BufRead;

use highwater_snapshots::error::{Error, Problem, Result};
use highwater_snapshots::units::count_of;

/// Maximum number of bytes of a line that are kept. Lines of the logs are shorter.
const MAX_LINE: usize = 4096;

pub(super) struct Lines<R> {
    input: R,
    line: Vec<u8>,
    number: u64,
    /// Byte offsets of the current line and of the next one.
    offset: u64,
    next: u64,
    /// Byte offset and line number of the first omitted line, and the number of omitted lines.
    left_out: Option<(u64, u64, u64)>,
    /// The damage that ended compressed input.
    damage: Option<Problem>,
}

impl<R: BufRead> Lines<R> {
    pub(super) fn new(input: R) -> Self {
        Self { input, line: Vec::new(), number: 0, offset: 0, next: 0, left_out: None, damage: None }
    }

    /// Returns the next line without its line ending, cut after [`MAX_LINE`] bytes. Returns `None` at the end, or where
    /// compressed data is damaged.
    pub(super) fn next(&mut self) -> Result<Option<&str>> {
        self.line.clear();
        self.offset = self.next;
        loop {
            let part = match self.input.fill_buf().map_err(Error::from_input) {
                Ok(part) => part,
                Err(Error::Damaged { offset, what }) => {
                    self.damage = Some(Problem::at(offset, what));
                    return Ok(None);
                }
                Err(error) => return Err(error),
            };
            if part.is_empty() && self.next == self.offset {
                return Ok(None);
            }
            let end = part.iter().position(|byte| *byte == b'\n');
            let text = &part[..end.unwrap_or(part.len())];
            self.line.extend_from_slice(&text[..text.len().min(MAX_LINE - self.line.len())]);
            let (taken, is_whole) = (end.map_or(part.len(), |end| end + 1), end.is_some() || part.is_empty());
            self.input.consume(taken);
            self.next += taken as u64;
            if is_whole {
                break;
            }
        }
        self.number += 1;
        let valid = match std::str::from_utf8(&self.line) {
            Ok(text) => text,
            Err(error) => std::str::from_utf8(&self.line[..error.valid_up_to()]).unwrap_or_default(),
        };
        Ok(Some(valid.trim_end_matches('\r')))
    }

    pub(super) fn leave_out(&mut self) {
        self.left_out.get_or_insert((self.offset, self.number, 0)).2 += 1;
    }

    pub(super) fn problems(self, tool: &str) -> impl Iterator<Item = Problem> {
        let left_out = self.left_out.map(|(offset, number, count)| {
            let more = if count > 1 { format!("; further such lines: {}", count - 1) } else { String::new() };
            Problem::at(offset, format!("line {number} does not have the format of {tool}'s log and was skipped{more}"))
        });
        left_out.into_iter().chain(self.damage)
    }
}

/// Formats a sentence about `count` items, such as "3 blocks were freed".
pub(super) fn sentence(count: u64, noun: &str, [one, many]: [&str; 2]) -> String {
    format!("{} {}", count_of(count, noun), if count == 1 { one } else { many })
}
