//! Creates the events of a replay, either one by one or as a trace, for which the recorded event that caused each is
//! stored.

use std::collections::{BTreeMap, HashMap};

use highwater_recorder::snapshots::event::{Alloc, Event, Oom, Range, What};
use highwater_recorder::snapshots::trace::{Annotation, Attribute, DeviceFacts, Owner, SegmentRole};
use highwater_recorder::snapshots::{
    BlockId, DeviceId, EventId, Pool, SegmentId, StackId, StartingBlock, StartingState, StreamId, StringId, Trace,
    TraceBuilder,
};

use super::driver::Call;
use super::recorded::{At, Request};
use super::start::{Private, Start};
use super::{DeviceModel, Plan};
use crate::{AllocConfig, Block};

/// The stream and pools that a range of memory serves.
#[derive(Clone, Copy, Debug)]
pub(super) struct PoolAndStream {
    pub(super) stream: StreamId,
    pub(super) pool: Pool,
    pub(super) private: Private,
}

pub(super) enum Sink {
    /// Builds a trace. For each of its events, stores the recorded event that caused it.
    Trace { builder: Box<TraceBuilder>, source: Vec<EventId> },
    /// Stores the events until they are taken.
    Events(Vec<Event>),
}

pub(super) struct Output<'a> {
    trace: &'a Trace,
    plan: &'a Plan<'a>,
    sink: Sink,
    /// The recorded keys of the blocks of `trace`, by row. If empty, the rows are the keys.
    keys: &'a [u64],
    /// The recorded event that caused the last event.
    pub(super) last_source: At,
    /// The segments currently reserved, by address.
    segments: HashMap<u64, PoolAndStream>,
    /// The pool and stream of each range of mapped pages, by address.
    pages: BTreeMap<u64, PoolAndStream>,
    /// The attribute name and value of each private pool.
    private_names: HashMap<(u64, u64), (StringId, StringId)>,
    /// Bytes reserved from the device.
    pub(super) reserved: u64,
    /// The next key for a block that is not in the recording.
    next_key: u64,
}

impl<'a> Output<'a> {
    pub(super) fn trace(trace: &'a Trace, plan: &'a Plan<'a>) -> Self {
        let mut builder = TraceBuilder::with_capacity(trace.events.len());
        builder.set_header(trace.header.clone());
        builder.set_device(facts(trace, plan));
        *builder.tables() = trace.tables.clone();
        *builder.trust() = trace.trust.clone();
        let sink = Sink::Trace { builder: Box::new(builder), source: Vec::with_capacity(trace.events.len()) };
        Self { next_key: trace.blocks.len() as u64, ..Self::new(trace, plan, sink) }
    }

    /// Returns an output that stores the events until they are taken.
    pub(super) fn events((trace, keys): (&'a Trace, &'a [u64]), plan: &'a Plan<'a>) -> Self {
        Self { keys, ..Self::new(trace, plan, Sink::Events(Vec::new())) }
    }

    /// The created events that have not been taken; `None` if a trace is built.
    pub(super) fn made(&mut self) -> Option<&mut Vec<Event>> {
        match &mut self.sink {
            Sink::Trace { .. } => None,
            Sink::Events(events) => Some(events),
        }
    }

    pub(super) fn device_facts(&self) -> DeviceFacts {
        facts(self.trace, self.plan)
    }

    /// The key that the recording has for a block of the trace.
    pub(super) fn key(&self, row: u32) -> u64 {
        self.keys.get(row as usize).copied().unwrap_or(u64::from(row))
    }

    fn new(trace: &'a Trace, plan: &'a Plan<'a>, sink: Sink) -> Self {
        Self {
            trace,
            plan,
            sink,
            keys: &[],
            last_source: At::default(),
            segments: HashMap::new(),
            pages: BTreeMap::new(),
            private_names: HashMap::new(),
            reserved: 0,
            // The keys in a recording count from 0, so these never collide with them.
            next_key: 1 << 63,
        }
    }

