//! Writes a document as a pickle of protocol 4, using only opcodes that PyTorch's viewer supports.

use std::io::Write;

use hashbrown::HashMap;

use super::document::{Document, Output, Plain, Shared, base64_length};
use highwater_snapshots::error::{Error, Result};

/// The opcodes used. PyTorch's viewer rejects a file with any unknown opcode, so there are no frames and no 8-byte
/// lengths, and memo entries are stored by index instead of with `MEMOIZE`.
mod op {
    pub(super) const PROTO: u8 = 0x80;
    pub(super) const STOP: u8 = b'.';
    pub(super) const MARK: u8 = b'(';
    pub(super) const EMPTY_DICT: u8 = b'}';
    pub(super) const EMPTY_LIST: u8 = b']';
    pub(super) const SETITEMS: u8 = b'u';
    pub(super) const APPENDS: u8 = b'e';
    pub(super) const TUPLE2: u8 = 0x86;
    pub(super) const NONE: u8 = b'N';
    pub(super) const NEWTRUE: u8 = 0x88;
    pub(super) const NEWFALSE: u8 = 0x89;
    pub(super) const BININT: u8 = b'J';
    pub(super) const BININT1: u8 = b'K';
    pub(super) const BININT2: u8 = b'M';
    pub(super) const LONG1: u8 = 0x8a;
    pub(super) const BINFLOAT: u8 = b'G';
    pub(super) const BINUNICODE: u8 = b'X';
    pub(super) const SHORT_BINUNICODE: u8 = 0x8c;
    pub(super) const BINGET: u8 = b'h';
    pub(super) const LONG_BINGET: u8 = b'j';
    pub(super) const BINPUT: u8 = b'q';
    pub(super) const LONG_BINPUT: u8 = b'r';
}

/// Maximum number of items added to a dict or list at once, since PyTorch's viewer passes them in one call.
const BATCH: u32 = 1000;

/// Memo indices below this number are reserved for strings of the format, which occur in every event, in short form.
const WORD_PLACES: u32 = 128;

#[derive(Debug)]
pub(super) struct PickleWriter<W: Write> {
    out: Output<W>,
    open: Vec<Container>,
    /// Whether the key of the next value was already written.
    has_key: bool,
    words: HashMap<&'static str, u32>,
    kept: HashMap<Shared, u32>,
}

#[derive(Clone, Copy, Debug)]
struct Container {
    is_dict: bool,
    /// Number of items since the last mark.
    items: u32,
}

impl Container {
    fn ending(self) -> u8 {
        if self.is_dict { op::SETITEMS } else { op::APPENDS }
    }
}

impl<W: Write> PickleWriter<W> {
    pub(super) fn new(out: W) -> Result<Self> {
        let mut out = Output::new(out);
        out.put(&[op::PROTO, 4])?;
        Ok(Self { out, open: Vec::new(), has_key: false, words: HashMap::new(), kept: HashMap::new() })
    }

    /// Prepares the innermost container for another item, starting a new batch if needed.
    fn item(&mut self) -> Result<()> {
        let Some(container) = self.open.last_mut() else { return Ok(()) };
        if container.items == BATCH {
            self.out.put(&[container.ending()])?;
            container.items = 0;
        }
        if container.items == 0 {
            self.out.put(&[op::MARK])?;
        }
        container.items += 1;
        Ok(())
    }

    #[inline]
    fn begin_value(&mut self) -> Result<()> {
        if std::mem::take(&mut self.has_key) { Ok(()) } else { self.item() }
    }

    fn open(&mut self, opcode: u8, is_dict: bool) -> Result<()> {
        self.begin_value()?;
        self.open.push(Container { is_dict, items: 0 });
        self.out.put(&[opcode])
    }

    fn close(&mut self) -> Result<()> {
        match self.open.pop() {
            Some(container) if container.items > 0 => self.out.put(&[container.ending()]),
            _ => Ok(()),
        }
    }

    fn put_long(&mut self, value: i128) -> Result<()> {
        let bytes = value.to_le_bytes();
        // As few bytes as preserve the sign.
        let fits = |length: &usize| {
            let spare = 128 - 8 * *length as u32;
            (value << spare) >> spare == value
        };
        let length = (1..=9).find(fits).unwrap_or(9);
        self.out.put(&[op::LONG1, length as u8])?;
        self.out.put(&bytes[..length])
    }

