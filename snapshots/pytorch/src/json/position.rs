//! Finds the byte offsets of errors in JSON text.

use std::cell::Cell;
use std::io::Read;
use std::rc::Rc;

/// Returns the byte offset of a line and column, both counted from 1.
pub(super) fn offset_in(text: &[u8], line: usize, column: usize) -> u64 {
    let breaks = text.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1);
    let start = std::iter::once(0).chain(breaks).nth(line.saturating_sub(1)).unwrap_or(text.len());
    (start + column.saturating_sub(1)).min(text.len()) as u64
}

/// Number of bytes read from an input at a time.
const PORTION: usize = 1 << 16;

/// An input that counts the bytes passed to the parser, which reads one byte at a time.
#[derive(Debug)]
pub(super) struct Counted<R> {
    input: R,
    buffer: Vec<u8>,
    next: usize,
    offset: Rc<Cell<u64>>,
}

impl<R: Read> Counted<R> {
    /// Wraps `input`. The count is kept in `offset`.
    pub(super) fn new(input: R, offset: Rc<Cell<u64>>) -> Self {
        Self { input, buffer: Vec::new(), next: 0, offset }
    }

    #[cold]
    fn fill(&mut self) -> std::io::Result<()> {
        self.buffer.resize(PORTION, 0);
        self.next = 0;
        let taken = self.input.read(&mut self.buffer);
        self.buffer.truncate(*taken.as_ref().unwrap_or(&0));
        taken.map(drop)
    }
}

impl<R: Read> Read for Counted<R> {
    #[inline]
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        if self.next == self.buffer.len() {
            self.fill()?;
        }
        let taken = self.buffer.get(self.next..).unwrap_or_default().read(out)?;
        self.next += taken;
        self.offset.set(self.offset.get() + taken as u64);
        Ok(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_columns_are_offsets() {
        let text = b"ab\ncd\n\nef";
        for (line, column, offset) in [(1, 1, 0), (1, 2, 1), (2, 0, 3), (2, 2, 4), (4, 1, 7), (4, 9, 9), (9, 1, 9)] {
            assert_eq!(offset_in(text, line, column), offset, "{line}:{column}");
        }
    }
}
