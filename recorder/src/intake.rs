//! Selects the messages that belong in the recording, and converts them into events.

use std::collections::{BTreeMap, HashMap, HashSet};

use highwater_snapshots::event::{Alloc, BlockKey, Event, What};
use highwater_snapshots::live_state::LiveState;
use highwater_snapshots::trace::{DeviceFacts, LEFT_OUT, NOTE, UNREGISTERED};
use highwater_snapshots::transition::{Named, Transition, transition};
use highwater_snapshots::units::{format_bytes, format_count};
use highwater_snapshots::{DeviceId, OpId, StackId, StartingState};

use crate::clock::Clock;
use crate::current_stage::CurrentStage;
use crate::history::History;
use crate::message::{Message, NewOp, Read};

#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(crate) facts: Vec<DeviceFacts>,
    pub(crate) states: Vec<StartingState>,
    pub(crate) ops: Vec<NewOp>,
    pub(crate) events: Vec<Event>,
}

/// The initial contents of a file that begins in the middle of a recording.
#[derive(Debug, Default)]
pub(crate) struct Opening {
    /// Operations from before the file, by process-wide id, sorted.
    pub(crate) ops: Vec<(OpId, NewOp)>,
    pub(crate) batch: Batch,
}

/// Number of preceding operations in a file that begins in the middle of a recording, besides those of live blocks.
const RECENT_OPS: u32 = 65_536;

/// Maximum number of events for which an empty batch reserves memory.
const EMPTY_BATCH_EVENTS: usize = 32_768;

impl Batch {
    fn clear(&mut self) {
        self.facts.clear();
        self.states.clear();
        self.ops.clear();
        self.events.clear();
        self.events.shrink_to(EMPTY_BATCH_EVENTS);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.facts.is_empty() && self.states.is_empty() && self.ops.is_empty() && self.events.is_empty()
    }
}

/// Forward operations that events in memory may refer to.
#[derive(Clone, Debug, Default)]
pub(crate) struct OpTable {
    /// Process-wide id of the first operation.
    pub(crate) first: u32,
    pub(crate) ops: Vec<NewOp>,
}

#[derive(Debug, Default)]
pub(crate) struct Intake {
    smallest_bytes: u64,
    /// Devices whose state was read, so that their events are recorded from then on.
    started: Vec<DeviceId>,
    pub(crate) facts: Vec<DeviceFacts>,
    /// Whether the devices that were registered when the recording began have been read.
    is_open: bool,
    /// Number of events of devices without a registered allocator.
    unregistered: BTreeMap<DeviceId, u64>,
    pub(crate) history: Option<History>,
    pub(crate) ops: OpTable,
    pub(crate) next_op: u32,
    /// The operations that live blocks or later events may refer to, for a file that begins in the middle.
    named: HashMap<OpId, NewOp>,
    most_ops: Option<usize>,
    /// The data waiting to be written to the file, if there is one.
    batch: Option<Batch>,
    /// Live state of each device, for a file that begins in the middle.
    live: Option<HashMap<DeviceId, LiveState>>,
    stage: CurrentStage,
    /// Live blocks that are left out because they are small.
    small: HashSet<(DeviceId, BlockKey)>,
    /// Blocks that are identified by their address.
    at: HashMap<(DeviceId, u64), BlockKey>,
    next_key: BlockKey,
    last_ns: u64,
    pub(crate) small_blocks: u64,
    pub(crate) events: u64,
}

impl Intake {
    pub(crate) fn new(smallest_bytes: u64, first_op: u32) -> Self {
        Self { smallest_bytes, ops: OpTable { first: first_op, ops: Vec::new() }, next_op: first_op, ..Self::default() }
    }

    /// Keeps the last `most` events in memory, or all events if `None`.
    pub(crate) fn hold(&mut self, most: Option<usize>) {
        self.history = Some(History::new(most));
        self.most_ops = most.map(|most| most.max(1024).saturating_mul(4));
    }

    /// Collects batches for a file. With `to_several`, also keeps the live state with which each further file begins.
    pub(crate) fn stream(&mut self, to_several: bool) {
        self.batch = Some(Batch::default());
        self.live = to_several.then(HashMap::new);
    }

    pub(crate) fn has_pending(&self) -> bool {
        self.batch.as_ref().is_some_and(|batch| !batch.is_empty())
    }

    pub(crate) fn pending(&self) -> usize {
        self.batch.as_ref().map_or(0, |batch| batch.events.len())
    }