    fn put_number(&mut self, value: u64) -> Result<()> {
        if let Ok(value) = u8::try_from(value) {
            self.out.put(&[op::BININT1, value])
        } else if let Ok(value) = u16::try_from(value) {
            let [low, high] = value.to_le_bytes();
            self.out.put(&[op::BININT2, low, high])
        } else if let Ok(value) = i32::try_from(value) {
            self.put_with(op::BININT, value.to_le_bytes())
        } else {
            self.put_long(i128::from(value))
        }
    }

    fn put_with(&mut self, opcode: u8, number: [u8; 4]) -> Result<()> {
        let [a, b, c, d] = number;
        self.out.put(&[opcode, a, b, c, d])
    }

    fn put_text_head(&mut self, bytes: usize) -> Result<()> {
        if let Ok(length) = u8::try_from(bytes) {
            return self.out.put(&[op::SHORT_BINUNICODE, length]);
        }
        let too_long = |_| Error::Encode { what: format!("a text of {bytes} bytes is too long for a pickle") };
        let length = u32::try_from(bytes).map_err(too_long)?;
        self.put_with(op::BINUNICODE, length.to_le_bytes())
    }

    fn put_text(&mut self, text: &str) -> Result<()> {
        self.put_text_head(text.len())?;
        self.out.put(text.as_bytes())
    }

    fn put_word(&mut self, word: &'static str) -> Result<()> {
        if let Some(&place) = self.words.get(word) {
            return self.get(place);
        }
        self.put_text(word)?;
        let place = self.words.len() as u32;
        if place < WORD_PLACES {
            self.words.insert(word, place);
            self.memorise(place)?;
        }
        Ok(())
    }

    fn get(&mut self, place: u32) -> Result<()> {
        match u8::try_from(place) {
            Ok(place) => self.out.put(&[op::BINGET, place]),
            Err(_) => self.put_with(op::LONG_BINGET, place.to_le_bytes()),
        }
    }

    fn memorise(&mut self, place: u32) -> Result<()> {
        match u8::try_from(place) {
            Ok(place) => self.out.put(&[op::BINPUT, place]),
            Err(_) => self.put_with(op::LONG_BINPUT, place.to_le_bytes()),
        }
    }
}

impl<W: Write> Document for PickleWriter<W> {
    fn open_dict(&mut self) -> Result<()> {
        self.open(op::EMPTY_DICT, true)
    }

    fn close_dict(&mut self) -> Result<()> {
        self.close()
    }

    fn open_list(&mut self) -> Result<()> {
        self.open(op::EMPTY_LIST, false)
    }

    fn close_list(&mut self) -> Result<()> {
        self.close()
    }

    fn key(&mut self, name: &'static str) -> Result<()> {
        self.item()?;
        self.has_key = true;
        self.put_word(name)
    }

    fn free_key(&mut self, name: &str) -> Result<()> {
        self.item()?;
        self.has_key = true;
        self.put_text(name)
    }

    fn plain(&mut self, value: Plain) -> Result<()> {
        self.begin_value()?;
        match value {
            Plain::Number(value) => self.put_number(value),
            Plain::Negative(value) => match i32::try_from(value) {
                Ok(value) => self.put_with(op::BININT, value.to_le_bytes()),
                Err(_) => self.put_long(i128::from(value)),
            },
            Plain::Float(value) => {
                self.out.put(&[op::BINFLOAT])?;
                self.out.put(&value.to_be_bytes())
            }
            Plain::Truth(value) => self.out.put(&[if value { op::NEWTRUE } else { op::NEWFALSE }]),
            Plain::None => self.out.put(&[op::NONE]),
        }
    }

    fn pair(&mut self, first: u64, second: u64) -> Result<()> {
        let pair = Shared::Pair(first, second);
        if self.again(pair)? {
            return Ok(());
        }
        self.begin_value()?;
        self.put_number(first)?;
        self.put_number(second)?;
        self.out.put(&[op::TUPLE2])?;
        self.keep(pair)
    }

    fn word(&mut self, word: &'static str) -> Result<()> {
        self.begin_value()?;
        self.put_word(word)
    }

    fn text(&mut self, text: &str) -> Result<()> {
        self.begin_value()?;
        self.put_text(text)
    }

    fn again(&mut self, value: Shared) -> Result<bool> {
        let Some(&place) = self.kept.get(&value) else { return Ok(false) };
        self.begin_value()?;
        self.get(place)?;
        Ok(true)
    }

