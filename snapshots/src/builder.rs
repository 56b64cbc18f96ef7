//! Builds a trace from recorded events and checks its invariants. Traces are built only by this module.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use crate::block_index::BlockIndex;
use crate::error::Problem;
use crate::event::{Alloc, Event, Range, What};
use crate::ids::{BlockId, DeviceId, EventId, SegmentId, StackId};
use crate::live_bytes::{LiveBytes, LiveBytesMeter};
use crate::stage::Outside;
use crate::sum_rule::SumRule;
use crate::tables::Tables;
use crate::trace::{
    Annotation, Attribute, DeviceFacts, DeviceUse, Header, SegmentRole, SourceText, Start, Trace, TraceParts,
};
use crate::transition::{Contradictions, Named, Transition, transition};

/// A device's active blocks and reserved segments before its first event.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct StartingState {
    /// The device to which this state belongs.
    pub device: DeviceId,
    /// Reserved segments.
    pub segments: Vec<Range>,
    /// Mapped ranges of expandable segments.
    pub mappings: Vec<Range>,
    /// Active blocks.
    pub blocks: Vec<StartingBlock>,
}

impl StartingState {
    /// Returns whether there are no blocks, segments or mappings.
    pub fn is_empty(&self) -> bool {
        self.segments.is_empty() && self.mappings.is_empty() && self.blocks.is_empty()
    }
}

/// A block that was active before the events begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct StartingBlock {
    /// The block's facts, as in an alloc event.
    pub alloc: Alloc,
    /// The stack that allocated the block; [`StackId::NONE`] if unknown.
    pub stack: StackId,
    /// Whether the block's free was requested but is not completed, because another stream still uses it.
    pub free_requested: bool,
}

/// Builds a [`Trace`]. Tables and facts may be added at any time; each device's starting state precedes its events.
#[derive(Clone, Debug, Default)]
pub struct TraceBuilder {
    trace: TraceParts,
    devices: Vec<DeviceState>,
    /// The sum of the sizes of all blocks and segments added so far, in bytes.
    bytes_seen: u64,
    impossible_sizes: u64,
    refused: u64,
    contradictions: Contradictions,
    meter: LiveBytesMeter,
}

/// The blocks and segments of a device by key and address, while events are added.
#[derive(Clone, Debug, Default)]
struct DeviceState {
    keys: BlockIndex,
    /// Reserved segments by address.
    segment_at: BTreeMap<u64, SegmentId>,
    requested: u64,
    /// The facts so far, without the ordinal.
    facts: DeviceUse,
    sums: SumRule,
}

impl DeviceState {
    fn begin(&mut self, bytes: u64) {
        self.requested += bytes;
        self.facts.peak = self.facts.peak.max(self.requested);
    }
}

/// The number of impossible sizes that are reported individually; the others are only counted.
const MAX_LISTED_SIZES: u64 = 100;

/// Upper bound of the sum of all sizes in a trace, in bytes, which ensures that no sum can overflow.
const MAX_BYTES: u64 = 1 << 62;

impl TraceBuilder {
    /// Creates a builder with capacity for `events` events.
    pub fn with_capacity(events: usize) -> Self {
        let mut builder = Self::default();
        let columns = &mut builder.trace.events;
        columns.kind.reserve(events);
        columns.device.reserve(events);
        columns.time_ns.reserve(events);
        columns.stack.reserve(events);
        columns.subject.reserve(events);
        // Most recordings have two frees for an alloc.
        builder.trace.blocks.reserve(events / 3);
        builder
    }

    /// Creates a builder with the same header, devices, tables and problems, but without events.
    pub(crate) fn without_events(&self) -> Self {
        let TraceParts { header, devices, tables, problems, .. } = &self.trace;
        let (header, devices) = (header.clone(), devices.clone());
        let (tables, problems) = (tables.clone(), problems.clone());
        Self { trace: TraceParts { header, devices, tables, problems, ..TraceParts::default() }, ..Self::default() }
    }

    pub(crate) fn header(&self) -> &Header {
        &self.trace.header
    }

    /// Sets the origin of the recording.
    pub fn set_header(&mut self, header: Header) {
        self.trace.header = header;
    }

    /// Appends facts to the header.
    pub fn add_facts(&mut self, facts: impl IntoIterator<Item = (String, String)>) {
        self.trace.header.facts.extend(facts);
    }

    pub(crate) fn add_sources(&mut self, sources: Vec<SourceText>) {
        Arc::make_mut(&mut self.trace.sources).extend(sources);
    }

