//! Decodes lists of events on several threads, ahead of the machine.
//!
//! ```text
//!   bytes ──portions──►  EventReader  ──rows──►  Machine
//!                        several threads         one, in the order of the file
//! ```
//!
//! Between two events of a trace, the file is divided where further events begin. Threads decode these portions with
//! the memo as it was before them; then the machine takes them in order, resolves the references that they left open,
//! and executes the instructions that they left out. It accepts a portion only if it arrives exactly where the portion
//! begins, and goes on by itself from wherever that is not so. The result is that of executing every instruction.

use std::ops::Range;

use rayon::prelude::*;

use super::events::{Beginning, EventReader, MOST};
use super::known::{MemoDelta, MemoSnapshot};
use super::machine::{Machine, Next};
use super::memo::Memo;
use super::portion::{Chunk, ExtrasOf, NO_EXTRAS, Row, StackOf, StepKind, Stored, TextOf};
use super::source::{InMemory, Source};
use crate::Sequences;
use crate::objects::{Dict, List, RowKind, Value};
use crate::raw::{Extras, RawEvent};
use highwater_snapshots::error::Result;
use highwater_snapshots::ids::StringId;

#[derive(Clone, Copy, Debug)]
pub(super) struct Division {
    pub(super) portion: usize,
    pub(super) portions: usize,
}

impl Division {
    /// Returns the division for the available threads. On a thread of a pool, which reads one of several files,
    /// portions are decoded without further threads, because the thread would begin to read the next file while
    /// waiting.
    pub(super) fn for_threads() -> Self {
        match rayon::current_num_threads() {
            threads if threads > 1 && rayon::current_thread_index().is_none() => {
                Self { portion: 512 << 10, portions: (8 * threads).min(64) }
            }
            _ => Self { portion: 128 << 10, portions: 1 },
        }
    }
}

/// Portions ahead of the machine.
pub(super) struct ParallelDecoder<'a> {
    bytes: &'a [u8],
    division: Division,
    known: Option<MemoSnapshot>,
    news: MemoDelta,
    /// Number of memo entries already copied to `known`.
    memos: usize,
    /// The position at which to look for events again.
    next_try: usize,
    decoded: Vec<Chunk>,
    spare: Vec<Chunk>,
    lookup: Lookup,
}

/// The references of a portion's rows that have been resolved.
#[derive(Debug, Default)]
struct Lookup {
    /// Number of events at the end of the current batch that are not on the stack.
    pending: usize,
    runs: Vec<Option<u32>>,
    texts: Vec<Option<StringId>>,
    extras: Vec<Option<u32>>,
    frames: Vec<u32>,
}

enum Taken {
    /// The portion was taken to its end.
    All,
    /// The portion was taken in part, and the machine executes the rest.
    Part,
    /// The pickle ends in the portion with this value.
    End(Value),
}

impl<'a> ParallelDecoder<'a> {
    pub(super) fn new(bytes: &'a [u8], division: Division) -> Self {
        Self {
            bytes,
            division,
            known: None,
            news: MemoDelta::default(),
            memos: 0,
            next_try: 0,
            decoded: Vec::new(),
            spare: Vec::new(),
            lookup: Lookup::default(),
        }
    }

