//! Decodes the events of a portion without executing their instructions one by one.
//!
//! Only events in Python's notation are decoded. Such an event is a new dict with keys, strings and lists looked up in
//! the memo, and with numbers, strings, pairs and lists of memo lookups in place. All other instructions are left to
//! the machine.

use std::ops::Range;

use highwater_snapshots::ids::StringId;

use super::known::MemoSnapshot;
use super::opcode as op;
use super::portion::{Chunk, ExtrasOf, NO_EXTRAS, Row, StackOf, Step, StepKind, Stored, TextOf};
use crate::Sequences;
use crate::objects::Key;
use crate::raw::Action;

/// The first bytes of a file's events, used to find the start of an event from any position.
#[derive(Clone, Debug)]
pub(super) struct Beginning {
    /// The instruction after the dict that stores the dict in the memo; `None` without one.
    store: Option<u8>,
    /// The mark and the lookup of the first key.
    key: Vec<u8>,
}

impl Beginning {
    /// Reads the first bytes of the event at the start of `bytes`. Returns `None` if there is no event.
    pub(super) fn of(bytes: &[u8]) -> Option<Self> {
        let (&first, rest) = bytes.split_first()?;
        if first != op::EMPTY_DICT {
            return None;
        }
        let store = rest.first().copied().filter(|code| store_length(Some(*code)) > 0);
        let key = rest.get(store_length(store)..)?;
        let length = match key {
            [op::MARK, op::BINGET, _, ..] => 3,
            [op::MARK, op::LONG_BINGET, _, _, _, _, ..] => 6,
            _ => return None,
        };
        Some(Self { store, key: key[..length].to_vec() })
    }

    /// Finds the start of an event within `range`. The event must follow another event or the start of a batch.
    /// `None` if there is none.
    pub(super) fn find(&self, bytes: &[u8], range: Range<usize>) -> Option<usize> {
        let mut from = range.start.max(1);
        while from < range.end {
            from += bytes.get(from..range.end)?.iter().position(|byte| *byte == op::EMPTY_DICT)?;
            let rest = bytes.get(from + 1..)?;
            let store = self.store.and(rest.first().copied());
            // Small numbers of the memo take another instruction than large ones.
            let is_alike = store == self.store || store_length(store) > 1 && store_length(self.store) > 1;
            if is_alike
                && rest.get(store_length(store)..).is_some_and(|rest| rest.starts_with(&self.key))
                && matches!(bytes[from - 1], op::SETITEMS | op::MARK)
            {
                return Some(from);
            }
            from += 1;
        }
        None
    }
}

/// Returns the length of an instruction that stores the top value in the memo; 0 for any other code.
fn store_length(code: Option<u8>) -> usize {
    match code {
        Some(op::MEMOIZE) => 1,
        Some(op::BINPUT) => 2,
        Some(op::LONG_BINPUT) => 5,
        _ => 0,
    }
}

/// Larger ids of strings and stacks, and larger portions, are left to the machine.
pub(super) const MOST: u32 = 1 << 28;

#[derive(Debug)]
pub(super) struct EventReader<'a> {
    bytes: &'a [u8],
    known: &'a MemoSnapshot,
    beginning: &'a Beginning,
    portion: &'a mut Chunk,
    is_last: bool,
    at: usize,
    /// The memo index of the first value of the current step (if the file contains one), and the row of this value in
    /// [`Chunk::stored`].
    number: Option<usize>,
    first_stored: usize,
    /// Bytes of a run that is interrupted by the start of a frame of the file.
    joined: Vec<u8>,
}

impl<'a> EventReader<'a> {
    pub(super) fn new(
        bytes: &'a [u8],
        known: &'a MemoSnapshot,
        beginning: &'a Beginning,
        portion: &'a mut Chunk,
    ) -> Self {
        let (at, end) = (portion.range.start, portion.range.end);
        let is_last = end >= bytes.len();
        // Nothing beyond the portion is read, so that the time is that of its bytes whatever lengths it claims.
        let bytes = bytes.get(..end).unwrap_or(bytes);
        Self { bytes, is_last, known, beginning, portion, at, number: None, first_stored: 0, joined: Vec::new() }
    }

