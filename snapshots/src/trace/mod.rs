//! A recording, or a window of one, in memory. A trace is immutable once built, and all analysis reads it.

mod columns;
mod allocator;
mod annotations;
mod blocks;
mod device_use;
mod events;
mod facts;
mod segments;
mod shapes;
mod sources;
mod start;
mod step_names;
mod spans;
mod parts;
mod texts;

pub use allocator::{Allocator, DRIVER_CALLS};
pub use annotations::{Annotation, Attribute, Owner};
pub use blocks::{Block, Blocks};
pub use device_use::DeviceUse;
pub(crate) use device_use::covered_devices;
pub use events::Events;
pub use facts::{
    DeviceFacts, EXCERPT, HEAP_DEVICE, HOLDERS, Header, LEFT_OUT, NOTE, PINNED_DEVICE, PINNED_DRIVER, SIMULATION,
    Trust, UNREGISTERED,
};
pub use parts::TraceParts;
pub use segments::{Segment, SegmentRole, Segments};
pub use shapes::SHAPE;
pub use sources::SourceText;
pub use spans::{Span, Spans};
pub use start::{DeviceStart, Start};
pub use step_names::{TAGGED_PHASE, TAGGED_STEP};

use std::ops::Deref;

use crate::event::{EventKind, What};
use crate::ids::{BlockId, DeviceId, EventId, OpId, SegmentId, StringId};
use crate::stage::Stage;
use crate::sum_rule::SumRule;
use crate::transition::{Named, Transition, transition};
use crate::{Category, Phase};

/// A recording: tables, events, and the blocks and segments to which the events refer. All of it can be read, none of it
/// changed; [`edited`](Self::edited) makes another recording from it.
///
/// ```compile_fail,E0594
/// # use highwater_snapshots::Trace;
/// let mut trace = Trace::default();
/// trace.uses = 1;
/// ```
#[derive(Clone, Debug, Default)]
pub struct Trace(pub(crate) TraceParts);

impl Deref for Trace {
    type Target = TraceParts;

    #[inline]
    fn deref(&self) -> &TraceParts {
        &self.0
    }
}

/// An event with its subject looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The block to which an alloc, free-requested, free-completed or use event refers.
    Block(BlockId),
    /// A segment or mapping.
    Segment(SegmentId),
    /// A block and its category from this event on.
    Tag(BlockId, Category),
    /// A failed request, a row of [`TraceParts::ooms`].
    Oom(usize),
    /// Bytes in use on the device.
    DeviceUsed(u64),
    /// The step that begins.
    Step(u32),
    /// The phase that begins.
    Phase(Phase),
    /// The text of a mark.
    Mark(StringId),
    /// A free, tag or use whose block is unknown.
    Unmatched,
}

impl Trace {
    /// Returns the recording changed by `edit`; its steps and phases follow from the changed events and annotations.
    #[must_use]
    pub fn edited(mut self, edit: impl FnOnce(&mut TraceParts)) -> Self {
        edit(&mut self.0);
        self.0.finish()
    }

    /// Returns the subject of event `id`.
    ///
    /// # Panics
    /// Panics if there is no such event.
    pub fn subject(&self, id: EventId) -> Subject {
        let index = id.index().expect("no event has this id");
        let subject = self.events.subject[index];
        match self.events.kind[index] {
            EventKind::Alloc | EventKind::FreeRequested | EventKind::FreeCompleted | EventKind::Used => {
                match BlockId(subject) {
                    BlockId::NONE => Subject::Unmatched,
                    block => Subject::Block(block),
                }
            }
            EventKind::SegmentAlloc | EventKind::SegmentFree | EventKind::SegmentMap | EventKind::SegmentUnmap => {
                Subject::Segment(SegmentId(subject))
            }
            EventKind::Tag => match self.tags.get(subject as usize) {
                Some(&(block, category)) => Subject::Tag(block, category),
                None => Subject::Unmatched,
            },
            EventKind::Oom => Subject::Oom(subject as usize),
            EventKind::DeviceUsed => Subject::DeviceUsed(self.device_used[subject as usize]),
            EventKind::Step => Subject::Step(subject),
            EventKind::Phase => Subject::Phase(Phase::from_code(subject as u8).unwrap_or(Phase::Other)),
            EventKind::Mark => Subject::Mark(StringId(subject)),
        }
    }

