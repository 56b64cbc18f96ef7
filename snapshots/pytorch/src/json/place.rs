//! Converts line and column numbers of JSON text to byte offsets.

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

/// An input that tracks the offsets at which its last two lines begin.
#[derive(Debug)]
pub(super) struct Located<R> {
    input: R,
    /// Buffered bytes, since the parser reads one byte at a time.
    buffer: Vec<u8>,
    next: usize,
    /// Number of bytes passed to the parser; shared with the progress reports.
    offset: Rc<Cell<u64>>,
    /// Current line, from 1.
    line: usize,
    starts: [u64; 2],
}

impl<R> Located<R> {
    pub(super) fn new(input: R, offset: Rc<Cell<u64>>) -> Self {
        Self { input, buffer: Vec::new(), next: 0, offset, line: 1, starts: [0, 0] }
    }

    /// Returns the byte offset of a line and column, both from 1. `line` must be the last line or the one before.
    pub(super) fn offset(&self, line: usize, column: usize) -> u64 {
        let [before, last] = self.starts;
        let start = if line < self.line { before } else { last };
        start.saturating_add(column.saturating_sub(1) as u64).min(self.offset.get())
    }
}

impl<R: Read> Located<R> {
    #[cold]
    fn fill(&mut self) -> std::io::Result<()> {
        self.buffer.resize(PORTION, 0);
        self.next = 0;
        let taken = self.input.read(&mut self.buffer);
        self.buffer.truncate(*taken.as_ref().unwrap_or(&0));
        taken.map(drop)
    }
}

impl<R: Read> Read for Located<R> {
    #[inline]
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        if self.next == self.buffer.len() {
            self.fill()?;
        }
        let ready = self.buffer.get(self.next..).unwrap_or_default();
        let before = self.offset.get();
        let mut taken = 0;
        for (slot, &byte) in out.iter_mut().zip(ready) {
            *slot = byte;
            taken += 1;
            if byte == b'\n' {
                self.line += 1;
                self.starts = [self.starts[1], before + taken as u64];
            }
        }
        self.next += taken;
        self.offset.set(before + taken as u64);
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
        let mut input = Located::new(&text[..], Rc::default());
        std::io::copy(&mut input, &mut std::io::sink()).unwrap();
        assert_eq!([(4, 2), (3, 1), (4, 9)].map(|(line, column)| input.offset(line, column)), [8, 6, 9]);
    }
}