    pub(super) fn read(mut self) {
        let end = self.portion.range.end;
        if end - self.at >= MOST as usize {
            return;
        }
        while self.at < end {
            let count = self.events(end);
            if count > 0 {
                self.step(StepKind::Events { count, number: self.number });
            } else if self.batch(end) {
                self.step(StepKind::Batch);
            } else {
                match self.beginning.find(self.bytes, self.at + 1..end) {
                    Some(next) => self.at = next,
                    // An event begins where the next portion does.
                    None if !self.is_last => self.at = end,
                    None => return,
                }
                self.step(StepKind::Other);
            }
        }
    }

    fn step(&mut self, kind: StepKind) {
        self.portion.steps.push(Step { kind, end: self.at });
    }

    /// Decodes events up to `end`, and returns their number.
    fn events(&mut self, end: usize) -> u32 {
        let mut count = 0;
        self.number = None;
        self.first_stored = self.portion.stored.len();
        while self.at < end {
            let (start, stored, number) = (self.at, self.portion.stored.len(), self.number);
            match self.event(start, stored) {
                Some(row) => {
                    self.portion.rows.push(row);
                    count += 1;
                }
                None => {
                    self.at = start;
                    self.number = number;
                    self.portion.stored.truncate(stored);
                    break;
                }
            }
        }
        count
    }

    /// Decodes the end of a batch and the start of the next. Returns whether they follow.
    fn batch(&mut self, end: usize) -> bool {
        let start = self.at;
        let is_batch = self.code() == Some(op::APPENDS) && self.code() == Some(op::MARK) && self.at < end;
        if !is_batch {
            self.at = start;
        }
        is_batch
    }

    /// Decodes an event. Returns `None` if it is not in Python's notation.
    #[inline]
    fn event(&mut self, start: usize, stored: usize) -> Option<Row> {
        if self.code()? != op::EMPTY_DICT {
            return None;
        }
        self.store(Stored::Event)?;
        if self.code()? != op::MARK {
            return None;
        }
        let mut row = Row {
            address: 0,
            size: 0,
            time_us: 0,
            stream: 0,
            stack: StackOf::MemoSnapshot(Sequences::NONE),
            extras: NO_EXTRAS,
            start: (start - self.portion.range.start) as u32,
            action: Action::Unknown,
            stored: 0,
        };
        let mut extras = ExtrasOf::default();
        let mut seen = 0_u64;
        loop {
            let number = match self.code()? {
                op::BINGET => usize::from(self.byte()?),
                op::LONG_BINGET => u32::from_le_bytes(self.array()?) as usize,
                op::SETITEMS => break,
                _ => return None,
            };
            let key = self.known.key(number)?;
            let bit = 1 << key as u8;
            if seen & bit != 0 {
                return None;
            }
            seen |= bit;
            match key {
                Key::Action => row.action = self.action()?,
                Key::Addr => row.address = self.number()?,
                Key::Size => row.size = self.number()?,
                Key::Stream => row.stream = self.number()?,
                Key::TimeUs => row.time_us = self.number()?,
                Key::Frames => row.stack = self.frames()?,
                Key::PoolId => extras.pool_id = self.pair()?,
                Key::CompileContext => extras.compile_context = self.text()?,
                Key::UserMetadata => extras.user_metadata = self.text()?,
                Key::InternalMetadata => extras.internal_metadata = self.text()?,
                Key::Category => extras.category = self.text()?,
                _ => return None,
            }
        }
        if row.action == Action::Unknown {
            return None;
        }
        if extras != ExtrasOf::default() {
            row.extras = self.portion.extras_row(extras);
        }
        row.stored = u8::try_from(self.portion.stored.len() - stored).ok()?;
        Some(row)
    }

