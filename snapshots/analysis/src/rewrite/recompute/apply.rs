//! Applies the effects of recomputation to a recording.

use std::collections::{BTreeMap, HashMap, HashSet};

use highwater_snapshots::alloc_rules::AllocRules;
use highwater_snapshots::event::{Alloc, Event, EventKind, What};
use highwater_snapshots::trace::{Annotation, Attribute, Owner, SegmentRole, Subject};
use highwater_snapshots::{
    BlockId, Category, DeviceId, EventId, StackId, StartingBlock, StartingState, Trace, TraceBuilder,
};

use super::effect::{Effect, Repeat};

/// A change at a position between two events.
#[derive(Clone, Copy, Debug)]
enum Action {
    Free(BlockId),
    Repeat(Repeat),
    Add(Addition),
}

/// A block to add to a recording, which is never freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addition {
    /// The event before which it is allocated.
    pub before: EventId,
    /// The block from which the stream, module, operation and call stack are copied.
    pub like: BlockId,
    /// The requested bytes.
    pub requested: u64,
    /// The category of the additional block.
    pub category: Category,
}

/// A recording with some modules recomputed.
#[derive(Clone, Debug)]
pub struct Recomputed {
    /// The changed recording of one device. Recomputed allocations are separate blocks. Segments and addresses are
    /// unchanged; replay the recording to compute the ones that would result.
    pub trace: Trace,
    /// For each event, the recorded event that it copies, or before which it is inserted.
    pub source: Vec<EventId>,
    /// The event in `trace` for each recorded event, and one more entry for the end.
    pub places: Vec<EventId>,
}

impl Recomputed {
    /// Returns the event in [`Self::trace`] of the recorded `event`.
    pub fn event_of(&self, event: EventId) -> EventId {
        event.index().and_then(|row| self.places.get(row)).copied().unwrap_or_default()
    }
}

/// Returns the recording of `device` in `trace` with `effects` applied.
pub fn apply(trace: &Trace, device: DeviceId, effects: &[Effect]) -> Recomputed {
    let changes = Changes::of(trace, effects);
    Rebuilt::new(trace, device, &changes).finish()
}

/// Returns the recording of `device` in `trace` with additional blocks, which have no addresses; replay it to compute
/// them.
pub fn with_additions(trace: &Trace, device: DeviceId, additions: &[Addition]) -> Recomputed {
    let mut actions: Vec<(u32, Action)> = additions.iter().map(|one| (one.before.0, Action::Add(*one))).collect();
    actions.sort_by_key(|(position, _)| *position);
    Rebuilt::new(trace, device, &Changes { actions, moved: HashSet::new() }).finish()
}

/// The changes of all effects.
#[derive(Debug, Default)]
struct Changes {
    /// The changes in order, each with the index of the event that follows it.
    actions: Vec<(u32, Action)>,
    /// Blocks whose recorded frees are ignored, because the blocks are freed earlier or later.
    moved: HashSet<BlockId>,
}

impl Changes {
    fn of(trace: &Trace, effects: &[Effect]) -> Self {
        let freed = |block: &BlockId| trace.blocks.free_requested[block.0 as usize].0;
        let early = effects.iter().flat_map(|effect| &effect.ends);
        let mut frees: BTreeMap<BlockId, u32> = early.map(|(block, event)| (*block, event.0 + 1)).collect();
        let mut changes = Self::default();
        for effect in effects {
            let Some(at) = effect.at.index().map(|at| at as u32) else { continue };
            changes.actions.extend(effect.repeats.iter().map(|repeat| (at, Action::Repeat(*repeat))));
            let ends = effect.repeat_ends.iter();
            changes.actions.extend(ends.map(|(block, event)| (event.0 + 1, Action::Repeat(Repeat::Free(*block)))));
            let until = if effect.kept_until.is_some() { effect.kept_until.0 + 1 } else { at };
            for block in &effect.kept {
                let free = frees.entry(*block).or_insert_with(|| freed(block));
                *free = until.max(*free);
            }
        }
        for (block, free) in frees {
            if free != freed(&block) {
                changes.moved.insert(block);
                changes.actions.push((free, Action::Free(block)));
            }
        }
        // Where both are at one position, a recomputation precedes the frees of its inputs.
        changes.actions.sort_by_key(|(position, _)| *position);
        changes
    }
}

/// The changed recording under construction.
struct Rebuilt<'a> {
    trace: &'a Trace,
    device: DeviceId,
    changes: &'a Changes,
    builder: TraceBuilder,
    places: Vec<EventId>,
    source: Vec<EventId>,
    /// The keys of recomputed blocks, by the original block.
    repeated: HashMap<BlockId, u64>,
    next_key: u64,
}

impl<'a> Rebuilt<'a> {
    fn new(trace: &'a Trace, device: DeviceId, changes: &'a Changes) -> Self {
        let mut builder = TraceBuilder::with_capacity(trace.events.len() + changes.actions.len());
        builder.set_header(trace.header.clone());
        trace.devices.iter().for_each(|facts| builder.set_device(facts.clone()));
        *builder.tables() = trace.tables.clone();
        *builder.trust() = trace.trust.clone();
        let next_key = trace.blocks.len() as u64;
        let places = Vec::with_capacity(trace.events.len() + 1);
        let mut rebuilt =
            Self { trace, device, changes, builder, places, source: Vec::new(), repeated: HashMap::new(), next_key };
        rebuilt.start();
        rebuilt
    }