    /// Adds the texts of source files from another recording.
    pub fn merge_sources(&mut self, sources: &Arc<Vec<SourceText>>) {
        self.trace.merge_sources(sources);
    }

    /// Adds or replaces the facts of a device.
    pub fn set_device(&mut self, facts: DeviceFacts) {
        self.trace.devices.retain(|known| known.device != facts.device);
        self.trace.devices.push(facts);
        self.trace.devices.sort_by_key(|known| known.device);
    }

    /// The tables, for adding rows.
    pub fn tables(&mut self) -> &mut Tables {
        &mut self.trace.tables
    }

    /// The limits of the recording's accuracy, to be updated.
    pub fn trust(&mut self) -> &mut crate::trace::Trust {
        &mut self.trace.trust
    }

    /// Adds a problem to report to the user.
    pub fn add_problem(&mut self, problem: Problem) {
        self.trace.problems.push(problem);
    }

    /// Sets the totals and the stage before the first event, for a trace that is a window of a longer recording.
    /// `births` are the allocations of the blocks in the starting states, in the same order.
    pub(crate) fn set_start(&mut self, start: Start, births: Vec<Option<Outside>>) {
        self.devices.iter_mut().for_each(|state| state.sums.begin_window(start.events));
        self.trace.start = start;
        self.trace.blocks.births = births;
    }

    /// Adds a named range of events, in any order. Annotations provide steps and phases if no events do.
    pub fn add_annotation(&mut self, annotation: Annotation) {
        self.trace.annotations.push(annotation);
    }

    /// Adds an extra fact about an event, or about a block or segment of the baseline, in any order.
    pub fn add_attribute(&mut self, attribute: Attribute) {
        self.trace.attributes.push(attribute);
    }

    /// Number of events so far.
    pub fn event_count(&self) -> usize {
        self.trace.events.len()
    }

    /// Returns the numbers of blocks and segments so far.
    pub fn row_counts(&self) -> (usize, usize) {
        (self.trace.blocks.len(), self.trace.segments.len())
    }

    /// Returns the minimum and maximum of live memory over the events since the last call.
    pub fn take_levels(&mut self) -> LiveBytes {
        self.meter.take()
    }

    /// Returns `bytes`, or returns 0 and adds a problem if the sum of all sizes would exceed the memory of any machine.
    #[inline]
    fn bounded(&mut self, bytes: u64) -> u64 {
        match self.bytes_seen.checked_add(bytes) {
            Some(sum) if sum < MAX_BYTES => {
                self.bytes_seen = sum;
                bytes
            }
            _ => {
                self.note_impossible_size(bytes);
                0
            }
        }
    }

    #[cold]
    fn note_impossible_size(&mut self, bytes: u64) {
        self.impossible_sizes += 1;
        if self.impossible_sizes <= MAX_LISTED_SIZES {
            let event = self.trace.events.len();
            let what = format!("event {event} has an impossible size of {bytes} bytes: counted as 0");
            self.add_problem(Problem::new(what));
        }
    }

    #[inline]
    fn device(&mut self, device: DeviceId) -> &mut DeviceState {
        let index = usize::from(device.0);
        if index >= self.devices.len() {
            self.devices.resize_with(index + 1, DeviceState::default);
        }
        &mut self.devices[index]
    }

    fn bounded_range(&mut self, range: Range) -> Range {
        Range { bytes: self.bounded(range.bytes), ..range }
    }

    fn bounded_alloc(&mut self, alloc: &Alloc) -> Alloc {
        let allocated = self.bounded(alloc.allocated);
        Alloc { allocated, requested: self.bounded(alloc.requested), ..*alloc }
    }

    /// Adds to a device's starting state. States of devices from [`DeviceId::END`] on are skipped and counted as lost.
    pub fn set_starting_state(&mut self, state: &StartingState) {
        let device = state.device;
        if device.0 >= DeviceId::END {
            self.refused += 1;
            return;
        }
        for &range in &state.segments {
            self.add_segment(device, range, EventId::NONE);
        }
        for &range in &state.mappings {
            self.add_mapping(device, range, EventId::NONE);
        }
        for block in &state.blocks {
            let alloc = self.bounded_alloc(&block.alloc);
            let id = self.trace.blocks.push(device, &alloc, block.stack, EventId::NONE);
            if block.free_requested {
                self.trace.blocks.free_requested[id.0 as usize] = EventId(0);
                self.trace.waiting_at_start.push(id);
            } else {
                self.begin(device, alloc.requested);
            }
            let of_device = self.device(device);
            of_device.keys.insert_starting(alloc.block, id);
            of_device.facts.has_memory = true;
            of_device.sums.begin(alloc.allocated, 0);
        }
    }

