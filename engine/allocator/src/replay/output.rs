//! Builds the replayed trace event by event, each with the recorded event that it comes from.

use std::collections::{BTreeMap, HashMap};

use highwater_recorder::snapshots::event::{Alloc, Event, Oom, Range, What};
use highwater_recorder::snapshots::trace::{Annotation, Attribute, DeviceFacts, Owner, SegmentRole, Subject};
use highwater_recorder::snapshots::{
    BlockId, EventId, OpId, Pool, ScopeId, SegmentId, StackId, StartingBlock, StartingState, StreamId, StringId, Trace,
    TraceBuilder,
};

use super::driver::Call;
use super::start::{Private, Start};
use super::{Answers, Plan};
use crate::{AllocConfig, Block};

/// The stream and pools that a range of memory serves.
#[derive(Clone, Copy, Debug)]
pub(super) struct Home {
    pub(super) stream: StreamId,
    pub(super) pool: Pool,
    pub(super) private: Private,
}

/// Builds the trace of a replay.
pub(super) struct Output<'a> {
    trace: &'a Trace,
    plan: &'a Plan<'a>,
    builder: TraceBuilder,
    source: Vec<EventId>,
    /// The segments currently reserved, by address.
    segments: HashMap<u64, Home>,
    /// The stream and pools of the pages mapped at an address.
    pages: BTreeMap<u64, Home>,
    /// The attribute name and value with which events refer to their private pool.
    private_names: HashMap<(u64, u64), (StringId, StringId)>,
    /// Bytes reserved from the device.
    pub(super) reserved: u64,
    /// The next key for a block that is not in the recording.
    next_key: u64,
}

impl<'a> Output<'a> {
    pub(super) fn new(trace: &'a Trace, plan: &'a Plan<'a>) -> Self {
        let mut builder = TraceBuilder::with_capacity(trace.events.len());
        builder.set_header(trace.header.clone());
        builder.set_device(facts(trace, plan));
        *builder.tables() = trace.tables.clone();
        *builder.trust() = trace.trust.clone();
        let source = Vec::with_capacity(trace.events.len());
        let next_key = trace.blocks.len() as u64;
        Self {
            trace,
            plan,
            builder,
            source,
            segments: HashMap::new(),
            pages: BTreeMap::new(),
            private_names: HashMap::new(),
            reserved: 0,
            next_key,
        }
    }

    /// Adds the state before the first event.
    pub(super) fn start(&mut self, start: &Start) {
        let mut state = StartingState { device: self.plan.device, ..StartingState::default() };
        for (range, role, private) in &start.segments {
            self.reserved += range.bytes;
            let home = Home { stream: range.stream, pool: range.pool, private: *private };
            if *role == SegmentRole::Mapping {
                state.mappings.push(*range);
                self.pages.insert(range.address, home);
            } else {
                state.segments.push(*range);
                self.segments.insert(range.address, home);
            }
        }
        for block in &start.blocks {
            let (row, id) = (self.trace.blocks.get(BlockId(block.name)), BlockId(block.name));
            let alloc = Alloc { requested: block.requested, allocated: block.allocated, ..row.as_alloc(id) };
            let free_requested = self.trace.was_waiting_at_start(id);
            state.blocks.push(StartingBlock { alloc, stack: row.stack, free_requested });
        }
        // Rows of segments come before those of mappings, each in the order of the state.
        let of_role = |wanted: bool| {
            let role = move |role: &SegmentRole| (*role == SegmentRole::Mapping) == wanted;
            start.segments.iter().filter(move |(_, of, _)| role(of)).map(|(.., private)| *private)
        };
        let pools: Vec<Private> = of_role(false).chain(of_role(true)).collect();
        for (row, private) in pools.into_iter().enumerate() {
            self.name_pool_of(Owner::Segment(SegmentId::from_index(row)), private);
        }
        self.builder.set_starting_state(&state);
    }

    fn push(&mut self, at: EventId, stack: StackId, what: What) {
        let time_ns = self.trace.events.time_of(at).unwrap_or(0);
        self.builder.push(&Event { time_ns, device: self.plan.device, stack, what });
        self.source.push(at);
    }