    /// Decodes events from the position of `machine`, if that is between two events. `report` is called from time to
    /// time. Returns the top value if the pickle ends meanwhile.
    pub(super) fn run(
        &mut self,
        machine: &mut Machine<InMemory<'a>>,
        report: &mut dyn FnMut(&mut Machine<InMemory<'a>>) -> Result<()>,
    ) -> Result<Option<Value>> {
        let start = machine.source.position() as usize;
        if start < self.next_try || self.bytes.len() - start < self.division.portion || machine.is_overwritten {
            return Ok(None);
        }
        if machine.open_batch().is_none() {
            return Ok(None);
        }
        let Some(beginning) = Beginning::of(machine.source.ahead()) else { return Ok(None) };
        let known = self.known.get_or_insert_with(|| MemoSnapshot::new(&machine.memos, &machine.store));
        if self.memos > 0 {
            self.news.take_memos(self.memos, &machine.memos, &machine.store);
            known.update(&mut self.news);
        }
        self.memos = machine.memos.len();

        let (mut next, mut is_going_on) = (start, true);
        self.decoded.clear();
        self.lookup.pending = 0;
        while is_going_on {
            next = divide(self.bytes, next, &beginning, self.division, &mut self.spare);
            let Self { bytes, division, known, news, decoded, spare, lookup, .. } = self;
            let Some(known) = known else { return Ok(None) };
            let mut take = || {
                for portion in decoded.iter() {
                    match machine.take(portion, news, lookup)? {
                        Taken::All => {}
                        other => return Ok(other),
                    }
                }
                Ok(Taken::All)
            };
            let decode = |portion: &mut Chunk| EventReader::new(bytes, known, &beginning, portion).read();
            let taken: Result<Taken> = match division.portions {
                1 => {
                    spare.iter_mut().for_each(decode);
                    take()
                }
                _ => rayon::join(take, || spare.par_iter_mut().for_each(decode)).0,
            };
            match taken? {
                Taken::All => is_going_on = !spare.is_empty(),
                Taken::Part => is_going_on = false,
                Taken::End(value) => return Ok(Some(value)),
            }
            known.update(news);
            self.memos = machine.memos.len();
            std::mem::swap(&mut self.decoded, &mut self.spare);
            report(machine)?;
        }
        machine.put_on_stack(&mut self.lookup);
        // Portions decoded in vain must be made up for before the next attempt.
        let end = machine.source.position() as usize;
        let wasted = next.saturating_sub(end);
        self.next_try = if end - start < wasted { end.saturating_add(2 * wasted) } else { end };
        Ok(None)
    }
}

/// Divides the bytes from `start`, where an event begins, into portions. Returns the end of the last portion.
fn divide(
    bytes: &[u8],
    mut start: usize,
    beginning: &Beginning,
    division: Division,
    portions: &mut Vec<Chunk>,
) -> usize {
    let mut count = 0;
    while count < division.portions && start < bytes.len() {
        let Some(end) = end_of(bytes, start, beginning, division) else { break };
        if count == portions.len() {
            portions.push(Chunk::default());
        }
        portions[count].begin(start..end);
        count += 1;
        start = end;
    }
    portions.truncate(count);
    start
}

/// Returns the end of the portion at `start`, which is the start of an event or the end of the file; `None` if neither
/// is near the end of the portion.
fn end_of(bytes: &[u8], start: usize, beginning: &Beginning, division: Division) -> Option<usize> {
    let nominal = start.checked_add(division.portion)?;
    if nominal >= bytes.len() {
        return Some(bytes.len());
    }
    let range: Range<usize> = nominal..nominal.saturating_add(division.portion).min(bytes.len());
    let is_to_the_end = range.end == bytes.len();
    beginning.find(bytes, range).or_else(|| is_to_the_end.then_some(bytes.len()))
}

impl Machine<InMemory<'_>> {
    /// Returns the list of events to which the values above the last mark will be appended. `None` unless the last
    /// value is an event that was just read.
    fn open_batch(&self) -> Option<u32> {
        let (row, mark) = self.batch_list()?;
        let last = *self.stack.get(mark..)?.last()?;
        let Value::Dict(dict) = last else { return None };
        let Some(&Dict::Event(event)) = self.store.dicts.get(dict as usize) else { return None };
        (event as usize + 1 == self.store.events.len()).then_some(row)
    }

    /// Returns the list below the last mark, and the mark, if the list may become a list of events.
    fn batch_list(&self) -> Option<(u32, usize)> {
        let mark = *self.marks.last()?;
        let Some(&Value::List(row)) = self.stack.get(mark.checked_sub(1)?) else { return None };
        let slot = self.store.lists.get(row as usize)?;
        let is_for_events = !slot.is_used && matches!(slot.list, List::Empty | List::Rows { kind: RowKind::Event, .. });
        is_for_events.then_some((row, mark))
    }