    /// The effect of event `id` on the memory of its device.
    ///
    /// # Panics
    /// Panics if there is no such event.
    // Walks over all events spend their time here.
    #[inline(always)]
    pub fn transition(&self, id: EventId) -> Transition {
        let index = id.index().expect("no event has this id");
        let (kind, subject) = (self.events.kind[index], self.events.subject[index]);
        let named = match kind {
            EventKind::Alloc => self.replaced_by(id).map_or(Named::Unknown, |former| self.named_at(former, id)),
            // A request or use of a block that is not live has no subject.
            EventKind::FreeRequested | EventKind::Used if BlockId(subject).is_some() => Named::Live,
            EventKind::FreeRequested | EventKind::Used => Named::Unknown,
            EventKind::FreeCompleted => self.named_at(BlockId(subject), id),
            EventKind::Tag => self.tags.get(subject as usize).map_or(Named::Unknown, |tag| self.named_at(tag.0, id)),
            EventKind::SegmentFree if self.segments.role[subject as usize] == SegmentRole::Unmapping => Named::Unknown,
            _ => Named::Live,
        };
        transition(kind, named)
    }

    /// Returns the block that event `id`, an allocation, shows to be free, because the event reuses the block's key;
    /// `None` if it reuses no key of a block whose free is missing.
    #[inline]
    pub fn replaced_by(&self, id: EventId) -> Option<BlockId> {
        if self.replaced.is_empty() {
            return None;
        }
        let found = self.replaced.binary_search_by_key(&id, |(event, _)| *event).ok()?;
        Some(self.replaced[found].1)
    }

    /// Returns the state before event `id` of `block`, to which the event refers.
    #[inline]
    fn named_at(&self, block: BlockId, id: EventId) -> Named {
        let Some(row) = block.index() else { return Named::Unknown };
        if self.blocks.free_requested[row] < id || self.was_waiting_at_start(block) {
            Named::Waiting
        } else {
            Named::Live
        }
    }

    /// Returns the index of event `id` in the whole recording. Differs from `id` if this trace is a window.
    pub fn number(&self, id: EventId) -> u64 {
        self.start.events + u64::from(id.0)
    }

    /// Returns the index in the whole recording of the event that allocated block `id`; `None` for a block from before
    /// the recording.
    pub fn alloc_number(&self, id: BlockId) -> Option<u64> {
        let row = id.0 as usize;
        let alloc = self.blocks.alloc[row];
        let birth = || self.blocks.births.get(row).copied().flatten().map(|birth| birth.event);
        if alloc.is_some() { Some(self.number(alloc)) } else { birth() }
    }

    /// Returns the id of a block in the whole recording.
    pub fn block_number(&self, id: BlockId) -> BlockId {
        self.start.blocks.get(id.0 as usize).copied().unwrap_or(id)
    }

    /// Returns the id of an operation in the whole recording.
    pub fn op_number(&self, id: OpId) -> OpId {
        self.start.ops.get(id.0 as usize).copied().unwrap_or(id)
    }

    /// Returns the events of the failed requests, in order, each with its device.
    pub fn failed_requests(&self) -> impl DoubleEndedIterator<Item = (EventId, DeviceId)> {
        // Without failed requests, the events need not be searched.
        let searched = if self.ooms.is_empty() { 0 } else { self.events.len() };
        let failed = (0..searched).filter(|row| self.events.kind[*row] == EventKind::Oom);
        failed.map(|row| (EventId::from_index(row), self.events.device[row]))
    }

    /// The events of the failed requests on `device`, in order.
    pub fn failed_requests_on(&self, device: DeviceId) -> impl DoubleEndedIterator<Item = EventId> {
        self.failed_requests().filter(move |(_, at)| *at == device).map(|(event, _)| event)
    }

    /// Returns whether the recording has memory but no events, and only shows the state of its devices at one time.
    pub fn is_state(&self) -> bool {
        self.event_count() == 0 && !(self.blocks.is_empty() && self.segments.is_empty())
    }

    /// Returns the number of events of the whole recording, even if this trace is a window.
    pub fn event_count(&self) -> u64 {
        self.start.all_events.unwrap_or(self.events.len() as u64)
    }

    /// The step and phase of event `id`; `None` past the end.
    pub fn stage_at(&self, id: EventId) -> Option<Stage> {
        let span = self.spans.at(id)?;
        let start = &self.start;
        let is_older = span.first == EventId(0) && (span.step, span.phase) == (start.stage.step, start.stage.phase);
        let since = if is_older { start.stage.since } else { start.events + u64::from(span.first.0) };
        Some(Stage { step: span.step, phase: span.phase, since })
    }

    /// Returns the step and phase in which `block` was allocated; `None` if it was allocated before the recording.
    pub fn birth_stage(&self, block: &Block) -> Option<Stage> {
        if block.is_baseline() { block.birth.map(|birth| birth.stage) } else { self.stage_at(block.alloc) }
    }