    pub(crate) fn take_batch(&mut self) -> Batch {
        self.batch.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Takes a written batch back, so that the next batch can use its memory.
    pub(crate) fn return_batch(&mut self, mut written: Batch) {
        written.clear();
        if let Some(batch) = self.batch.as_mut().filter(|batch| batch.is_empty()) {
            *batch = written;
        }
    }

    pub(crate) fn stop_streaming(&mut self) {
        (self.batch, self.live) = (None, None);
    }

    /// Returns the initial contents of a file that begins now, with live blocks and segments, step and phase. Must be
    /// called when no batch is waiting.
    pub(crate) fn opening(&mut self) -> Opening {
        let mut states: Vec<StartingState> =
            self.live.iter().flatten().map(|(&device, state)| state.state(device)).collect();
        states.sort_by_key(|state| state.device);
        let mark = |event: &Event| Event { time_ns: self.last_ns, ..*event };
        let events = self.stage.events().map(mark).collect();
        let alive = states.iter().flat_map(|state| &state.blocks).map(|block| block.alloc.op);
        let alive: HashSet<OpId> = alive.collect();
        // Backward passes refer to recent operations.
        let recent = self.next_op.saturating_sub(RECENT_OPS);
        self.named.retain(|id, _| id.0 >= recent || alive.contains(id));
        let mut ops: Vec<(OpId, NewOp)> = self.named.iter().map(|(&id, &op)| (id, op)).collect();
        ops.sort_by_key(|(id, _)| *id);
        Opening { ops, batch: Batch { facts: self.facts.clone(), states, ops: Vec::new(), events } }
    }

    pub(crate) fn message(&mut self, read: &Read, clock: &Clock) {
        // Threads read the clock slightly before or after they take their sequence number.
        self.last_ns = self.last_ns.max(clock.ns(read.time));
        let event = |what| Event { time_ns: self.last_ns, device: read.device, stack: read.stack, what };
        let counts = self.started.contains(&read.device);
        match read.message {
            Message::Op(id, op) => self.begin_op(id, op),
            Message::Event(what @ (What::Step(_) | What::Phase(_) | What::Mark(_))) => self.keep(event(what)),
            _ if !counts => self.count_unregistered(read),
            Message::Event(what) => self.keep_wanted(event(what)),
            Message::Freed(key) => {
                let (requested, completed) = (event(What::FreeRequested(key)), event(What::FreeCompleted(key)));
                self.keep_wanted(requested);
                self.keep_wanted(completed);
            }
            Message::AllocAt(alloc) => self.alloc_at(event(What::Alloc(alloc)), alloc),
            Message::FreedAt(address) => {
                let first = event(What::FreeRequested(0));
                // Other blocks are from before the recording, or were left out.
                if let Some(key) = self.at.remove(&(read.device, address)) {
                    self.keep(Event { what: What::FreeRequested(key), ..first });
                    self.keep(Event { what: What::FreeCompleted(key), ..first });
                }
            }
            Message::TagAt(address, category) => {
                if let Some(&key) = self.at.get(&(read.device, address)) {
                    self.keep(event(What::Tag(key, category)));
                }
            }
        }
    }

    fn count_unregistered(&mut self, read: &Read) {
        let is_free = matches!(read.message, Message::FreedAt(_) | Message::TagAt(..));
        if is_free && !self.unregistered.contains_key(&read.device) {
            // The block is from before the recording; its messages are ignored for every device.
            return;
        }
        *self.unregistered.entry(read.device).or_default() += read.message.events();
    }

    /// Marks the end of the recording's start, during which a device's events before its state are included in that
    /// state.
    pub(crate) fn opened(&mut self) {
        self.is_open = true;
    }

    pub(crate) fn unregistered_events(&self) -> u64 {
        self.unregistered.values().sum()
    }

    /// Returns a sentence for each device without a registered allocator.
    pub(crate) fn unregistered(&self) -> impl Iterator<Item = String> {
        self.unregistered.iter().map(|(device, &events)| {
            let (events, noun) = (format_count(events), if events == 1 { "event" } else { "events" });
            format!(
                "{events} {noun} of device {} not recorded: no allocator was registered for it at that time; call \
                 api::register before it allocates, and keep the registered Arc alive",
                device.0
            )
        })
    }

    /// Returns the facts of the header that are known only at the end of the recording.
    pub(crate) fn facts_at_end(&self) -> Vec<(String, String)> {
        let fact = |name: &str, value: String| (name.to_owned(), value);
        let mut facts: Vec<(String, String)> = self.unregistered().map(|text| fact(NOTE, text)).collect();
        let unregistered = self.unregistered_events();
        facts.extend((unregistered > 0).then(|| fact(UNREGISTERED, unregistered.to_string())));
        if self.small_blocks > 0 {
            let blocks = if self.small_blocks == 1 { "block was" } else { "blocks were" };
            let (count, size) = (format_count(self.small_blocks), format_bytes(self.smallest_bytes));
            let text = format!(
                "{count} {blocks} left out, each smaller than {size}, as requested: totals do not include them"
            );
            facts.extend([fact(NOTE, text), fact(LEFT_OUT, self.small_blocks.to_string())]);
        }
        facts
    }

    fn alloc_at(&mut self, event: Event, alloc: Alloc) {
        if let Some(former) = self.at.remove(&(event.device, alloc.address)) {
            // Its free was lost, and was counted as lost then.
            self.keep(Event { what: What::FreeRequested(former), stack: StackId::NONE, ..event });
            self.keep(Event { what: What::FreeCompleted(former), stack: StackId::NONE, ..event });
        }
        if alloc.requested < self.smallest_bytes {
            self.small_blocks += 1;
            return;
        }
        let block = self.next_key;
        self.next_key += 1;
        self.at.insert((event.device, alloc.address), block);
        self.keep(Event { what: What::Alloc(Alloc { block, ..alloc }), ..event });
    }

    /// Adds operation `id`. Operations arrive in the order of their ids. Lost operations are replaced by empty rows.
    fn begin_op(&mut self, id: OpId, op: NewOp) {
        while self.next_op < id.0 {
            self.add_op(NewOp::default());
        }
        self.add_op(op);
    }

    fn add_op(&mut self, op: NewOp) {
        if self.live.is_some() {
            self.named.insert(OpId(self.next_op), op);
        }
        self.next_op += 1;
        if let Some(batch) = &mut self.batch {
            batch.ops.push(op);
        }
        if self.history.is_some() {
            self.ops.ops.push(op);
            // A ring's events refer to recent operations; a block that outlives its operation's row loses the
            // reference.
            if self.most_ops.is_some_and(|most| self.ops.ops.len() > most) {
                let gone = self.ops.ops.len() / 2;
                self.ops.ops.drain(..gone);
                self.ops.first += gone as u32;
            }
        }
    }

    /// Records a device's starting state, once. Events of the device are recorded from then on.
    pub(crate) fn start_device(&mut self, facts: DeviceFacts, mut state: StartingState) {
        if self.started.contains(&state.device) {
            return;
        }
        let device = state.device;
        state.blocks.retain(|block| !self.leaves_out(device, &What::Alloc(block.alloc)));
        if !self.is_open {
            self.unregistered.remove(&state.device);
        }
        self.started.push(state.device);
        if let Some(batch) = &mut self.batch {
            batch.facts.push(facts.clone());
        }
        self.facts.push(facts);
        if self.events > 0 {
            return self.keep_as_events(&state);
        }
        if let Some(history) = &mut self.history {
            history.begin(&state);
        }
        if let Some(live) = &mut self.live {
            live.insert(state.device, LiveState::from(&state));
        }
        if let Some(batch) = &mut self.batch {
            batch.states.push(state);
        }
    }

    /// Records the state of a device that joins after the first event as allocation events at the current time.
    fn keep_as_events(&mut self, state: &StartingState) {
        let (time_ns, device) = (self.last_ns, state.device);
        let event = |stack, what| Event { time_ns, device, stack, what };
        for &range in &state.segments {
            self.keep(event(StackId::NONE, What::SegmentAlloc(range)));
        }
        for &range in &state.mappings {
            self.keep(event(StackId::NONE, What::SegmentMap(range)));
        }
        for block in &state.blocks {
            self.keep(event(block.stack, What::Alloc(block.alloc)));
            if block.free_requested {
                self.keep(event(StackId::NONE, What::FreeRequested(block.alloc.block)));
            }
        }
    }

    fn keep_wanted(&mut self, event: Event) {
        if self.smallest_bytes > 0 && self.leaves_out(event.device, &event.what) {
            return;
        }
        self.keep(event);
    }

    /// Whether an event concerns a block that is left out, which it then begins or ends.
    fn leaves_out(&mut self, device: DeviceId, what: &What) -> bool {
        let Some(block) = what.block().map(|key| (device, key)) else { return false };
        let named = if self.small.contains(&block) { Named::Live } else { Named::Unknown };
        match (transition(what.kind(), named), *what) {
            (Transition::Allocated { .. }, What::Alloc(alloc)) if alloc.requested < self.smallest_bytes => {
                self.small_blocks += 1;
                self.small.insert(block);
                true
            }
            (Transition::Allocated { .. } | Transition::Refused(_), _) => false,
            (Transition::FreeCompleted { .. }, _) => self.small.remove(&block),
            _ => true,
        }
    }

    fn keep(&mut self, event: Event) {
        self.events += 1;
        self.stage.follow(&event);
        if let Some(live) = &mut self.live
            && !CurrentStage::concerns(&event)
        {
            live.entry(event.device).or_default().follow(&event);
        }
        if let Some(history) = &mut self.history {
            history.push(&event);
        }
        if let Some(batch) = &mut self.batch {
            batch.events.push(event);
        }
    }
}