    fn take(&mut self, portion: &Chunk, news: &mut MemoDelta, lookup: &mut Lookup) -> Result<Taken> {
        if self.source.position() as usize != portion.range.start {
            return Ok(Taken::Part);
        }
        lookup.begin(portion);
        let (mut rows, mut stored) = (portion.rows.as_slice(), portion.stored.as_slice());
        for step in &portion.steps {
            match step.kind {
                StepKind::Events { count, number } => {
                    let Some((now, later)) = rows.split_at_checked(count as usize) else { return Ok(Taken::Part) };
                    rows = later;
                    let values: usize = now.iter().map(|row| usize::from(row.stored)).sum();
                    if !self.is_next_number(number, values) {
                        return Ok(Taken::Part);
                    }
                    let taken = self.take_events(portion, now, &mut stored, news, lookup);
                    lookup.pending += taken;
                    let is_all = taken == count as usize;
                    self.go_to(if is_all { step.end } else { portion.range.start + now[taken].start as usize });
                    if !is_all {
                        return Ok(Taken::Part);
                    }
                }
                StepKind::Batch if self.append_batch(lookup) => self.go_to(step.end),
                StepKind::Batch | StepKind::Other => {
                    self.put_on_stack(lookup);
                    let first = self.memos.len();
                    while (self.source.position() as usize) < step.end {
                        if let Next::End(value) = self.next()? {
                            return Ok(Taken::End(value));
                        }
                    }
                    news.take_memos(first, &self.memos, &self.store);
                    let is_there = self.source.position() as usize == step.end;
                    if !is_there || self.is_overwritten || self.batch_list().is_none() {
                        return Ok(Taken::Part);
                    }
                }
            }
        }
        let is_all = self.source.position() as usize == portion.range.end;
        Ok(if is_all { Taken::All } else { Taken::Part })
    }

    fn go_to(&mut self, position: usize) {
        self.source.take(position.saturating_sub(self.source.position() as usize));
    }

    /// Returns whether the next `values` values are stored from `number` on, if the file states a number and this is
    /// possible.
    fn is_next_number(&self, number: Option<usize>, values: usize) -> bool {
        let next = self.memos.len();
        let are_few = self.store.events.len() < MOST as usize;
        are_few && number.is_none_or(|number| number == next && number + values <= self.source.position() as usize)
    }

    /// Takes events until one has a reference that is not a stack. Returns the number of events taken.
    fn take_events(
        &mut self,
        portion: &Chunk,
        rows: &[Row],
        stored: &mut &[Stored],
        news: &mut MemoDelta,
        lookup: &mut Lookup,
    ) -> usize {
        for (count, row) in rows.iter().enumerate() {
            let Some(stack) = self.stack_of(row.stack, portion, news, lookup) else { return count };
            let Some((values, rest)) = stored.split_at_checked(usize::from(row.stored)) else { return count };
            *stored = rest;
            let event = self.store.events.len() as u32;
            for value in values {
                match *value {
                    Stored::Event => self.memos.push_event(event),
                    Stored::Stack(_) => self.memos.push_stack(stack),
                    Stored::Text(row) => {
                        let id = lookup.text(row, portion, self);
                        self.memos.push(Value::Text(id));
                    }
                    Stored::Pair(row) => {
                        let (first, second) = portion.pairs[row as usize];
                        let pair = self.store.pair(first, second);
                        self.memos.push(pair);
                    }
                }
            }
            let extras = if row.extras == NO_EXTRAS { 0 } else { lookup.extras(row.extras, portion, self) };
            let &Row { address, size, time_us, stream, action, .. } = row;
            self.store.intake.meter(action, time_us, size);
            self.store.events.push(RawEvent { address, size, time_us, stream, stack, extras, action });
        }
        rows.len()
    }