    /// Returns the step and phase in which the program freed `block`; `None` if the block is live at the end.
    pub fn death_stage(&self, block: &Block) -> Option<Stage> {
        if block.free_requested.is_some() {
            self.stage_at(block.free_requested)
        } else {
            block.death.map(|death| death.stage)
        }
    }

    /// Returns the result of the sum rule on each device, which reports blocks that do not fit into the segments, and
    /// segments that overlap. Not meaningful if [events are missing](Trust::has_all_segments).
    pub fn sums(&self) -> &[(DeviceId, SumRule)] {
        &self.sums
    }

    /// Returns the first row of the block table that is not also in the previous window; 0 for the first window.
    pub fn first_new_row(&self) -> usize {
        if self.start.events > 0 { self.blocks.alloc.partition_point(|alloc| !alloc.is_some()) } else { 0 }
    }

    /// Whether the free of baseline block `id` was requested before recording began.
    pub fn was_waiting_at_start(&self, id: BlockId) -> bool {
        !self.waiting_at_start.is_empty() && self.waiting_at_start.binary_search(&id).is_ok()
    }

    /// Whether the recording has use events. If not, no block has a last use.
    pub fn records_uses(&self) -> bool {
        self.uses > 0
    }

    /// Returns whether event `id` concerns all devices. True for steps and phases, and for marks on device 0 by this
    /// project's recorder. Imported marks belong to their device.
    pub fn is_everywhere(&self, id: EventId) -> bool {
        let row = id.0 as usize;
        match self.events.kind.get(row) {
            Some(EventKind::Step | EventKind::Phase) => true,
            Some(EventKind::Mark) => {
                self.events.device[row] == DeviceId(0) && self.header.recorder.starts_with("highwater")
            }
            _ => false,
        }
    }

    /// Returns whether steps or phases were guessed from stacks, and are therefore derived from guessed annotations.
    pub fn phases_are_guessed(&self) -> bool {
        self.spans.are_guessed()
    }

    /// Whether nothing was lost, inferred or guessed, and every device had a registered allocator.
    pub fn is_complete(&self) -> bool {
        self.trust.is_complete() && !self.phases_are_guessed() && self.header.unregistered_events() == 0
    }

    /// Returns whether part of the file could not be read, because it is truncated, still being written, or damaged.
    pub fn is_partial(&self) -> bool {
        self.trust.unfinished || self.problems.iter().any(|problem| problem.offset.is_some())
    }

    /// Whether the file was read in full except for the index at its end, which is missing or damaged.
    pub fn lacks_index_only(&self) -> bool {
        let mut unread = self.problems.iter().filter(|problem| problem.offset.is_some()).peekable();
        !self.trust.unfinished && unread.peek().is_some() && unread.all(|problem| problem.is_index_only)
    }

    /// Returns whether a truncated or damaged file has no readable events, so that the run cannot be analysed.
    pub fn is_unreadable(&self) -> bool {
        let is_empty = self.blocks.is_empty() && !self.problems.is_empty();
        self.event_count() == 0 && (self.is_partial() || self.trust.events_lost > 0 || is_empty)
    }

    /// Describes each limit of accuracy in a sentence.
    pub fn trust_sentences(&self) -> Vec<String> {
        let mut sentences = self.trust.limits();
        sentences.extend(self.routine_sentences());
        sentences
    }

    /// Returns the limits that apply to every recording of this kind, such as guessed categories, to be shown as
    /// footnotes. The limits to warn about are [`Trust::limits`].
    pub fn routine_sentences(&self) -> Vec<String> {
        let mut sentences = self.trust.routine();
        if self.phases_are_guessed() {
            sentences.push("phases are guessed from stacks".to_owned());
        }
        sentences
    }

    /// Returns the ordinals of all devices in device facts, blocks, segments, failed requests or samples, in order.
    pub fn device_ids(&self) -> Vec<DeviceId> {
        let mut is_named = vec![false; usize::from(u16::MAX) + 1];
        let of_start = self.start.devices.iter().map(|start| &start.device);
        let of_facts = self.devices.iter().map(|facts| &facts.device).chain(of_start);
        for device in of_facts.chain(&self.blocks.device).chain(&self.segments.device) {
            is_named[usize::from(device.0)] = true;
        }
        if !self.ooms.is_empty() || !self.device_used.is_empty() {
            for (kind, device) in self.events.kind.iter().zip(&self.events.device) {
                is_named[usize::from(device.0)] |= matches!(kind, EventKind::Oom | EventKind::DeviceUsed);
            }
        }
        (0..=u16::MAX).filter(|number| is_named[usize::from(*number)]).map(DeviceId).collect()
    }

