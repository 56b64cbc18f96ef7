//! Executes the pickle instructions that build values, and rejects all others.

use super::memo::{Memo, Memos};
use super::opcode as op;
use super::runs::{Runs, run_length};
use super::source::Source;
use crate::objects::{Refusal, Store, Value};
use crate::raw::{EMBEDDED_MARKER, MAX_EMBEDDED};
use highwater_snapshots::error::{Error, Problem, Result};
use highwater_snapshots::units::{count_of, format_bytes};

/// Maximum length of a string, except for an embedded recording. Names and paths are far shorter.
const MAX_TEXT_BYTES: u64 = 64 << 20;
/// Maximum length of an integer. Addresses and sizes have at most 9 bytes.
const MAX_INTEGER_BYTES: u64 = 1 << 16;

/// The virtual machine of the pickle format, with a stack with marks, and a memo.
pub(super) struct Machine<S> {
    pub(super) source: S,
    pub(super) stack: Vec<Value>,
    /// Stack position of each open mark.
    pub(super) marks: Vec<usize>,
    pub(super) memos: Memos,
    /// Whether a memo index was used twice.
    pub(super) is_overwritten: bool,
    runs: Runs,
    /// The row of a list and the bytes of the lookups being appended to it, remembered if the list becomes a stack.
    open_run: Option<(u32, Vec<u8>)>,
    pub(super) store: Store,
}

pub(super) enum Next {
    /// The instruction with this opcode was executed.
    Executed(u8),
    /// The instruction ends the pickle with this value.
    End(Value),
}

enum Stop {
    /// The input ends within the instruction.
    End,
    /// The instruction is inconsistent with the preceding instructions.
    Wrong(String),
    /// The instruction has an object that is too large.
    TooLong(String),
    /// The instruction does more than build values.
    Refused { name: &'static str, why: &'static str },
}

impl From<Refusal> for Stop {
    fn from(why: Refusal) -> Self {
        Self::Wrong(why.to_owned())
    }
}

type Step<T = ()> = std::result::Result<T, Stop>;

impl<S: Source> Machine<S> {
    pub(super) fn new(source: S) -> Self {
        Self {
            source,
            stack: Vec::new(),
            marks: Vec::new(),
            memos: Memos::default(),
            is_overwritten: false,
            runs: Runs::default(),
            open_run: None,
            store: Store::new(),
        }
    }

    /// Executes the next instruction. Returns the top value once the pickle ends.
    #[inline(always)]
    pub(super) fn next(&mut self) -> Result<Next> {
        let Some(code) = self.source.byte() else { return Err(self.end(self.source.position())) };
        if code == op::STOP {
            return match self.stack.pop() {
                Some(value) => Ok(Next::End(value)),
                None => Err(self.wrong(code, "the pickle ends without a value")),
            };
        }
        let start = self.source.position() - 1;
        match self.step(code) {
            Ok(()) => Ok(Next::Executed(code)),
            Err(Stop::End) => Err(self.end(start)),
            Err(Stop::Wrong(what)) => Err(self.wrong(code, &what)),
            Err(Stop::TooLong(what)) => Err(Error::Damaged { offset: start, what }),
            Err(Stop::Refused { name, why }) => Err(refused(start, name, why)),
        }
    }

