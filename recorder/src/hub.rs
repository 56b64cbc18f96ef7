//! Hub: the one global of the workspace: the running recording, the registered allocators, the step and phase.
//!
//! Locks are taken in this order: an allocator's own, then the hub's. The hub never calls an allocator.

use std::collections::{BTreeSet, HashSet};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use highwater_snapshots::event::{Event, What};
use highwater_snapshots::trace::DeviceFacts;
use highwater_snapshots::{DeviceId, OpId, Phase, StackId, StartingState, StringId};

use crate::clock::Clock;
use crate::context;
use crate::export::NewOp;
use crate::history::History;
use crate::level::{self, Level};
use crate::options::{HistoryOptions, WhenBehind};
use crate::source::Source;

/// A batch is handed to the writer when it holds so many events …
const BATCH_EVENTS: usize = 16_384;
/// … or at the latest after so long: what a killed program loses.
const BATCH_AGE: Duration = Duration::from_millis(50);
/// Events that are held for dumps while a file takes them all.
const DUMPED_EVENTS: usize = 1_000_000;
/// Events that may wait for the writer, about 300 MB of them.
const MOST_PENDING: usize = 1 << 22;

pub(crate) struct Hub {
    pub(crate) active: Option<Active>,
    sources: Vec<Weak<dyn Source>>,
    /// Device numbers in use.
    pub(crate) claimed: BTreeSet<DeviceId>,
    next_op: u32,
    step: Option<u32>,
    phase: Phase,
}

static HUB: Mutex<Hub> = Mutex::new(Hub {
    active: None,
    sources: Vec::new(),
    claimed: BTreeSet::new(),
    next_op: 0,
    step: None,
    phase: Phase::Setup,
});
/// The writer waits here for work.
static WORK: Condvar = Condvar::new();
/// The program waits here for the writer.
static SPACE: Condvar = Condvar::new();

/// How far a recording is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The states of the known allocators are being read, or the first wanted step has not begun.
    Waiting,
    /// Everything is kept.
    Open,
    /// The last wanted step is over.
    Closed,
}

/// The running recording.
pub(crate) struct Active {
    pub(crate) stage: Stage,
    pub(crate) options: HistoryOptions,
    pub(crate) clock: Clock,
    pub(crate) first_op: u32,
    pub(crate) facts: Vec<DeviceFacts>,
    /// Devices whose state was read: their events count from then on.
    pub(crate) started: Vec<DeviceId>,
    /// What is held in memory.
    pub(crate) history: Option<History>,
    pub(crate) ops: Vec<NewOp>,
    /// What waits for the writer.
    pending: Option<Batch>,
    /// Events that were given to the writer, or wait for it.
    queued: u64,
    /// Events that the writer has put into the file.
    written: u64,
    /// The writer has given up; what follows is lost to the file.
    has_failed: bool,
    /// The process-wide number of the first of `ops`: older ones have left with the ring's events.
    pub(crate) first_held_op: u32,
    /// Blocks left out because they are small, while they live.
    small: HashSet<(DeviceId, u64)>,
    pub(crate) small_blocks: u64,
    pub(crate) events: u64,
    pub(crate) lost: u64,
}

/// What the writer takes at a time.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(crate) facts: Vec<DeviceFacts>,
    pub(crate) states: Vec<StartingState>,
    pub(crate) ops: Vec<NewOp>,
    pub(crate) events: Vec<Event>,
    pub(crate) is_last: bool,
}