    #[inline(always)]
    fn byte(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    #[inline(always)]
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let array = *self.bytes.get(self.at..)?.first_chunk::<N>()?;
        self.at += N;
        Some(array)
    }

    /// Returns the next instruction that is not the start of a frame of the file.
    #[inline(always)]
    fn code(&mut self) -> Option<u8> {
        loop {
            match self.byte()? {
                op::FRAME => drop(self.array::<8>()?),
                code => return Some(code),
            }
        }
    }

    /// Decodes an instruction that stores `value` in the memo. Returns whether one follows; `None` if its memo index
    /// does not count up by one.
    #[inline]
    fn store(&mut self, value: Stored) -> Option<bool> {
        let number = match self.bytes.get(self.at..)? {
            [op::MEMOIZE, ..] => {
                self.at += 1;
                self.portion.stored.push(value);
                return Some(true);
            }
            [op::BINPUT, number, ..] => {
                self.at += 2;
                usize::from(*number)
            }
            [op::LONG_BINPUT, a, b, c, d, ..] => {
                self.at += 5;
                u32::from_le_bytes([*a, *b, *c, *d]) as usize
            }
            _ => return Some(false),
        };
        let first = number.checked_sub(self.portion.stored.len() - self.first_stored)?;
        if *self.number.get_or_insert(first) != first {
            return None;
        }
        self.portion.stored.push(value);
        Some(true)
    }

    /// Decodes a memo lookup, given its instruction.
    #[inline]
    fn looked_up(&mut self, code: u8) -> Option<usize> {
        match code {
            op::BINGET => self.byte().map(usize::from),
            op::LONG_BINGET => self.array().map(|number| u32::from_le_bytes(number) as usize),
            _ => None,
        }
    }

    #[inline]
    fn action(&mut self) -> Option<Action> {
        let code = self.code()?;
        let number = self.looked_up(code)?;
        // The names of the actions are the first strings.
        Action::known().get(self.known.text(number)?.index()?).copied()
    }

    #[inline]
    fn number(&mut self) -> Option<u64> {
        let code = self.code()?;
        self.integer(code)
    }

    #[inline]
    fn integer(&mut self, code: u8) -> Option<u64> {
        match code {
            op::BININT1 => self.byte().map(u64::from),
            op::BININT2 => self.array().map(|bytes| u64::from(u16::from_le_bytes(bytes))),
            op::BININT => self.array().and_then(|bytes| u64::try_from(i32::from_le_bytes(bytes)).ok()),
            op::LONG1 => {
                let length = usize::from(self.byte()?);
                let ahead = self.bytes.get(self.at..)?;
                let number = match (length, ahead.first_chunk::<8>()) {
                    (1..=8, Some(wide)) => {
                        let number = u64::from_le_bytes(*wide) << (64 - 8 * length);
                        let is_negative = number >> 63 == 1;
                        (!is_negative).then_some(number >> (64 - 8 * length))?
                    }
                    (9, Some(low)) if ahead.get(8) == Some(&0) => u64::from_le_bytes(*low),
                    _ => return None,
                };
                self.at += length;
                Some(number)
            }
            _ => None,
        }
    }

    #[inline]
    fn text(&mut self) -> Option<TextOf> {
        let code = self.code()?;
        let length = match code {
            op::NONE => return Some(TextOf::None),
            op::SHORT_BINUNICODE => usize::from(self.byte()?),
            op::BINUNICODE => u32::from_le_bytes(self.array()?) as usize,
            _ => {
                let number = self.looked_up(code)?;
                let id = self.known.text(number)?;
                return Some(if id == StringId::NONE { TextOf::None } else { TextOf::MemoSnapshot(id) });
            }
        };
        let bytes = self.bytes.get(self.at..self.at.checked_add(length)?)?;
        let text = std::str::from_utf8(bytes).ok()?;
        self.at += length;
        let row = self.portion.text_row(text);
        // The strings of a file are numbered in the order in which they are stored.
        self.store(Stored::Text(row))?.then_some(TextOf::New(row))
    }