    #[inline(always)]
    fn step(&mut self, code: u8) -> Step {
        match code {
            op::BINGET => {
                let number = self.byte()?;
                self.get(usize::from(number))?;
                self.get_more();
            }
            op::LONG_BINGET => {
                let number = u32::from_le_bytes(self.array()?);
                self.get(number as usize)?;
                self.get_more();
            }
            op::BININT1 => {
                let number = self.byte()?;
                self.stack.push(Value::Int(i64::from(number)));
            }
            op::BININT2 => {
                let number = u16::from_le_bytes(self.array()?);
                self.stack.push(Value::Int(i64::from(number)));
            }
            op::BININT => {
                let number = i32::from_le_bytes(self.array()?);
                self.stack.push(Value::Int(i64::from(number)));
            }
            op::LONG1 => {
                let length = self.byte()?;
                self.long(u64::from(length))?;
            }
            op::MEMOIZE => {
                let value = self.top()?;
                self.memos.push(value);
            }
            op::MARK => {
                if !self.known_run() {
                    self.marks.push(self.stack.len());
                }
            }
            op::EMPTY_DICT => {
                let dict = self.store.new_dict();
                self.stack.push(dict);
            }
            op::EMPTY_LIST | op::EMPTY_SET => {
                let list = self.store.new_list();
                self.stack.push(list);
            }
            op::SETITEMS => {
                let mark = self.mark()?;
                let target = *mark.checked_sub(1).and_then(|below| self.stack.get(below)).ok_or_else(empty)?;
                self.store.set_items(target, &self.stack[mark..])?;
                self.stack.truncate(mark);
            }
            op::APPENDS | op::ADDITEMS => {
                let mark = self.mark()?;
                let target = *mark.checked_sub(1).and_then(|below| self.stack.get(below)).ok_or_else(empty)?;
                self.store.append(target, &self.stack[mark..])?;
                self.stack.truncate(mark);
                if self.open_run.is_some() {
                    self.close_run(target);
                }
            }
            op::TUPLE2 => self.tuple(2)?,
            op::SHORT_BINUNICODE => {
                let length = self.byte()?;
                self.text(u64::from(length))?;
            }
            op::BINUNICODE => {
                let length = u32::from_le_bytes(self.array()?);
                self.text(u64::from(length))?;
            }
            op::BINPUT => {
                let number = self.byte()?;
                self.put(usize::from(number))?;
            }
            op::LONG_BINPUT => {
                let number = u32::from_le_bytes(self.array()?);
                self.put(number as usize)?;
            }
            _ => self.rare_step(code)?,
        }
        Ok(())
    }

    fn rare_step(&mut self, code: u8) -> Step {
        match code {
            op::PROTO => match self.byte()? {
                2..=5 => {}
                other => return Err(Stop::Wrong(format!("protocol {other}: expected 2 to 5"))),
            },
            // Framing is irrelevant when reading sequentially.
            op::FRAME => drop(self.array::<8>()?),
            op::NONE => self.stack.push(Value::None),
            op::NEWTRUE => self.stack.push(Value::Bool(true)),
            op::NEWFALSE => self.stack.push(Value::Bool(false)),
            op::BINFLOAT => {
                let number = f64::from_be_bytes(self.array()?);
                self.stack.push(Value::Float(number));
            }
            op::LONG4 => {
                let length = u32::from_le_bytes(self.array()?);
                self.long(u64::from(length))?;
            }
            op::BINUNICODE8 => {
                let length = u64::from_le_bytes(self.array()?);
                self.text(length)?;
            }
            op::SHORT_BINSTRING => {
                let length = self.byte()?;
                self.text(u64::from(length))?;
            }
            op::BINSTRING => {
                let length = u32::from_le_bytes(self.array()?);
                self.text(u64::from(length))?;
            }
            op::SHORT_BINBYTES => {
                let length = self.byte()?;
                self.skip(u64::from(length))?;
            }
            op::BINBYTES => {
                let length = u32::from_le_bytes(self.array()?);
                self.skip(u64::from(length))?;
            }
            op::BINBYTES8 | op::BYTEARRAY8 => {
                let length = u64::from_le_bytes(self.array()?);
                self.skip(length)?;
            }
            op::APPEND => {
                let item = self.pop()?;
                let target = self.top()?;
                self.store.append(target, &[item])?;
            }
            op::SETITEM => {
                let value = self.pop()?;
                let key = self.pop()?;
                let target = self.top()?;
                self.store.set_item(target, key, value)?;
            }
            op::LIST | op::FROZENSET => {
                let mark = self.mark()?;
                let list = self.store.new_list();
                self.store.append(list, &self.stack[mark..])?;
                self.stack.truncate(mark);
                self.stack.push(list);
            }
            op::DICT => {
                let mark = self.mark()?;
                let dict = self.store.new_dict();
                self.store.set_items(dict, &self.stack[mark..])?;
                self.stack.truncate(mark);
                self.stack.push(dict);
            }
            op::TUPLE => {
                let mark = self.mark()?;
                let tuple = self.store.tuple(&self.stack[mark..])?;
                self.stack.truncate(mark);
                self.stack.push(tuple);
            }
            op::EMPTY_TUPLE => self.tuple(0)?,
            op::TUPLE1 => self.tuple(1)?,
            op::TUPLE3 => self.tuple(3)?,
            op::POP => drop(self.pop()?),
            op::POP_MARK => {
                let mark = self.mark()?;
                self.stack.truncate(mark);
            }
            op::DUP => {
                let value = self.top()?;
                self.stack.push(value);
            }
            other => match op::refusal(other) {
                Some((name, why)) => return Err(Stop::Refused { name, why }),
                None => return Err(Stop::Wrong(format!("{other:#04x} is not a pickle opcode"))),
            },
        }
        Ok(())
    }