    fn keep(&mut self, value: Shared) -> Result<()> {
        let full = |_| Error::Encode { what: "more than 2^32 memoized values".to_owned() };
        let place = WORD_PLACES + u32::try_from(self.kept.len()).map_err(full)?.min(u32::MAX - WORD_PLACES);
        self.kept.insert(value, place);
        self.memorise(place)
    }

    fn base64(&mut self, prefix: &str, bytes: &[u8]) -> Result<()> {
        self.begin_value()?;
        self.put_text_head(prefix.len().saturating_add(base64_length(bytes.len())))?;
        self.out.put(prefix.as_bytes())?;
        self.out.put_base64(bytes)
    }

    fn finish(&mut self) -> Result<()> {
        self.out.put(&[op::STOP])?;
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwater_snapshots::ids::StringId;

    /// Returns the bytes of a pickle whose single value is written by `write`, without protocol and stop.
    fn bytes_of(write: impl FnOnce(&mut PickleWriter<&mut Vec<u8>>)) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut pickle = PickleWriter::new(&mut bytes).unwrap();
        write(&mut pickle);
        pickle.finish().unwrap();
        assert_eq!((&bytes[..2], bytes.last()), (&[0x80, 4][..], Some(&b'.')));
        bytes[2..bytes.len() - 1].to_vec()
    }

    #[test]
    fn numbers_take_the_shortest_form_that_keeps_them_positive() {
        let number = |value: u64| bytes_of(|pickle| pickle.number(value).unwrap());
        assert_eq!(number(255), [b'K', 255]);
        assert_eq!(number(256), [b'M', 0, 1]);
        assert_eq!(number(65_536), [b'J', 0, 0, 1, 0]);
        assert_eq!(number(0x8000_0000), [0x8a, 5, 0, 0, 0, 0x80, 0]);
        assert_eq!(number(0x7f4c_0000_0000), [0x8a, 6, 0, 0, 0, 0, 0x4c, 0x7f]);
        assert_eq!(number(u64::MAX), [0x8a, 9, 255, 255, 255, 255, 255, 255, 255, 255, 0]);
        assert_eq!(bytes_of(|pickle| pickle.plain(Plain::Negative(-1)).unwrap()), [b'J', 255, 255, 255, 255]);
        assert_eq!(
            bytes_of(|pickle| pickle.plain(Plain::Negative(-(1 << 40))).unwrap()),
            [0x8a, 6, 0, 0, 0, 0, 0, 255]
        );
    }

    #[test]
    fn lists_and_dicts_are_filled_a_thousand_at_a_time() {
        let bytes = bytes_of(|pickle| {
            pickle.open_list().unwrap();
            (0..2001).for_each(|_| pickle.plain(Plain::Truth(true)).unwrap());
            pickle.close_list().unwrap();
        });
        assert_eq!((bytes[0], bytes.len()), (b']', 1 + 2001 + 2 * 3));
        let count = |opcode: u8| bytes.iter().filter(|byte| **byte == opcode).count();
        assert_eq!((count(b'('), count(b'e')), (3, 3));
        assert_eq!(bytes[1002], b'e');
        let empty = bytes_of(|pickle| {
            pickle.open_list().unwrap();
            pickle.close_list().unwrap();
        });
        assert_eq!(empty, [b']']);
    }

    #[test]
    fn what_is_kept_is_written_once_and_words_have_the_short_places() {
        let bytes = bytes_of(|pickle| {
            pickle.open_list().unwrap();
            for _ in 0..2 {
                pickle.word("alloc").unwrap();
                pickle.named(StringId(7), "f").unwrap();
                pickle.pair(1, 0).unwrap();
            }
            pickle.close_list().unwrap();
        });
        let head: &[u8] = b"](\x8c\x05allocq\x00\x8c\x01fq\x80K\x01K\x00\x86q\x81";
        assert_eq!(bytes, [head, b"h\x00h\x80h\x81e"].concat());
        let far = bytes_of(|pickle| {
            pickle.open_list().unwrap();
            (0..=128).for_each(|row| pickle.named(StringId(row), "x").unwrap());
            pickle.named(StringId(128), "x").unwrap();
            pickle.close_list().unwrap();
        });
        assert!(far.ends_with(b"\x8c\x01xr\x00\x01\x00\x00j\x00\x01\x00\x00e"));
    }
}