    #[inline]
    fn pair(&mut self) -> Option<(u64, u64)> {
        let code = self.code()?;
        if matches!(code, op::BINGET | op::LONG_BINGET) {
            let number = self.looked_up(code)?;
            return self.known.pair(number);
        }
        let pair = (self.integer(code)?, self.number()?);
        if self.code()? != op::TUPLE2 {
            return None;
        }
        let row = self.portion.pair_row(pair);
        self.store(Stored::Pair(row))?;
        Some(pair)
    }

    /// Decodes a list of frames, or the lookup of one.
    #[inline]
    fn frames(&mut self) -> Option<StackOf> {
        let code = self.code()?;
        match code {
            op::EMPTY_LIST => {}
            op::NONE => return Some(StackOf::MemoSnapshot(Sequences::NONE)),
            _ => {
                let number = u32::try_from(self.looked_up(code)?).ok()?;
                return Some(StackOf::Memo(number));
            }
        }
        let row = self.portion.stored.len();
        let is_stored = self.store(Stored::Stack(StackOf::MemoSnapshot(Sequences::NONE)))?;
        let before = self.at;
        let stack = match self.code()? {
            op::MARK => self.run(op::APPENDS)?,
            op::BINGET | op::LONG_BINGET => {
                self.at = before;
                // Python appends a single item to the list as a lookup or as the next key: only the former ends here.
                let length = lookup_length(self.bytes.get(self.at..)?)?;
                if self.bytes.get(self.at + length) != Some(&op::APPEND) {
                    return Some(StackOf::MemoSnapshot(Sequences::NONE));
                }
                self.run(op::APPEND)?
            }
            _ => {
                self.at = before;
                return Some(StackOf::MemoSnapshot(Sequences::NONE));
            }
        };
        if is_stored {
            *self.portion.stored.get_mut(row)? = Stored::Stack(stack);
        }
        Some(stack)
    }

    /// Decodes memo lookups up to the instruction `last`.
    #[inline]
    fn run(&mut self, last: u8) -> Option<StackOf> {
        let ahead = self.bytes.get(self.at..)?;
        let mut length = 0;
        while let Some(more) = lookup_length(ahead.get(length..)?) {
            length += more;
        }
        let run = ahead.get(..length)?;
        if length > 0 && ahead.get(length) == Some(&last) {
            self.at += length + 1;
            return self.stack(run);
        }
        // A run does not include the instruction that starts a frame of the pickle.
        self.joined.clear();
        loop {
            match self.code()? {
                op::BINGET => {
                    let number = self.byte()?;
                    self.joined.extend([op::BINGET, number]);
                }
                op::LONG_BINGET => {
                    let number: [u8; 4] = self.array()?;
                    self.joined.push(op::LONG_BINGET);
                    self.joined.extend(number);
                }
                code if code == last && !self.joined.is_empty() => break,
                _ => return None,
            }
        }
        let joined = std::mem::take(&mut self.joined);
        let stack = self.stack(&joined);
        self.joined = joined;
        stack
    }

    #[inline]
    fn stack(&mut self, run: &[u8]) -> Option<StackOf> {
        match self.known.runs.get(run) {
            Some(stack) if stack < MOST => Some(StackOf::MemoSnapshot(stack)),
            Some(_) => None,
            None => Some(StackOf::Run(self.portion.run_row(run))),
        }
    }
}

/// Returns the length of the lookup at the start of `bytes`, if there is one.
#[inline(always)]
fn lookup_length(bytes: &[u8]) -> Option<usize> {
    match bytes.first() {
        Some(&op::LONG_BINGET) => Some(5),
        Some(&op::BINGET) => Some(2),
        _ => None,
    }
}