    #[inline(always)]
    fn byte(&mut self) -> Step<u8> {
        self.source.byte().ok_or(Stop::End)
    }

    #[inline(always)]
    fn array<const N: usize>(&mut self) -> Step<[u8; N]> {
        self.source.bytes(N).and_then(|bytes| bytes.try_into().ok()).ok_or(Stop::End)
    }

    /// Returns the top value above the last mark.
    #[inline]
    fn top(&mut self) -> Step<Value> {
        let floor = self.marks.last().copied().unwrap_or(0);
        self.stack.get(floor..).and_then(<[Value]>::last).copied().ok_or_else(empty)
    }

    #[inline]
    fn pop(&mut self) -> Step<Value> {
        let value = self.top()?;
        self.stack.pop();
        Ok(value)
    }

    #[inline]
    fn mark(&mut self) -> Step<usize> {
        self.marks.pop().ok_or_else(|| Stop::Wrong("no mark on the stack".to_owned()))
    }

    #[inline]
    fn get(&mut self, number: usize) -> Step {
        let value = match self.memos.get(number) {
            Some(Memo::Value(value)) => value,
            Some(memo) => self.with_row(number, memo),
            None => return Err(Stop::Wrong(format!("no value is memoized under index {number}"))),
        };
        self.stack.push(value);
        Ok(())
    }

    /// Assigns a row to a value of the memo.
    #[cold]
    fn with_row(&mut self, number: usize, memo: Memo) -> Value {
        let value = match memo {
            Memo::Value(value) => value,
            Memo::Event(event) => self.store.event_dict(event),
            Memo::Stack(stack) => self.store.used_list(stack),
        };
        self.memos.put(number, value, u64::MAX);
        value
    }

    /// Fills the new list on top of the stack if the bytes ahead are a run of lookups seen before. Returns whether it
    /// did.
    #[inline]
    fn known_run(&mut self) -> bool {
        let Some(&Value::List(list)) = self.stack.last() else { return false };
        if !self.store.is_new_list(list) {
            return false;
        }
        let ahead = self.source.ahead();
        let Some(length) = run_length(ahead) else { return false };
        let run = &ahead[..length];
        match self.runs.get(run) {
            Some(stack) => {
                self.store.set_stack(list, stack);
                self.source.take(length + 1);
                true
            }
            None => {
                self.open_run = Some((list, run.to_vec()));
                false
            }
        }
    }

    /// Stores the bytes of the memo lookups just appended to `target` with their stack, if they are the frames of one.
    #[cold]
    fn close_run(&mut self, target: Value) {
        if let Some((list, run)) = self.open_run.take()
            && target == Value::List(list)
            && let Some(stack) = self.store.as_stack(list)
        {
            self.runs.insert(&run, stack);
        }
    }

    /// Executes the memo lookups that follow. Most of a snapshot consists of stacks, and stacks are runs of lookups.
    #[inline]
    fn get_more(&mut self) {
        let ahead = self.source.ahead();
        let mut left = ahead;
        loop {
            let (number, rest) = match left {
                [op::LONG_BINGET, a, b, c, d, rest @ ..] => (u32::from_le_bytes([*a, *b, *c, *d]) as usize, rest),
                [op::BINGET, number, rest @ ..] => (usize::from(*number), rest),
                _ => break,
            };
            let Some(Memo::Value(value)) = self.memos.get(number) else { break };
            self.stack.push(value);
            left = rest;
        }
        let taken = ahead.len() - left.len();
        self.source.take(taken);
    }

    #[inline]
    fn put(&mut self, number: usize) -> Step {
        let value = self.top()?;
        // Each stored value took at least one byte; a one-byte number is harmless in any case.
        let limit = self.source.position().max(u64::from(u8::MAX));
        if self.memos.get(number).is_some() {
            self.runs.clear();
            self.is_overwritten = true;
        }
        match self.memos.put(number, value, limit) {
            true => Ok(()),
            false => Err(Stop::Wrong(format!("invalid memo index {number}: greater than the bytes read so far"))),
        }
    }