    fn add_segment(&mut self, device: DeviceId, range: Range, event: EventId) -> SegmentId {
        let range = self.bounded_range(range);
        let id = self.trace.segments.push(device, range, SegmentRole::Segment, event);
        self.device(device);
        let Self { devices, trace, .. } = self;
        let state = &mut devices[usize::from(device.0)];
        let below = state.segment_at.range(..=range.address).next_back();
        let above = state.segment_at.range((Bound::Excluded(range.address), Bound::Unbounded)).next();
        for (_, other) in below.into_iter().chain(above) {
            state.sums.compare(range, trace.segments.range[other.0 as usize]);
        }
        state.segment_at.insert(range.address, id);
        state.facts.has_memory = true;
        state.sums.reserve(range.bytes);
        id
    }

    fn add_mapping(&mut self, device: DeviceId, range: Range, event: EventId) -> SegmentId {
        let range = self.bounded_range(range);
        let state = self.device(device);
        state.facts.has_memory = true;
        state.sums.reserve(range.bytes);
        self.trace.segments.push(device, range, SegmentRole::Mapping, event)
    }

    /// Adds the next event. An event that contradicts earlier events is still added, and counted in
    /// [`Trust`](crate::trace::Trust). Events of devices from [`DeviceId::END`] on are skipped and counted as lost.
    pub fn push(&mut self, event: &Event) {
        let device = event.device;
        if device.0 >= DeviceId::END {
            self.refused += 1;
            return;
        }
        let id = EventId::from_index(self.trace.events.len());
        let (block, named) = self.named(device, &event.what);
        let done = transition(event.what.kind(), named);
        self.contradictions.count(done);
        let subject = match (event.what, done) {
            (What::Alloc(alloc), Transition::Allocated { former }) => {
                if former != Named::Unknown {
                    self.complete(device, block, id);
                    self.trace.replaced.push((id, block));
                }
                self.add_block(device, &alloc, event.stack, id).0
            }
            (What::FreeRequested(_), Transition::FreeRequested) => {
                self.end(device, block, id);
                block.0
            }
            (What::FreeCompleted(_), Transition::FreeCompleted { .. }) => {
                self.complete(device, block, id);
                block.0
            }
            (What::Used(_), Transition::Used) => {
                self.trace.blocks.last_use[block.0 as usize] = id;
                block.0
            }
            (What::Tag(_, category), Transition::Tagged { .. }) => {
                self.trace.blocks.category[block.0 as usize] = category;
                push_row(&mut self.trace.tags, (block, category))
            }
            (What::Tag(_, category), _) => push_row(&mut self.trace.tags, (BlockId::NONE, category)),
            (What::SegmentAlloc(range), _) => self.add_segment(device, range, id).0,
            (What::SegmentMap(range), _) => self.add_mapping(device, range, id).0,
            (What::SegmentFree(range), Transition::Released { is_known }) => {
                self.release(device, range, is_known, id).0
            }
            (What::SegmentUnmap(range), _) => {
                let range = self.bounded_range(range);
                self.device(device).sums.release(range.bytes, id.0 as usize + 1);
                self.trace.segments.push(device, range, SegmentRole::Unmapping, id).0
            }
            (What::Oom(oom), _) => {
                let state = self.device(device);
                (state.facts.ran_out, state.facts.has_memory) = (true, true);
                push_row(&mut self.trace.ooms, oom)
            }
            (What::DeviceUsed(bytes), _) => push_row(&mut self.trace.device_used, bytes),
            (What::Step(step), _) => step,
            (What::Phase(phase), _) => u32::from(phase as u8),
            (What::Mark(text), _) => text.0,
            _ => BlockId::NONE.0,
        };
        self.trace.uses += u64::from(matches!(event.what, What::Used(_)));
        let columns = &mut self.trace.events;
        columns.kind.push(event.what.kind());
        columns.device.push(device);
        columns.time_ns.push(event.time_ns);
        columns.stack.push(event.stack);
        columns.subject.push(subject);
    }

    /// Looks up the block to which an event refers: the last one with its key. Returns its id, `NONE` if there is no
    /// such block, and the state before the event of that block, or of the segment that the event releases.
    fn named(&self, device: DeviceId, what: &What) -> (BlockId, Named) {
        let Some(state) = self.devices.get(usize::from(device.0)) else { return (BlockId::NONE, Named::Unknown) };
        let Some(key) = what.block() else {
            let is_known = matches!(what, What::SegmentFree(range) if state.segment_at.get(&range.address)
                .is_some_and(|row| self.trace.segments.range[row.0 as usize].bytes == range.bytes));
            return (BlockId::NONE, if is_known { Named::Live } else { Named::Unknown });
        };
        let block = state.keys.get(key);
        let Some(row) = block.index() else { return (block, Named::Unknown) };
        let blocks = &self.trace.blocks;
        let named = match (blocks.free_requested[row].is_some(), blocks.free_completed[row].is_some()) {
            (_, true) => Named::Unknown,
            (true, false) => Named::Waiting,
            (false, false) => Named::Live,
        };
        (block, named)
    }