pub(crate) fn lock() -> MutexGuard<'static, Hub> {
    HUB.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Hub {
    /// Keeps an allocator, to be asked for its state when a recording begins.
    pub(crate) fn add_source(&mut self, source: Weak<dyn Source>) {
        self.sources.retain(|known| known.strong_count() > 0);
        self.sources.push(source);
    }

    /// The allocators that still exist.
    pub(crate) fn sources(&self) -> Vec<std::sync::Arc<dyn Source>> {
        self.sources.iter().filter_map(Weak::upgrade).collect()
    }

    /// Makes `options` the running recording, and gives the number of its first operation. The caller has checked that
    /// none runs.
    pub(crate) fn begin(&mut self, options: HistoryOptions, clock: Clock) -> u32 {
        let streams = options.sink.path().is_some() && options.ring_events.is_none() && options.level >= Level::Events;
        let is_for_dumps = options.dump_on_oom.is_some();
        let holds = options.sink.is_in_memory() || options.ring_events.is_some() || options.level < Level::Events;
        // What is held for dumps alone is bounded, whatever the file takes.
        let most = options.ring_events.or((is_for_dumps && !holds).then_some(DUMPED_EVENTS));
        let active = Active {
            stage: Stage::Waiting,
            first_op: self.next_op,
            clock,
            facts: Vec::new(),
            started: Vec::new(),
            history: (holds || is_for_dumps).then(|| History::new(most)),
            ops: Vec::new(),
            pending: streams.then(Batch::default),
            queued: 0,
            written: 0,
            has_failed: false,
            first_held_op: self.next_op,
            small: HashSet::new(),
            small_blocks: 0,
            events: 0,
            lost: 0,
            options,
        };
        self.active = Some(active);
        self.next_op
    }

    /// Takes events of the whole program from now on, beginning with the step and phase that it is in.
    pub(crate) fn open(&mut self) {
        let (step, phase) = (self.step, self.phase);
        let Some(active) = self.active.as_mut().filter(|active| active.stage == Stage::Waiting) else { return };
        active.stage = Stage::Open;
        if let Some(step) = step {
            active.keep(event_of_program(&active.clock, What::Step(step)));
        }
        if phase != Phase::Setup {
            active.keep(event_of_program(&active.clock, What::Phase(phase)));
        }
    }

    /// Whether the running step is one that the recording wants.
    pub(crate) fn is_in_wanted_step(&self) -> bool {
        let steps = self.active.as_ref().and_then(|active| active.options.steps.as_ref());
        steps.zip(self.step).is_some_and(|(steps, step)| steps.contains(&step))
    }

    /// Begins a forward operation.
    pub(crate) fn begin_op(&mut self, op: NewOp) -> OpId {
        let Some(active) = self.active.as_mut() else { return OpId::NONE };
        // After 2^32 operations there are no numbers left: later ones have none.
        let Some(next) = self.next_op.checked_add(1).filter(|next| *next < u32::MAX) else { return OpId::NONE };
        let id = OpId(self.next_op);
        self.next_op = next;
        if let Some(history) = &active.history {
            active.ops.push(op);
            // A ring's events name recent operations; a block that outlived its own forgets which one that was.
            if history.most_events().is_some_and(|most| active.ops.len() > 4 * most.max(1024)) {
                let gone = active.ops.len() / 2;
                active.ops.drain(..gone);
                active.first_held_op += gone as u32;
            }
        }
        if let Some(pending) = &mut active.pending {
            pending.ops.push(op);
        }
        id
    }

    /// Enters a step, or leaves all of them, whether or not anything records.
    pub(crate) fn set_step(&mut self, step: Option<u32>) {
        self.step = step;
        self.phase = if step.is_some() { Phase::Other } else { Phase::Setup };
        self.push_of_program(step.map_or(What::Phase(Phase::Setup), What::Step));
    }

    /// Enters a phase, whether or not anything records; gives the former one.
    pub(crate) fn set_phase(&mut self, phase: Phase) -> Phase {
        let former = std::mem::replace(&mut self.phase, phase);
        self.push_of_program(What::Phase(phase));
        former
    }

    /// Records an event that concerns the whole program.
    pub(crate) fn push_of_program(&mut self, what: What) {
        if level::records_events()
            && let Some(active) = self.active.as_mut().filter(|active| active.stage == Stage::Open)
        {
            let event = event_of_program(&active.clock, what);
            active.keep(event);
        }
    }
}

fn event_of_program(clock: &Clock, what: What) -> Event {
    Event { time_ns: clock.now_ns(), device: DeviceId(0), stack: StackId::NONE, what }
}

impl Active {
    /// Takes a device's state: from now on its events count.
    pub(crate) fn start_device(&mut self, facts: DeviceFacts, mut state: StartingState) {
        let smallest = self.options.smallest_bytes;
        let (small, left_out) = (&mut self.small, &mut self.small_blocks);
        state.blocks.retain(|block| {
            let is_kept = block.alloc.requested >= smallest;
            if !is_kept {
                small.insert((state.device, block.alloc.block));
                *left_out += 1;
            }
            is_kept
        });
        self.started.push(state.device);
        if let Some(pending) = &mut self.pending {
            pending.facts.push(facts.clone());
        }
        self.facts.push(facts);
        if self.events > 0 {
            return self.keep_as_events(&state);
        }
        if let Some(history) = &mut self.history {
            history.begin(&state);
        }
        if let Some(pending) = &mut self.pending {
            pending.states.push(state);
        }
    }

