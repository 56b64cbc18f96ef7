//! Writes pickles of protocol 4 as CPython does: everything memoized, batches of 1000, frames of 64 KiB.

use std::collections::HashMap;
use std::io::{self, Write};

/// Frames are closed once they have this many bytes.
const FRAME: usize = 64 << 10;

/// Elements that one opcode adds.
const BATCH: u64 = 1_000;

/// An index into the memo, by which a value is referred to again.
pub(crate) type Memo = u32;

/// Writes values one after the other.
#[derive(Debug)]
pub(crate) struct Pickler<W> {
    out: W,
    frame: Vec<u8>,
    memo: Memo,
    /// Interned texts, each of which is one object.
    texts: HashMap<&'static str, Memo>,
}

impl<W: Write> Pickler<W> {
    /// Begins a pickle.
    pub(crate) fn new(mut out: W) -> io::Result<Self> {
        out.write_all(b"\x80\x04")?;
        Ok(Self { out, frame: Vec::with_capacity(FRAME + 4096), memo: 0, texts: HashMap::new() })
    }

    /// Ends the pickle.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        self.frame.push(b'.');
        self.close_frame()
    }

    fn close_frame(&mut self) -> io::Result<()> {
        self.out.write_all(b"\x95")?;
        self.out.write_all(&(self.frame.len() as u64).to_le_bytes())?;
        self.out.write_all(&self.frame)?;
        self.frame.clear();
        Ok(())
    }

    fn memoize(&mut self) -> Memo {
        self.frame.push(0x94);
        self.memo += 1;
        self.memo - 1
    }

    /// Refers to a value that was written before.
    pub(crate) fn again(&mut self, memo: Memo) {
        match u8::try_from(memo) {
            Ok(short) => self.frame.extend([b'h', short]),
            Err(_) => {
                self.frame.push(b'j');
                self.frame.extend(memo.to_le_bytes());
            }
        }
    }

    /// Writes an integer.
    pub(crate) fn int(&mut self, value: u64) {
        match value {
            0..=0xff => self.frame.extend([b'K', value as u8]),
            0x100..=0xffff => {
                self.frame.push(b'M');
                self.frame.extend((value as u16).to_le_bytes());
            }
            0x1_0000..=0x7fff_ffff => {
                self.frame.push(b'J');
                self.frame.extend((value as u32).to_le_bytes());
            }
            _ => {
                // As few bytes as hold it with its sign.
                let length = (64 - value.leading_zeros()) / 8 + 1;
                let bytes = u128::from(value).to_le_bytes();
                self.frame.extend([0x8a, length as u8]);
                self.frame.extend(&bytes[..length as usize]);
            }
        }
    }

    /// -1.
    pub(crate) fn minus_one(&mut self) {
        self.frame.push(b'J');
        self.frame.extend((-1_i32).to_le_bytes());
    }

    /// Writes a boolean.
    pub(crate) fn bool(&mut self, value: bool) {
        self.frame.push(if value { 0x88 } else { 0x89 });
    }

    /// Writes a float.
    pub(crate) fn float(&mut self, value: f64) {
        self.frame.push(b'G');
        self.frame.extend(value.to_be_bytes());
    }

    /// Writes a text as a separate object.
    pub(crate) fn new_text(&mut self, text: &str) -> Memo {
        match u8::try_from(text.len()) {
            Ok(short) => self.frame.extend([0x8c, short]),
            Err(_) => {
                self.frame.push(b'X');
                self.frame.extend((text.len() as u32).to_le_bytes());
            }
        }
        self.frame.extend(text.as_bytes());
        self.memoize()
    }

    /// Writes a text that is the same object wherever it occurs.
    pub(crate) fn text(&mut self, text: &'static str) {
        match self.texts.get(text) {
            Some(&memo) => self.again(memo),
            None => {
                let memo = self.new_text(text);
                self.texts.insert(text, memo);
            }
        }
    }

    /// Writes a pair of integers as a separate object.
    pub(crate) fn pair(&mut self, first: u64, second: u64) {
        self.int(first);
        self.int(second);
        self.frame.push(0x86);
        self.memoize();
    }

    /// Begins a dict of fewer than 1000 keys, more than one.
    pub(crate) fn begin_dict(&mut self) -> Memo {
        self.frame.push(b'}');
        let memo = self.memoize();
        self.frame.push(b'(');
        memo
    }

    /// Ends it.
    pub(crate) fn end_dict(&mut self) {
        self.frame.push(b'u');
    }

    /// Begins a list, to be followed by its elements.
    pub(crate) fn begin_list(&mut self) -> Memo {
        self.frame.push(b']');
        self.memoize()
    }

    /// Begins element `index` of `len`.
    pub(crate) fn begin_element(&mut self, index: u64, len: u64) {
        if index.is_multiple_of(BATCH) && len > 1 {
            self.frame.push(b'(');
        }
    }

    /// Ends element `index` of `len`, and the list with the last.
    pub(crate) fn end_element(&mut self, index: u64, len: u64) -> io::Result<()> {
        if self.frame.len() >= FRAME {
            self.close_frame()?;
        }
        if len == 1 {
            self.frame.push(b'a');
        } else if (index + 1).is_multiple_of(BATCH) || index + 1 == len {
            self.frame.push(b'e');
        }
        Ok(())
    }
}