    fn stack_of(&self, at: EventId) -> StackId {
        at.index().and_then(|row| self.trace.events.stack.get(row)).copied().unwrap_or_default()
    }

    /// Returns the recorded event that the last event so far comes from.
    pub(super) fn last_source(&self) -> EventId {
        self.source.last().copied().unwrap_or(EventId(0))
    }

    /// Copies an event of the recording that does not involve the allocator.
    pub(super) fn copy(&mut self, at: EventId) {
        let row = at.0 as usize;
        let event = Event {
            time_ns: self.trace.events.time_ns[row],
            device: self.trace.events.device[row],
            stack: self.trace.events.stack[row],
            what: self.trace.what(at),
        };
        self.builder.push(&event);
        self.source.push(at);
    }

    /// Adds the event of a driver call that the allocator made for `home` while it handled event `at`.
    pub(super) fn call(&mut self, at: EventId, call: Call, home: Home) {
        let stack = self.stack_of(at);
        match call {
            Call::Reserve { address, bytes } => {
                self.segments.insert(address, home);
                self.reserved += bytes;
                self.name_pool(home.private);
                self.push(at, stack, What::SegmentAlloc(range(address, bytes, home)));
            }
            Call::Map { address, bytes } => {
                self.pages.insert(address, home);
                self.reserved += bytes;
                self.name_pool(home.private);
                self.push(at, stack, What::SegmentMap(range(address, bytes, home)));
            }
            Call::Release { address, bytes } => {
                let home = self.segments.remove(&address).unwrap_or(home);
                self.reserved = self.reserved.saturating_sub(bytes);
                self.push(at, stack, What::SegmentFree(range(address, bytes, home)));
            }
            Call::Unmap { address, bytes } => {
                let home = self.pages.range(..=address).next_back().map_or(home, |(_, home)| *home);
                self.reserved = self.reserved.saturating_sub(bytes);
                self.push(at, stack, What::SegmentUnmap(range(address, bytes, home)));
            }
            Call::Completed { block } => self.free_completed(at, block),
        }
    }

    /// Adds the allocation of the block with row `row`.
    pub(super) fn alloc(&mut self, at: EventId, row: u32, block: &Block, private: Private) {
        let recorded = self.trace.blocks.get(BlockId(row));
        let alloc = Alloc {
            address: block.address(),
            requested: block.requested(),
            allocated: block.allocated(),
            pool: block.pool(),
            ..recorded.as_alloc(BlockId(row))
        };
        if let Some(event) = recorded.alloc.index().filter(|_| !self.trace.attributes.is_empty()) {
            let attributes = self.trace.attributes_of(Owner::Event(EventId::from_index(event)));
            let owner = Owner::Event(EventId::from_index(self.source.len()));
            for attribute in attributes {
                self.builder.add_attribute(Attribute { owner, ..*attribute });
            }
        } else {
            self.name_pool(private);
        }
        self.push(at, recorded.stack, What::Alloc(alloc));
    }

    /// Adds the allocation and immediate free of a block that is not in the recording.
    pub(super) fn passing(&mut self, at: EventId, block: &Block) {
        let key = self.next_key;
        self.next_key += 1;
        let oom = self.trace.ooms.get(self.trace.events.subject[at.0 as usize] as usize);
        let alloc = Alloc {
            block: key,
            address: block.address(),
            requested: block.requested(),
            allocated: block.allocated(),
            stream: block.stream(),
            pool: block.pool(),
            category: highwater_recorder::Category::Unknown,
            op: oom.map(|oom| oom.op).unwrap_or_default(),
            scope: oom.map(|oom| oom.scope).unwrap_or_default(),
        };
        let stack = self.stack_of(at);
        self.push(at, stack, What::Alloc(alloc));
        self.push(at, stack, What::FreeRequested(key));
        self.push(at, stack, What::FreeCompleted(key));
    }