    #[inline]
    fn add_block(&mut self, device: DeviceId, alloc: &Alloc, stack: StackId, event: EventId) -> BlockId {
        let alloc = self.bounded_alloc(alloc);
        let id = self.trace.blocks.push(device, &alloc, stack, event);
        let state = self.device(device);
        state.keys.insert(alloc.block, id);
        state.facts.has_memory = true;
        state.sums.begin(alloc.allocated, event.0 as usize + 1);
        self.begin(device, alloc.requested);
        id
    }

    #[inline]
    fn begin(&mut self, device: DeviceId, bytes: u64) {
        self.meter.begin(bytes);
        self.device(device).begin(bytes);
    }

    #[inline]
    fn end(&mut self, device: DeviceId, block: BlockId, event: EventId) {
        let row = block.0 as usize;
        self.trace.blocks.free_requested[row] = event;
        let bytes = self.trace.blocks.requested[row];
        self.meter.end(bytes);
        self.device(device).requested -= bytes;
    }

    /// Removes a block from the active blocks of `device`, and from the live blocks if its free request is missing.
    #[inline]
    fn complete(&mut self, device: DeviceId, block: BlockId, event: EventId) {
        let row = block.0 as usize;
        if !self.trace.blocks.free_requested[row].is_some() {
            self.end(device, block, event);
        }
        self.trace.blocks.free_completed[row] = event;
        let bytes = self.trace.blocks.allocated[row];
        self.device(device).sums.end(bytes);
    }

    fn release(&mut self, device: DeviceId, range: Range, is_known: bool, event: EventId) -> SegmentId {
        let row = match self.device(device).segment_at.remove(&range.address) {
            Some(row) if is_known => row,
            _ => {
                let range = self.bounded_range(range);
                self.trace.segments.push(device, range, SegmentRole::Unmapping, event)
            }
        };
        self.trace.segments.free[row.0 as usize] = event;
        let bytes = self.trace.segments.range[row.0 as usize].bytes;
        self.device(device).sums.release(bytes, event.0 as usize + 1);
        row
    }

    /// Returns the finished trace.
    pub fn finish(mut self) -> Trace {
        if self.impossible_sizes > MAX_LISTED_SIZES {
            let more = self.impossible_sizes - MAX_LISTED_SIZES;
            self.add_problem(Problem::new(format!("further impossible sizes, each counted as 0: {more}")));
        }
        if self.refused > 0 {
            let (refused, end) = (self.refused, DeviceId::END);
            let what = format!("skipped events and states of devices from {end} up: {refused}");
            self.trace.trust.events_lost += self.refused;
            self.add_problem(Problem::new(what));
        }
        self.trace.trust.count_at_least([self.contradictions]);
        self.check_sums();
        let mut trace = self.trace.finish();
        trace.0.has_times = trace.header.started_unix_us > 0 || trace.events.time_ns.iter().any(|time| *time > 0);
        let facts = |device: DeviceId| self.devices.get(usize::from(device.0)).map(|state| state.facts);
        let of = |device| DeviceUse { device, ..facts(device).unwrap_or_default() };
        trace.0.device_uses = trace.device_ids().into_iter().map(of).collect();
        trace
    }

    /// Reports blocks that do not fit into the segments, unless events are known to be missing. Windows are not
    /// checked, since the recording is checked as a whole.
    fn check_sums(&mut self) {
        let devices = (0..).map(DeviceId).zip(&mut self.devices);
        self.trace.sums = devices.map(|(device, state)| (device, std::mem::take(&mut state.sums))).collect();
        if !self.trace.trust.has_all_segments() || self.trace.start.all_events.is_some() {
            return;
        }
        for (device, sums) in &self.trace.sums {
            let found = sums.problems(*device);
            // A file may contain the problems that were found when it was written.
            self.trace.problems.retain(|known| found.iter().all(|problem| problem.what != known.what));
            self.trace.problems.extend(found);
        }
    }
}

fn push_row<T>(rows: &mut Vec<T>, row: T) -> u32 {
    rows.push(row);
    u32::try_from(rows.len() - 1).expect("a table holds more than 2^32 rows")
}