    fn start(&mut self) {
        let trace = self.trace;
        let mut state = StartingState { device: self.device, ..StartingState::default() };
        let mut attributes = Vec::new();
        for wanted in [SegmentRole::Segment, SegmentRole::Mapping] {
            for id in trace.segments.ids() {
                let segment = trace.segments.get(id);
                if segment.device != self.device || segment.alloc.is_some() || segment.role != wanted {
                    continue;
                }
                let row = state.segments.len() + state.mappings.len();
                let owner = Owner::Segment(highwater_snapshots::SegmentId::from_index(row));
                let facts = trace.attributes_of(Owner::Segment(id)).iter();
                attributes.extend(facts.map(|fact| Attribute { owner, ..*fact }));
                let ranges = if wanted == SegmentRole::Segment { &mut state.segments } else { &mut state.mappings };
                ranges.push(segment.range);
            }
        }
        for id in trace.blocks.ids() {
            let block = trace.blocks.get(id);
            if block.alloc.is_some() {
                break;
            }
            if block.device == self.device {
                let free_requested = trace.was_waiting_at_start(id);
                state.blocks.push(StartingBlock { alloc: block.as_alloc(id), stack: block.stack, free_requested });
            }
        }
        self.builder.set_starting_state(&state);
        attributes.into_iter().for_each(|attribute| self.builder.add_attribute(attribute));
    }

    fn finish(mut self) -> Recomputed {
        let mut actions = self.changes.actions.iter().peekable();
        for row in 0..self.trace.events.len() {
            while let Some((_, action)) = actions.next_if(|(position, _)| *position as usize <= row) {
                self.act(row, *action);
            }
            self.places.push(EventId::from_index(self.builder.event_count()));
            let event = EventId::from_index(row);
            if self.trace.events.device[row] == self.device || self.trace.is_everywhere(event) {
                self.copy(event);
            }
        }
        for (_, action) in actions {
            self.act(self.trace.events.len(), *action);
        }
        self.places.push(EventId::from_index(self.builder.event_count()));
        for annotation in &self.trace.annotations {
            let place = |event: EventId| self.places.get(event.0 as usize).or(self.places.last()).copied();
            if let (Some(first), Some(end)) = (place(annotation.first), place(annotation.end))
                && first < end
            {
                self.builder.add_annotation(Annotation { first, end, ..*annotation });
            }
        }
        let Self { builder, source, places, .. } = self;
        Recomputed { trace: builder.finish(), source, places }
    }

    fn copy(&mut self, event: EventId) {
        let row = event.0 as usize;
        let kind = self.trace.events.kind[row];
        let mut what = self.trace.what(event);
        if let Subject::Block(block) = self.trace.subject(event)
            && matches!(kind, EventKind::FreeRequested | EventKind::FreeCompleted | EventKind::Used)
        {
            // A block that is repeated is freed, and used in backward, in the repeated form.
            match (self.repeated.get(&block), self.changes.moved.contains(&block), kind) {
                (Some(key), _, EventKind::FreeRequested) => what = What::FreeRequested(*key),
                (Some(key), _, EventKind::FreeCompleted) => what = What::FreeCompleted(*key),
                (Some(key), ..) => what = What::Used(*key),
                (None, true, _) if kind != EventKind::Used => return,
                _ => {}
            }
        }
        // Its tag may follow its free, and it has its last category from the start.
        if let Subject::Tag(block, _) = self.trace.subject(event)
            && (self.changes.moved.contains(&block) || self.repeated.contains_key(&block))
        {
            return;
        }
        if kind == EventKind::Alloc {
            let owner = Owner::Event(EventId::from_index(self.builder.event_count()));
            for attribute in self.trace.attributes_of(Owner::Event(event)) {
                self.builder.add_attribute(Attribute { owner, ..*attribute });
            }
        }
        self.push(row, self.trace.events.stack[row], what);
    }

    fn act(&mut self, row: usize, action: Action) {
        match action {
            Action::Free(block) => self.free(row, u64::from(block.0)),
            Action::Repeat(Repeat::Free(block)) => {
                if let Some(key) = self.repeated.remove(&block) {
                    self.free(row, key);
                }
            }
            Action::Add(Addition { like, requested, category, .. }) => {
                let original = self.trace.blocks.get(like);
                let block = self.new_key();
                let rules = AllocRules::of(self.trace.device_facts(self.device));
                let allocated = rules.round(requested);
                let pool = rules.pool(allocated);
                let alloc =
                    Alloc { block, address: 0, requested, allocated, pool, category, ..original.as_alloc(like) };
                self.push(row, original.stack, What::Alloc(alloc));
            }
            Action::Repeat(Repeat::Alloc(block)) => {
                let original = self.trace.blocks.get(block);
                let key = self.new_key();
                self.repeated.insert(block, key);
                let category = match original.category {
                    Category::Activation => Category::Activation,
                    _ => Category::Temporary,
                };
                let alloc = Alloc { block: key, category, ..original.as_alloc(block) };
                self.push(row, original.stack, What::Alloc(alloc));
            }
        }
    }

    fn new_key(&mut self) -> u64 {
        self.next_key += 1;
        self.next_key - 1
    }

    fn free(&mut self, row: usize, key: u64) {
        self.push(row, StackId::NONE, What::FreeRequested(key));
        self.push(row, StackId::NONE, What::FreeCompleted(key));
    }

    fn push(&mut self, row: usize, stack: StackId, what: What) {
        let times = &self.trace.events.time_ns;
        let time_ns = times.get(row).or(times.last()).copied().unwrap_or(0);
        let device = match what {
            What::Step(_) | What::Phase(_) | What::Mark(_) => {
                self.trace.events.device.get(row).copied().unwrap_or(self.device)
            }
            _ => self.device,
        };
        self.builder.push(&Event { time_ns, device, stack, what });
        self.source.push(EventId::from_index(row.min(self.trace.events.len().saturating_sub(1))));
    }
}
