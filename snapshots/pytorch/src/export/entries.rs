//! Entries: the events of a trace as PyTorch would have traced them, one device after the other.
//!
//! Events that PyTorch does not know are no entries, since its viewer lists any event of the traces by an address that
//! these do not have. Steps, phases and marks are `external_annotations`, which no version of that viewer shows; tags,
//! uses and samples of the device's memory are in the recording that the file carries.

use crate::raw::{Action, RawEvent};
use highwater_snapshots::category::Category;
use highwater_snapshots::event::EventKind;
use highwater_snapshots::ids::{BlockId, DeviceId, EventId, OpId, StackId, StringId};
use highwater_snapshots::trace::{Block, Owner, PINNED_DEVICE, Subject, Trace};

use super::further::{Facts, Further};

/// The ordinal under which pinned host memory is kept.
pub(super) const HOST: DeviceId = PINNED_DEVICE;

/// An event on its way into a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    /// Action, address, size, stream, time; its stack is a [`StackId`], its row of extras means nothing.
    pub(super) raw: RawEvent,
    /// The action's name.
    pub(super) action: Name,
    /// What the program said of it: `user_metadata`.
    pub(super) note: Option<Name>,
    /// What the block is for; none for anything but an alloc.
    pub(super) category: Option<Category>,
    /// The operation that asked for the block.
    pub(super) op: OpId,
    /// The rest.
    pub(super) facts: Facts,
}

/// A name of the format, or one that a file brought along.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Name {
    /// Of the format, or ours.
    Word(&'static str),
    /// A text of the trace.
    Text(StringId),
}

/// What the format has no place for, counted while entries are made.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LeftOut {
    /// Frees of blocks that the recording does not know: they have no address.
    pub(super) unmatched_frees: u64,
    /// Blocks whose frees the recording is missing, and which are freed where that shows.
    pub(super) frees_added: u64,
}

/// Makes entries of events.
#[derive(Clone, Debug)]
pub(super) struct Entries<'a> {
    trace: &'a Trace,
    further: &'a Further<'a>,
    /// Where steps, phases and marks go, which concern every device.
    home: DeviceId,
}

impl<'a> Entries<'a> {
    /// Makes entries of the events of `trace`.
    pub(super) fn new(trace: &'a Trace, further: &'a Further<'a>) -> Self {
        let devices = trace.device_ids();
        let main = trace.main_device();
        let home = if devices.contains(&DeviceId(0)) || main == HOST { DeviceId(0) } else { main };
        Self { trace, further, home }
    }

    /// The device to whose trace steps, phases and marks belong.
    pub(super) fn home(&self) -> DeviceId {
        self.home
    }

    /// The device to whose trace event `row` belongs.
    #[inline]
    pub(super) fn device(&self, row: usize) -> DeviceId {
        let device = self.trace.events.device[row];
        let concerns_all =
            || matches!(self.trace.events.kind[row], EventKind::Step | EventKind::Phase | EventKind::Mark);
        if device == DeviceId(0) && self.home != device && concerns_all() { self.home } else { device }
    }

    /// Hands the entries of event `row` to `each`: one for most events.
    #[inline]
    pub(super) fn each(
        &self,
        row: usize,
        left_out: &mut LeftOut,
        mut each: impl FnMut(Entry) -> highwater_snapshots::error::Result<()>,
    ) -> highwater_snapshots::error::Result<()> {
        let event = EventId(row as u32);
        if self.trace.events.kind[row] == EventKind::Alloc && !self.trace.replaced.is_empty() {
            let first = self.trace.replaced.partition_point(|(at, _)| *at < event);
            for &(_, ended) in self.trace.replaced[first..].iter().take_while(|(at, _)| *at == event) {
                left_out.frees_added += 1;
                self.missing_frees(event, ended, &mut each)?;
            }
        }
        match self.entry(event) {
            Some(entry) if entry.is_of_pytorch() => each(entry),
            Some(_) => Ok(()),
            None => {
                left_out.unmatched_frees += 1;
                Ok(())
            }
        }
    }

    /// The frees of `block`, which the recording is missing, at the event that proves it gone.
    fn missing_frees(
        &self,
        event: EventId,
        block: BlockId,
        each: &mut impl FnMut(Entry) -> highwater_snapshots::error::Result<()>,
    ) -> highwater_snapshots::error::Result<()> {
        let Some(row) = block.index().filter(|row| *row < self.trace.blocks.len()) else { return Ok(()) };
        let mut entry = self.bare(event);
        entry.of_block(&self.trace.blocks.get(block));
        if self.trace.blocks.free_requested[row] == event && !self.trace.was_waiting_at_start(block) {
            each(entry.with(Action::FreeRequested))?;
        }
        each(entry.with(Action::FreeCompleted))
    }