    /// Adds the state before the first event. Returns the state unless a trace is built.
    pub(super) fn start(&mut self, start: &Start) -> Option<StartingState> {
        let mut state = StartingState { device: self.plan.device, ..StartingState::default() };
        for (range, role, private) in &start.segments {
            self.reserved += range.bytes;
            let home = PoolAndStream { stream: range.stream, pool: range.pool, private: *private };
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
            let (key, requested, allocated) = (self.key(block.name), block.requested, block.allocated);
            let alloc = Alloc { block: key, requested, allocated, ..row.as_alloc(id) };
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
        match &mut self.sink {
            Sink::Trace { builder, .. } => {
                builder.set_starting_state(&state);
                None
            }
            Sink::Events(_) => Some(state),
        }
    }

    fn push(&mut self, at: At, stack: StackId, what: What) {
        self.take(at, &Event { time_ns: at.time_ns, device: self.plan.device, stack, what });
    }

    fn take(&mut self, at: At, event: &Event) {
        self.last_source = at;
        match &mut self.sink {
            Sink::Trace { builder, source } => {
                builder.push(event);
                source.push(EventId::from_index(at.number as usize));
            }
            Sink::Events(events) => events.push(*event),
        }
    }

    /// Copies a recorded event of `device` that does not involve the allocator.
    pub(super) fn copy(&mut self, at: At, device: DeviceId, what: What) {
        self.take(at, &Event { time_ns: at.time_ns, device, stack: at.stack, what });
    }

    /// Adds the event of a driver call that the allocator made for `home` during event `at`.
    pub(super) fn call(&mut self, at: At, call: Call, home: PoolAndStream) {
        let stack = at.stack;
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

    /// Adds the allocation of a block, which is `recorded` in the recording, with its stack.
    pub(super) fn alloc(&mut self, at: At, (recorded, stack): (&Alloc, StackId), block: &Block, private: Private) {
        let alloc = Alloc {
            address: block.address(),
            requested: block.requested(),
            allocated: block.allocated(),
            pool: block.pool(),
            ..*recorded
        };
        if self.trace.attributes.is_empty() || !self.copy_attributes(recorded) {
            self.name_pool(private);
        }
        self.push(at, stack, What::Alloc(alloc));
    }

    /// Copies the attributes of the event that allocates a block. Returns `false` if the block has no such event.
    fn copy_attributes(&mut self, recorded: &Alloc) -> bool {
        let row = self.trace.blocks.alloc.get(recorded.block as usize);
        let Sink::Trace { builder, source } = &mut self.sink else { return false };
        let Some(event) = row.copied().filter(|event| event.is_some()) else { return false };
        let owner = Owner::Event(EventId::from_index(source.len()));
        for attribute in self.trace.attributes_of(Owner::Event(event)) {
            builder.add_attribute(Attribute { owner, ..*attribute });
        }
        true
    }

    /// Adds the allocation and immediate free of a block that is not in the recording, for `request`.
    pub(super) fn passing(&mut self, request: &Request, block: &Block) {
        let key = self.next_key;
        self.next_key += 1;
        let alloc = Alloc {
            block: key,
            address: block.address(),
            requested: block.requested(),
            allocated: block.allocated(),
            stream: block.stream(),
            pool: block.pool(),
            category: highwater_recorder::Category::Unknown,
            op: request.origin.0,
            scope: request.origin.1,
        };
        let (at, stack) = (request.event, request.event.stack);
        self.push(at, stack, What::Alloc(alloc));
        self.push(at, stack, What::FreeRequested(key));
        self.push(at, stack, What::FreeCompleted(key));
    }

    /// Adds the failure of `request`; `requested` and `device_free` are in bytes.
    pub(super) fn oom(&mut self, request: &Request, [requested, device_free]: [u64; 2]) {
        let ((op, scope), at) = (request.origin, request.event);
        let stream = Some(request.stream);
        self.push(at, at.stack, What::Oom(Oom { requested, device_free, stream, op, scope }));
    }

    pub(super) fn free_requested(&mut self, at: At, block: u64) {
        self.push(at, at.stack, What::FreeRequested(block));
    }

    pub(super) fn free_completed(&mut self, at: At, block: u64) {
        self.push(at, StackId::NONE, What::FreeCompleted(block));
    }

    /// Adds the private pool to the next event as an attribute.
    fn name_pool(&mut self, private: Private) {
        if let (Sink::Trace { source, .. }, Some(_)) = (&self.sink, private) {
            self.name_pool_of(Owner::Event(EventId::from_index(source.len())), private);
        }
    }

    fn name_pool_of(&mut self, owner: Owner, private: Private) {
        let (Sink::Trace { builder, .. }, Some(number)) = (&mut self.sink, private) else { return };
        let names = *self.private_names.entry(number).or_insert_with(|| {
            let strings = &mut builder.tables().strings;
            let first = strings.len();
            strings.push("pool_id".to_owned());
            strings.push(format!("({}, {})", number.0, number.1));
            (StringId::from_index(first), StringId::from_index(first + 1))
        });
        builder.add_attribute(Attribute { owner, name: names.0, value: names.1 });
    }

    /// Returns the trace (empty if events were stored instead), and the recorded event that caused each of its events.
    pub(super) fn finish(self) -> (Trace, Vec<EventId>) {
        let Sink::Trace { mut builder, source } = self.sink else { return Default::default() };
        let place = |event: EventId| match event.index() {
            Some(_) => EventId::from_index(source.partition_point(|from| *from < event)),
            None => event,
        };
        for annotation in &self.trace.annotations {
            let (first, end) = (place(annotation.first), place(annotation.end));
            if first < end {
                builder.add_annotation(Annotation { first, end, ..*annotation });
            }
        }
        (builder.finish(), source)
    }
}

fn range(address: u64, bytes: u64, home: PoolAndStream) -> Range {
    Range { address, bytes, stream: home.stream, pool: home.pool }
}

/// Replaces the settings that `recorded` or `config` contain by one setting with the text of `config`, and keeps the
/// others.
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
    if let DeviceModel::Modelled(capacity) = plan.answers {
        if plan.config != plan.recorded {
            change_settings(&mut facts.settings, &plan.config, &plan.recorded);
        }
        facts.capacity_bytes = capacity.unwrap_or(facts.capacity_bytes);
    }
    facts
}
