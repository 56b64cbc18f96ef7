//! Converts the events of a trace to PyTorch's trace entries, device by device.
//!
//! Events unknown to PyTorch get no entry, because its viewer lists every event of the traces by its address, which
//! these events do not have. Steps, phases and marks become `external_annotations`, which no version of the viewer
//! shows. Tags, uses and samples of the device's memory are only in the recording embedded in the file.

use crate::raw::{Action, RawEvent};
use highwater_snapshots::category::Category;
use highwater_snapshots::event::EventKind;
use highwater_snapshots::ids::{BlockId, DeviceId, EventId, OpId, StackId, StringId};
use highwater_snapshots::trace::{Block, Owner, PINNED_DEVICE, Subject, Trace};
use highwater_snapshots::transition::{Named, Transition};

use super::facts::Facts;

pub(super) const HOST: DeviceId = PINNED_DEVICE;

#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    /// Action, address, size, stream and time. `stack` is a [`StackId`]; `extras` is unused.
    pub(super) raw: RawEvent,
    pub(super) action: Name,
    /// `user_metadata`, set by the program.
    pub(super) note: Option<Name>,
    /// Category of the block; `None` for events other than allocations.
    pub(super) category: Option<Category>,
    pub(super) op: OpId,
    pub(super) facts: Facts,
}

/// A name defined by the format, or one from an imported file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Name {
    /// A name defined by the format or by this program.
    Word(&'static str),
    /// A string of the trace.
    Text(StringId),
}

/// Counts of items that the format cannot represent, collected while entries are created.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LeftOut {
    /// Number of frees of blocks whose allocation was not recorded, and whose address is therefore unknown.
    pub(super) unmatched_frees: u64,
    /// Number of blocks whose frees were not recorded. A free is added at the event that shows it.
    pub(super) frees_added: u64,
}

#[derive(Clone, Debug)]
pub(super) struct Entries<'a> {
    trace: &'a Trace,
    /// Device that receives steps, phases and marks, which apply to every device.
    home: DeviceId,
}

impl<'a> Entries<'a> {
    pub(super) fn new(trace: &'a Trace) -> Self {
        let devices = trace.device_ids();
        let main = trace.main_device();
        let home = if devices.contains(&DeviceId(0)) || main == HOST { DeviceId(0) } else { main };
        Self { trace, home }
    }

    pub(super) fn home(&self) -> DeviceId {
        self.home
    }

    /// Returns the device whose trace contains the event at `row`.
    #[inline]
    pub(super) fn device(&self, row: usize) -> DeviceId {
        let device = self.trace.events.device[row];
        let concerns_all =
            || matches!(self.trace.events.kind[row], EventKind::Step | EventKind::Phase | EventKind::Mark);
        if device == DeviceId(0) && self.home != device && concerns_all() { self.home } else { device }
    }

    /// Calls `each` with the entries of the event at `row`. Most events have one entry; events without one are counted
    /// in `left_out` if they are frees of unknown blocks.
    #[inline]
    pub(super) fn each(
        &self,
        row: usize,
        left_out: &mut LeftOut,
        mut each: impl FnMut(Entry) -> highwater_snapshots::error::Result<()>,
    ) -> highwater_snapshots::error::Result<()> {
        let event = EventId(row as u32);
        if let Transition::Allocated { former: former @ (Named::Live | Named::Waiting) } = self.trace.transition(event)
            && let Some(ended) = self.trace.replaced_by(event)
        {
            left_out.frees_added += 1;
            self.missing_frees(event, ended, former == Named::Live, &mut each)?;
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

    /// Emits the missing free events of `block`, at the event that shows that the block was freed.
    fn missing_frees(
        &self,
        event: EventId,
        block: BlockId,
        was_live: bool,
        each: &mut impl FnMut(Entry) -> highwater_snapshots::error::Result<()>,
    ) -> highwater_snapshots::error::Result<()> {
        let Some(_) = block.index().filter(|row| *row < self.trace.blocks.len()) else { return Ok(()) };
        let mut entry = self.bare(event);
        entry.of_block(&self.trace.blocks.get(block));
        if was_live {
            each(entry.with(Action::FreeRequested))?;
        }
        each(entry.with(Action::FreeCompleted))
    }

    /// Returns the entry that PyTorch adds when it takes a snapshot, with the time of `event`.
    pub(super) fn snapshot(&self, event: EventId, active_bytes: u64) -> Entry {
        let mut entry = self.bare(event).with(Action::Snapshot);
        entry.raw.size = active_bytes;
        entry
    }

    /// Returns an entry with only the time set.
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
        entry.facts = Facts::of(self.trace, Owner::Event(event));
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

    /// Restores the original action of a mark that represents an action of an imported snapshot, unless that action
    /// changes blocks or segments.
    fn name_mark(&self, entry: &mut Entry, text: StringId) {
        let Some(id) = entry.facts.action else { return };
        let name = self.trace.tables.string(id);
        let known = Action::known().iter().find(|action| action.name() == name);
        match known {
            Some(&action) if matches!(action, Action::Snapshot | Action::Annotate | Action::UserDefined) => {
                *entry = entry.with(action);
            }
            Some(_) => return,
            None => entry.action = Name::Text(id),
        }
        // The mark's text may be just the action's name.
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
        // Like PyTorch, use the stack of the allocation if the free was recorded without one.
        if self.raw.stack == StackId::NONE.0 {
            self.raw.stack = block.stack.0;
        }
    }

    /// Returns whether PyTorch records events of this kind, or the event comes from an imported snapshot.
    fn is_of_pytorch(&self) -> bool {
        self.raw.action != Action::Unknown || matches!(self.action, Name::Text(_))
    }

    fn with(mut self, action: Action) -> Self {
        self.raw.action = action;
        self.action = Name::Word(action.name());
        self
    }
}