    /// Returns whether annotations named `name` denote a step or a phase.
    pub fn names_step_or_phase(&self, name: StringId) -> bool {
        step_names::Meaning::of(self.tables.string(name)) != step_names::Meaning::default()
    }

    /// Returns the phase of annotations named `name`; `None` if the name is not that of a phase.
    pub fn phase_named(&self, name: StringId) -> Option<Phase> {
        step_names::Meaning::of(self.tables.string(name)).phase
    }

    /// Returns whether an annotation named `name` was derived from allocation tags, and therefore only repeats steps
    /// and phases.
    pub fn is_tag(&self, name: StringId) -> bool {
        let name = self.tables.string(name);
        name.starts_with(TAGGED_STEP) || name.starts_with(TAGGED_PHASE)
    }

    /// Returns the facts about a device, if the recording contains any.
    pub fn device_facts(&self, device: DeviceId) -> Option<&DeviceFacts> {
        self.devices.iter().find(|facts| facts.device == device)
    }

    /// Returns the default device: the device that ran out of memory, otherwise the device with the highest peak of
    /// requested bytes. If several devices ran out of memory, returns the one with the highest peak. Returns host
    /// memory only if no GPU has any memory.
    pub fn main_device(&self) -> DeviceId {
        DeviceUse::main(&self.device_uses, |device| self.is_host_memory(device)).unwrap_or_default().device
    }

    /// Returns the devices that a check covers: the GPUs with memory; host memory if no GPU has memory; all GPUs if
    /// neither has any. Never empty.
    pub fn covered_devices(&self) -> Vec<DeviceId> {
        covered_devices(&self.device_uses, |device| self.is_host_memory(device))
    }

    /// Whether the recording has a block, a segment or a failed request on `device`.
    pub fn has_memory(&self, device: DeviceId) -> bool {
        self.device_uses.iter().any(|one| one.device == device && one.has_memory)
    }

    /// Returns whether the recording has times. If not, all times are 0 and must be ignored.
    pub fn has_times(&self) -> bool {
        self.has_times
    }

    /// Returns the time of event `id` in nanoseconds since the recording's origin; `None` if there is no event or time.
    pub fn time_of(&self, id: EventId) -> Option<u64> {
        self.events.time_of(id).filter(|_| self.has_times)
    }

    /// Whether `device` is host memory rather than a GPU.
    pub fn is_host_memory(&self, device: DeviceId) -> bool {
        self.device_facts(device).is_some_and(|facts| facts.driver == PINNED_DRIVER)
    }

    /// Returns the event as it was recorded, except that the key of a block is its id. Unknown blocks have the key
    /// `u64::MAX`.
    pub fn what(&self, id: EventId) -> What {
        let index = id.index().expect("no event has this id");
        let kind = self.events.kind[index];
        let key = |block: BlockId| block.index().map_or(u64::MAX, |index| index as u64);
        let of_block = || key(BlockId(self.events.subject[index]));
        match (self.subject(id), kind) {
            (Subject::Block(block), EventKind::Alloc) => What::Alloc(self.blocks.get(block).as_alloc(block)),
            (Subject::Unmatched, EventKind::Tag) => What::Tag(u64::MAX, Category::Unknown),
            (Subject::Block(_) | Subject::Unmatched, EventKind::FreeRequested) => What::FreeRequested(of_block()),
            (Subject::Block(_) | Subject::Unmatched, EventKind::Used) => What::Used(of_block()),
            (Subject::Block(_) | Subject::Unmatched, _) => What::FreeCompleted(of_block()),
            (Subject::Segment(segment), kind) => {
                let range = self.segments.get(segment).range;
                match kind {
                    EventKind::SegmentAlloc => What::SegmentAlloc(range),
                    EventKind::SegmentFree => What::SegmentFree(range),
                    EventKind::SegmentMap => What::SegmentMap(range),
                    _ => What::SegmentUnmap(range),
                }
            }
            (Subject::Tag(block, category), _) => What::Tag(key(block), category),
            (Subject::Oom(row), _) => What::Oom(self.ooms[row]),
            (Subject::DeviceUsed(bytes), _) => What::DeviceUsed(bytes),
            (Subject::Step(step), _) => What::Step(step),
            (Subject::Phase(phase), _) => What::Phase(phase),
            (Subject::Mark(text), _) => What::Mark(text),
        }
    }
}