    /// Adds the failure of the request at event `at`; `requested` and `device_free` are in bytes.
    pub(super) fn oom(&mut self, at: EventId, stream: StreamId, [requested, device_free]: [u64; 2]) {
        // A recording without events has no event at its start either.
        let subject = (at.0 < self.trace.events.len() as u32).then(|| self.trace.subject(at));
        let (op, scope) = match subject {
            Some(Subject::Block(block)) => {
                let block = self.trace.blocks.get(block);
                (block.op, block.scope)
            }
            Some(Subject::Oom(row)) => (self.trace.ooms[row].op, self.trace.ooms[row].scope),
            _ => (OpId::NONE, ScopeId::NONE),
        };
        self.push(at, self.stack_of(at), What::Oom(Oom { requested, device_free, stream: Some(stream), op, scope }));
    }

    pub(super) fn free_requested(&mut self, at: EventId, row: u32) {
        let stack = self.stack_of(at);
        self.push(at, stack, What::FreeRequested(u64::from(row)));
    }

    pub(super) fn free_completed(&mut self, at: EventId, row: u32) {
        self.push(at, StackId::NONE, What::FreeCompleted(u64::from(row)));
    }

    /// Adds the private pool to the next event as an attribute.
    fn name_pool(&mut self, private: Private) {
        self.name_pool_of(Owner::Event(EventId::from_index(self.source.len())), private);
    }

    fn name_pool_of(&mut self, owner: Owner, private: Private) {
        let Some(number) = private else { return };
        let names = *self.private_names.entry(number).or_insert_with(|| {
            let strings = &mut self.builder.tables().strings;
            let first = strings.len();
            strings.push("pool_id".to_owned());
            strings.push(format!("({}, {})", number.0, number.1));
            (StringId::from_index(first), StringId::from_index(first + 1))
        });
        self.builder.add_attribute(Attribute { owner, name: names.0, value: names.1 });
    }

    /// Returns the trace, and the recorded event that each of its events comes from.
    pub(super) fn finish(mut self) -> (Trace, Vec<EventId>) {
        let place = |source: &[EventId], event: EventId| match event.index() {
            Some(_) => EventId::from_index(source.partition_point(|from| *from < event)),
            None => event,
        };
        for annotation in &self.trace.annotations {
            let (first, end) = (place(&self.source, annotation.first), place(&self.source, annotation.end));
            if first < end {
                self.builder.add_annotation(Annotation { first, end, ..*annotation });
            }
        }
        (self.builder.finish(), self.source)
    }
}

fn range(address: u64, bytes: u64, home: Home) -> Range {
    Range { address, bytes, stream: home.stream, pool: home.pool }
}

/// Replaces the settings that describe `recorded` by one that describes `config`; the others stay.
fn change_settings(settings: &mut Vec<(String, String)>, config: &AllocConfig, recorded: &AllocConfig) {
    let both = format!("{recorded},{config}");
    let keys: Vec<&str> = both.split(',').filter_map(|part| Some(part.split_once(':')?.0.trim())).collect();
    // PyTorch reports `max_split_size_mb` as `max_split_size`, and each division separately after a dot.
    let is_replaced = |name: &str| {
        let name = name.split('.').next().unwrap_or(name);
        name.to_ascii_lowercase().ends_with("alloc_conf") || keys.iter().any(|key| key.starts_with(name))
    };
    settings.retain(|(name, _)| !is_replaced(name));
    settings.insert(0, ("alloc_conf".to_owned(), config.to_string()));
}

/// Returns the facts of the device with the plan's changes.
fn facts(trace: &Trace, plan: &Plan<'_>) -> DeviceFacts {
    let mut facts = trace.device_facts(plan.device).cloned().unwrap_or_default();
    facts.device = plan.device;
    if let Answers::Modelled(capacity) = plan.answers {
        if plan.config != plan.recorded {
            change_settings(&mut facts.settings, &plan.config, &plan.recorded);
        }
        facts.capacity_bytes = capacity.unwrap_or(facts.capacity_bytes);
    }
    facts
}
