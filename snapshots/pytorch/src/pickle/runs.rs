//! Caches stacks by the bytes that list them. A snapshot lists a few distinct stacks many times, each time with the
//! same memo lookups, so the bytes have to be decoded only once.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};

use super::opcode as op;

/// Maximum number of bytes cached. The cache is cleared when full, so that distinct stacks do not use more memory.
const MAX_BYTES: usize = 16 << 20;

/// Maps runs of memo lookups, each of which stands for the frames of a stack, to stacks.
#[derive(Clone, Debug, Default)]
pub(super) struct Runs {
    /// The bytes of all runs, concatenated.
    bytes: Vec<u8>,
    rows: HashTable<Run>,
    hasher: DefaultHashBuilder,
}

#[derive(Clone, Copy, Debug)]
struct Run {
    first: u32,
    end: u32,
    stack: u32,
}

/// Returns the number of bytes of memo lookups at the start of `bytes`; `None` unless `APPENDS` follows directly.
#[inline]
pub(super) fn run_length(bytes: &[u8]) -> Option<usize> {
    let mut length = 0;
    loop {
        match *bytes.get(length)? {
            op::LONG_BINGET => length += 5,
            op::BINGET => length += 2,
            op::APPENDS if length > 0 => return Some(length),
            _ => return None,
        }
    }
}

pub(super) fn numbers(mut run: &[u8]) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let (number, rest) = match run {
            [op::LONG_BINGET, a, b, c, d, rest @ ..] => (u32::from_le_bytes([*a, *b, *c, *d]) as usize, rest),
            [op::BINGET, number, rest @ ..] => (usize::from(*number), rest),
            _ => return None,
        };
        run = rest;
        Some(number)
    })
}

impl Runs {
    #[inline]
    pub(super) fn get(&self, run: &[u8]) -> Option<u32> {
        let hash = self.hasher.hash_one(run);
        self.rows.find(hash, |row| &self.bytes[row.first as usize..row.end as usize] == run).map(|row| row.stack)
    }

    pub(super) fn insert(&mut self, run: &[u8], stack: u32) {
        if self.bytes.len() + run.len() > MAX_BYTES {
            self.clear();
            if run.len() > MAX_BYTES {
                return;
            }
        }
        let first = self.bytes.len() as u32;
        self.bytes.extend_from_slice(run);
        let Self { bytes, rows, hasher } = self;
        let hash = hasher.hash_one(run);
        let run = Run { first, end: bytes.len() as u32, stack };
        rows.insert_unique(hash, run, |row| hasher.hash_one(&bytes[row.first as usize..row.end as usize]));
    }

    /// Removes all runs, because the cache is full, or because the value of a memo index has changed.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.rows.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_lookups_up_to_where_they_are_appended() {
        assert_eq!(run_length(b"h\x01j\x01\x02\x03\x04e..."), Some(7));
        assert_eq!(run_length(b"h\x01j\x01\x02"), None, "the bytes end within it");
        assert_eq!(run_length(b"h\x01K\x05e"), None, "a number is among them");
        assert_eq!(run_length(b"e"), None);
    }

    #[test]
    fn equal_bytes_stand_for_the_same_stack_until_all_are_forgotten() {
        let mut runs = Runs::default();
        runs.insert(b"h\x01", 7);
        runs.insert(b"h\x02", 8);
        assert_eq!((runs.get(b"h\x01"), runs.get(b"h\x02"), runs.get(b"h\x03")), (Some(7), Some(8), None));
        runs.clear();
        assert_eq!(runs.get(b"h\x01"), None);
    }
}