    #[inline]
    fn tuple(&mut self, length: usize) -> Step {
        let floor = self.marks.last().copied().unwrap_or(0);
        let first = self.stack.len().checked_sub(length).filter(|first| *first >= floor).ok_or_else(empty)?;
        let tuple = self.store.tuple(&self.stack[first..])?;
        self.stack.truncate(first);
        self.stack.push(tuple);
        Ok(())
    }

    #[inline]
    fn text(&mut self, length: u64) -> Step {
        if length > MAX_TEXT_BYTES {
            self.check_long_text(length)?;
        }
        let length = usize::try_from(length).map_err(|_| Stop::End)?;
        let bytes = self.source.bytes(length).ok_or(Stop::End)?;
        let id = match std::str::from_utf8(bytes) {
            Ok(text) => self.store.intake.text(text),
            Err(_) => {
                let text = String::from_utf8_lossy(bytes);
                let id = self.store.intake.text(&text);
                self.store.intake.count_unexpected("a string that is not UTF-8: invalid bytes are shown as \u{fffd}");
                id
            }
        };
        self.stack.push(Value::Text(id));
        Ok(())
    }

    /// Fails unless the next `length` bytes are the recording that this program embeds, which is the only long string
    /// of a snapshot.
    #[cold]
    fn check_long_text(&mut self, length: u64) -> Step {
        let is_recording = self.source.begins_with(EMBEDDED_MARKER.as_bytes());
        let most = if is_recording { MAX_EMBEDDED as u64 + 100 } else { MAX_TEXT_BYTES };
        if length <= most {
            return Ok(());
        }
        let [length, most] = [length, most].map(format_bytes);
        Err(Stop::TooLong(format!("a string of {length}; no name in a snapshot is longer than {most}")))
    }

    /// Pushes the next `length` bytes as a little-endian two's complement integer.
    #[inline]
    fn long(&mut self, length: u64) -> Step {
        if length > MAX_INTEGER_BYTES {
            return Err(Stop::TooLong(format!(
                "an integer of {}; no number in a snapshot is that long",
                format_bytes(length)
            )));
        }
        let length = usize::try_from(length).map_err(|_| Stop::End)?;
        let bytes = self.source.bytes(length).ok_or(Stop::End)?;
        let is_negative = bytes.last().is_some_and(|byte| byte & 0x80 != 0);
        let value = match length {
            0..=8 => {
                let mut wide = [if is_negative { 0xff } else { 0 }; 8];
                wide[..length].copy_from_slice(bytes);
                Value::Int(i64::from_le_bytes(wide))
            }
            _ if !is_negative && bytes[8..].iter().all(|byte| *byte == 0) => {
                let number = bytes.first_chunk::<8>().map_or(0, |low| u64::from_le_bytes(*low));
                i64::try_from(number).map_or(Value::Big(number), Value::Int)
            }
            _ => Value::Huge,
        };
        self.stack.push(value);
        Ok(())
    }

    /// Skips a bytes object, which snapshots do not contain.
    fn skip(&mut self, length: u64) -> Step {
        let mut left = length;
        while left > 0 {
            let portion = left.min(1 << 16);
            self.source.bytes(portion as usize).ok_or(Stop::End)?;
            left -= portion;
        }
        self.stack.push(Value::Bytes);
        Ok(())
    }

    /// Returns the error for a pickle that ends within the instruction at `start`.
    fn end(&mut self, start: u64) -> Error {
        if let Some(source) = self.source.failure() {
            return Error::Io { doing: "read the recording", source, path: "the input".into() };
        }
        let events = count_of(self.store.events.len() as u64, "event");
        let what = format!("the pickle ends early, after {events}: the copy or the recording is incomplete");
        Error::Damaged { offset: start, what }
    }

    /// Returns the error for the instruction just read, which is inconsistent with the preceding instructions.
    fn wrong(&mut self, code: u8, what: &str) -> Error {
        let name = op::name(code).map_or_else(String::new, |name| format!(" ({name})"));
        let place = Problem::at(self.source.position(), what);
        Error::Damaged { offset: place.offset.unwrap_or(0), what: format!("{what}{name}") }
    }
}

fn empty() -> Stop {
    Stop::Wrong("a value is taken from an empty stack".to_owned())
}

fn refused(offset: u64, name: &'static str, why: &'static str) -> Error {
    Error::Refused { offset, what: format!("the instruction {name} {why}") }
}