    /// Looks up a stack; `None` if the reference is not to a stack.
    #[inline]
    fn stack_of(&mut self, stack: StackOf, portion: &Chunk, news: &mut MemoDelta, lookup: &mut Lookup) -> Option<u32> {
        match stack {
            StackOf::MemoSnapshot(stack) => Some(stack),
            StackOf::Run(row) => match lookup.runs[row as usize] {
                Some(stack) => Some(stack),
                None => self.new_stack(row, portion, news, lookup),
            },
            StackOf::Memo(number) => match self.memos.get(number as usize)? {
                Memo::Stack(stack) => Some(stack),
                Memo::Value(Value::List(row)) => {
                    let slot = self.store.lists.get_mut(row as usize)?;
                    let stack = match slot.list {
                        List::Stack(stack) => stack,
                        List::Empty => Sequences::NONE,
                        _ => return None,
                    };
                    slot.is_used = true;
                    Some(stack)
                }
                _ => None,
            },
        }
    }

    #[cold]
    fn new_stack(&mut self, row: u32, portion: &Chunk, news: &mut MemoDelta, lookup: &mut Lookup) -> Option<u32> {
        let run = portion.run(row);
        lookup.frames.clear();
        for number in super::runs::numbers(run) {
            let Some(Memo::Value(Value::Dict(dict))) = self.memos.get(number) else { return None };
            let Some(&Dict::Frame(frame)) = self.store.dicts.get(dict as usize) else { return None };
            lookup.frames.push(frame);
        }
        let stack = self.store.intake.stack(&lookup.frames);
        if stack >= MOST {
            return None;
        }
        lookup.runs[row as usize] = Some(stack);
        news.take_run(run, stack);
        Some(stack)
    }

    /// Appends the current batch to its list, if the whole batch is pending and the list contains the events before it.
    fn append_batch(&mut self, lookup: &mut Lookup) -> bool {
        let Some((row, mark)) = self.batch_list() else { return false };
        let events = self.store.events.len() as u32;
        let (count, slot) = (lookup.pending as u32, &mut self.store.lists[row as usize]);
        if count == 0 || self.stack.len() > mark {
            return false;
        }
        let (first, before) = match slot.list {
            List::Empty => (events - count, 0),
            List::Rows { kind: RowKind::Event, first, count: before } if first + before == events - count => {
                (first, before)
            }
            _ => return false,
        };
        slot.list = List::Rows { kind: RowKind::Event, first, count: before + count };
        lookup.pending = 0;
        true
    }

    fn put_on_stack(&mut self, lookup: &mut Lookup) {
        let events = self.store.events.len();
        for event in events - std::mem::take(&mut lookup.pending)..events {
            let dict = self.store.event_dict(event as u32);
            self.stack.push(dict);
        }
    }
}

impl Lookup {
    fn begin(&mut self, portion: &Chunk) {
        self.runs.clear();
        self.runs.resize(portion.run_count(), None);
        self.texts.clear();
        self.texts.resize(portion.text_count(), None);
        self.extras.clear();
        self.extras.resize(portion.extras.len(), None);
    }

    #[inline]
    fn text(&mut self, row: u32, portion: &Chunk, machine: &mut Machine<InMemory<'_>>) -> StringId {
        *self.texts[row as usize].get_or_insert_with(|| machine.store.intake.text(portion.text(row)))
    }

    /// Looks up the rare fields of an event, whose strings were looked up before.
    #[inline]
    fn extras(&mut self, row: u32, portion: &Chunk, machine: &mut Machine<InMemory<'_>>) -> u32 {
        if let Some(extras) = self.extras[row as usize] {
            return extras;
        }
        let ExtrasOf { pool_id, compile_context, user_metadata, internal_metadata, category } =
            portion.extras[row as usize];
        let mut text = |text| match text {
            TextOf::None => StringId::NONE,
            TextOf::MemoSnapshot(id) => id,
            TextOf::New(row) => self.text(row, portion, machine),
        };
        let extras = Extras {
            compile_context: text(compile_context),
            user_metadata: text(user_metadata),
            internal_metadata: text(internal_metadata),
            category: text(category),
            pool_id,
            ..Extras::default()
        };
        let extras = machine.store.intake.extras(extras);
        self.extras[row as usize] = Some(extras);
        extras
    }
}