    /// A device that joins when there are events already: what it holds appears now.
    fn keep_as_events(&mut self, state: &StartingState) {
        let (time_ns, device) = (self.clock.now_ns(), state.device);
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

    /// Whether an event is left out because it is of a small block.
    fn leaves_out(&mut self, device: DeviceId, what: &What) -> bool {
        if self.options.smallest_bytes == 0 {
            return false;
        }
        match *what {
            What::Alloc(alloc) if alloc.requested < self.options.smallest_bytes => {
                self.small_blocks += 1;
                self.small.insert((device, alloc.block));
                true
            }
            What::FreeRequested(key) | What::Tag(key, _) | What::Used(key) => self.small.contains(&(device, key)),
            What::FreeCompleted(key) => self.small.remove(&(device, key)),
            _ => false,
        }
    }

    /// Keeps an event wherever it is wanted.
    fn keep(&mut self, event: Event) {
        self.events += 1;
        if let Some(history) = &mut self.history {
            history.push(event);
        }
        if self.has_failed {
            self.lost += 1;
        }
        if let Some(pending) = &mut self.pending {
            if pending.events.len() >= MOST_PENDING {
                self.lost += 1;
                return;
            }
            self.queued += 1;
            pending.events.push(event);
            if pending.events.len() == BATCH_EVENTS {
                WORK.notify_one();
            }
        }
    }
}

/// Records an event of `device`, with the running thread's context.
pub(crate) fn push(device: DeviceId, stack: StackId, what: What) {
    let mut hub = lock();
    let waits = |hub: &mut Hub| {
        let active = hub.active.as_ref();
        active.is_some_and(|active| {
            active.options.when_behind == WhenBehind::Wait
                && active.pending.as_ref().is_some_and(|pending| pending.events.len() >= 4 * BATCH_EVENTS)
        })
    };
    if waits(&mut hub) {
        hub = SPACE.wait_while(hub, |hub| waits(hub)).unwrap_or_else(PoisonError::into_inner);
    }
    let Some(active) = hub.active.as_mut().filter(|active| active.stage != Stage::Closed) else { return };
    if !active.started.contains(&device) || active.leaves_out(device, &what) {
        return;
    }
    let event = Event { time_ns: active.clock.now_ns(), device, stack, what };
    active.keep(event);
}

/// Waits until everything recorded so far is in the file, or will never be. Not under an allocator's lock.
pub(crate) fn flush() {
    let hub = lock();
    let Some(wanted) = hub.active.as_ref().map(|active| (active.first_op, active.queued)) else { return };
    WORK.notify_one();
    let is_behind = |hub: &mut Hub| {
        let waits = |active: &Active| active.first_op == wanted.0 && !active.has_failed && active.written < wanted.1;
        hub.active.as_ref().is_some_and(waits)
    };
    drop(SPACE.wait_while(hub, is_behind));
}

/// Says that the recording ends: no more events are taken, and the writer gets its last batch.
pub(crate) fn close() {
    if let Some(active) = lock().active.as_mut() {
        active.stage = Stage::Closed;
        if let Some(pending) = active.pending.as_mut() {
            pending.is_last = true;
        }
    }
    WORK.notify_one();
}

/// Takes the recording away: it is over.
pub(crate) fn end() -> Option<Active> {
    let active = lock().active.take();
    SPACE.notify_all();
    active
}

/// The writer's next batch: waits until there is enough, or for a while.
pub(crate) fn next_batch() -> Batch {
    let has_work = |hub: &mut Hub| match hub.active.as_ref().and_then(|active| active.pending.as_ref()) {
        Some(pending) => pending.is_last || pending.events.len() >= BATCH_EVENTS,
        None => true,
    };
    let waiting = WORK.wait_timeout_while(lock(), BATCH_AGE, |hub| !has_work(hub));
    let (mut hub, _) = waiting.unwrap_or_else(PoisonError::into_inner);
    let Some(active) = hub.active.as_mut() else { return Batch { is_last: true, ..Batch::default() } };
    active.pending.as_mut().map_or_else(|| Batch { is_last: true, ..Batch::default() }, std::mem::take)
}

/// The writer has written a batch of `events` events; or it has failed, and takes no more.
pub(crate) fn batch_done(events: usize, has_failed: bool) {
    if let Some(active) = lock().active.as_mut() {
        if has_failed {
            let waiting = active.pending.take().map_or(0, |pending| pending.events.len());
            active.lost += (events + waiting) as u64;
            active.has_failed = true;
        } else {
            active.written += events as u64;
        }
    }
    SPACE.notify_all();
}

/// Interns a name for an event.
pub(crate) fn name(text: &str) -> StringId {
    crate::names::with(|names| names.string(text))
}

/// Begins an operation in the running thread's scope.
pub(crate) fn begin_op(name: StringId, stack: StackId) -> OpId {
    let scope = context::current().scope;
    lock().begin_op(NewOp { name, scope, stack })
}

/// Gives a device's state to the running recording, unless it has it. Not under an allocator's lock.
pub(crate) fn start_device(source: &dyn Source) {
    let facts = source.facts();
    source.freeze(&mut |state| {
        if let Some(active) = lock().active.as_mut()
            && !active.started.contains(&state.device)
        {
            active.start_device(facts.clone(), state);
        }
    });
}

/// Has every allocator say what is in use on its device, if anything is recorded. Not under any lock.
pub(crate) fn sample() {
    if level::records_events() {
        let sources = lock().sources();
        sources.iter().for_each(|source| source.sample());
    }
}