    /// What PyTorch records when it takes a snapshot, at the time of `event`.
    pub(super) fn snapshot(&self, event: EventId, active_bytes: u64) -> Entry {
        let mut entry = self.bare(event).with(Action::Snapshot);
        entry.raw.size = active_bytes;
        entry
    }

    /// An entry of which only the time is known.
    fn bare(&self, event: EventId) -> Entry {
        let time_ns = self.trace.events.time_ns[event.0 as usize];
        let time_us = self.trace.header.started_unix_us.saturating_add(time_ns / 1000);
        let (stack, extras, action) = (StackId::NONE.0, 0, Action::Unknown);
        let raw = RawEvent { address: 0, size: 0, time_us, stream: 0, stack, extras, action };
        let facts = Facts::default();
        Entry { raw, action: Name::Word("mark"), note: None, category: None, op: OpId::NONE, facts }
    }

    fn entry(&self, event: EventId) -> Option<Entry> {
        let trace = self.trace;
        let row = event.0 as usize;
        let kind = trace.events.kind[row];
        let mut entry = self.bare(event);
        entry.facts = self.further.about(Owner::Event(event));
        entry.raw.stack = trace.events.stack[row].0;
        match trace.subject(event) {
            Subject::Block(id) => {
                let block = trace.blocks.get(id);
                entry.of_block(&block);
                match kind {
                    EventKind::Alloc => {
                        entry.category = Some(block.category);
                        entry.op = block.op;
                        entry = entry.with(Action::Alloc);
                    }
                    EventKind::FreeRequested => entry = entry.with(Action::FreeRequested),
                    EventKind::Used => {}
                    _ => entry = entry.with(Action::FreeCompleted),
                }
            }
            Subject::Segment(id) => {
                let range = trace.segments.get(id).range;
                (entry.raw.address, entry.raw.size, entry.raw.stream) = (range.address, range.bytes, range.stream.0);
                entry = entry.with(match kind {
                    EventKind::SegmentAlloc => Action::SegmentAlloc,
                    EventKind::SegmentFree => Action::SegmentFree,
                    EventKind::SegmentMap => Action::SegmentMap,
                    _ => Action::SegmentUnmap,
                });
            }
            Subject::Oom(at) => {
                let oom = trace.ooms.get(at)?;
                (entry.raw.address, entry.raw.size) = (oom.device_free, oom.requested);
                entry.raw.stream = oom.stream.unwrap_or_default().0;
                entry = entry.with(Action::Oom);
            }
            Subject::Tag(..) | Subject::DeviceUsed(_) | Subject::Step(_) | Subject::Phase(_) => {}
            Subject::Mark(text) => {
                entry.note = Some(Name::Text(text));
                self.name_mark(&mut entry, text);
            }
            Subject::Unmatched if matches!(kind, EventKind::Tag | EventKind::Used) => {}
            Subject::Unmatched => return None,
        }
        if let Some(text) = entry.facts.user_metadata {
            entry.note = Some(Name::Text(text));
        }
        Some(entry)
    }

    /// Gives a mark that stands for an action of an imported snapshot its action back. None is made an action that
    /// changes blocks or segments.
    fn name_mark(&self, entry: &mut Entry, text: StringId) {
        let Some(id) = entry.facts.action else { return };
        let name = self.trace.tables.string(id);
        let known = Action::NAMED.iter().find(|(known, _)| *known == name);
        match known {
            Some(&(_, action)) if matches!(action, Action::Snapshot | Action::Annotate | Action::UserDefined) => {
                *entry = entry.with(action);
            }
            Some(_) => return,
            None => entry.action = Name::Text(id),
        }
        // The mark's own text may be but the action's name.
        if self.trace.tables.string(text) == name {
            entry.note = None;
        }
        entry.raw.address = entry.facts.address.unwrap_or(0);
        entry.raw.size = entry.facts.size.unwrap_or(0);
    }
}

impl Entry {
    fn of_block(&mut self, block: &Block) {
        (self.raw.address, self.raw.size, self.raw.stream) = (block.address, block.requested, block.stream.0);
        // Where frees were recorded without stacks, PyTorch repeats the allocation's, and so do we.
        if self.raw.stack == StackId::NONE.0 {
            self.raw.stack = block.stack.0;
        }
    }

    /// Whether PyTorch records such events, or a snapshot brought this one along.
    fn is_of_pytorch(&self) -> bool {
        self.raw.action != Action::Unknown || matches!(self.action, Name::Text(_))
    }

    fn with(mut self, action: Action) -> Self {
        self.raw.action = action;
        self.action = Name::Word(action.name());
        self
    }
}
