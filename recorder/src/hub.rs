//! The global state of the process: the running recording, the registered allocators, the program's progress.
//!
//! Locks are taken in a fixed order, first an allocator's own, then the hub's: under the hub's lock, no allocator is
//! called that takes a lock. Events of allocators bypass the hub, since each thread sends them through its own queue
//! (`sender`).

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};

use highwater_snapshots::event::What;
use highwater_snapshots::{DeviceId, OpId, Phase, StackId, StringId};

use crate::context;
use crate::control::{self, Control};
use crate::history_copy::HistoryCopy;
use crate::level::{self, Level, Wanted};
use crate::message::{Message, NewOp};
use crate::options::HistoryOptions;
use crate::progress::{Change, Progress};
use crate::reentrancy;
use crate::sender;
use crate::source::Source;

pub(crate) struct Hub {
    session: Option<Session>,
    sources: Vec<Weak<dyn Source>>,
    pub(crate) claimed: BTreeSet<DeviceId>,
    progress: Progress,
    sessions: u64,
    after_own: Option<fn()>,
}

static HUB: Mutex<Hub> = Mutex::new(Hub {
    session: None,
    sources: Vec::new(),
    claimed: BTreeSet::new(),
    progress: Progress::START,
    sessions: 0,
    after_own: None,
});

// Copies of what the progress awaits, so that callers with nothing to report need not take the lock.
const START: &Progress = &Progress::START;
static AWAITS_FORWARD: AtomicBool = AtomicBool::new(START.awaits_forward());
static AWAITS_OPERATION: AtomicBool = AtomicBool::new(START.awaits_operation());
static AWAITS_ALLOCATION: AtomicBool = AtomicBool::new(START.awaits_allocation());

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// No event is recorded yet, because the first selected step has not begun or because of the level.
    Waiting,
    /// The states of the registered allocators are being read.
    Starting,
    /// All events are recorded, including those of the whole program.
    Open,
    /// The last selected step is over.
    Closed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// The program called the recorder's functions.
    Program,
    /// Requested by an environment variable or a switch. Such a recording ends when the program starts its own.
    Outside,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SessionId(u64);

pub(crate) struct Session {
    pub(crate) id: SessionId,
    pub(crate) request: Request,
    pub(crate) stage: Stage,
    pub(crate) options: Arc<HistoryOptions>,
    pid: u32,
    /// Whether the end was requested. Later requests would not be read any more.
    is_ending: bool,
}

pub(crate) fn lock() -> MutexGuard<'static, Hub> {
    HUB.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Locks the hub, unless any thread, including this one, has already locked it.
pub(crate) fn try_lock() -> Option<MutexGuard<'static, Hub>> {
    match HUB.try_lock() {
        Ok(hub) => Some(hub),
        Err(TryLockError::Poisoned(hub)) => Some(hub.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

impl Hub {
    pub(crate) fn add_source(&mut self, source: Weak<dyn Source>) {
        self.sources.retain(|known| known.strong_count() > 0);
        self.sources.push(source);
    }

    pub(crate) fn sources(&self) -> Vec<Arc<dyn Source>> {
        self.sources.iter().filter_map(Weak::upgrade).collect()
    }

    /// Returns the running recording, if it belongs to this process and not to a parent that has forked.
    pub(crate) fn session(&mut self) -> Option<&mut Session> {
        self.session.as_mut().filter(|session| session.pid == std::process::id())
    }

    /// Makes a recording with these options the running one. The caller must have checked that none is running.
    pub(crate) fn begin(&mut self, options: Arc<HistoryOptions>, request: Request) -> SessionId {
        let pid = std::process::id();
        self.advance(|progress| {
            progress.begin_recording();
            ((), Change::default())
        });
        self.sessions += 1;
        let id = SessionId(self.sessions);
        self.session = Some(Session { id, request, stage: Stage::Waiting, options, pid, is_ending: false });
        id
    }

    /// Registers `then` to be called whenever a recording that the program itself started has ended.
    pub(crate) fn call_after_own(&mut self, then: fn()) {
        self.after_own = Some(then);
    }

    /// Turns events on and returns the allocators whose states must be read. `None` if events must stay off.
    pub(crate) fn turn_on(&mut self) -> Option<Vec<Arc<dyn Source>>> {
        let session = self.session().filter(|session| session.stage == Stage::Waiting && !session.is_ending)?;
        let wanted = session.options.wanted();
        if wanted.level < Level::Events {
            return None;
        }
        session.stage = Stage::Starting;
        level::set(wanted);
        Some(self.sources())
    }

    /// Turns events off if `step`, which is about to begin, is not selected, or is `None`.
    fn turn_off_after_steps(&mut self, step: Option<u32>) {
        let Some(session) = self.session().filter(|session| session.stage == Stage::Open) else { return };
        let Some(steps) = session.options.steps.clone() else { return };
        if step.is_none_or(|step| !steps.contains(&step)) {
            session.stage = Stage::Closed;
            level::set(Wanted::default());
        }
    }

    /// Starts recording events of the whole program, beginning with the current step and phase.
    pub(crate) fn open(&mut self) {
        let (step, phase) = (self.progress.step(), self.progress.phase());
        let Some(session) = self.session().filter(|session| session.stage == Stage::Starting) else { return };
        session.stage = Stage::Open;
        control::put(Control::Opened);
        if let Some(step) = step {
            send_program_event(What::Step(step));
        }
        if phase != Phase::Setup {
            send_program_event(What::Phase(phase));
        }
    }

    /// False outside steps, and if the recording's options select no steps.
    pub(crate) fn is_in_wanted_step(&mut self) -> bool {
        let step = self.progress.step();
        let steps = self.session().and_then(|session| session.options.steps.clone());
        steps.zip(step).is_some_and(|(steps, step)| steps.contains(&step))
    }

    /// Changes the progress, even if nothing is recorded, and returns the result of `change`. Records the change. Ends
    /// a recording of selected steps after the last of them.
    pub(crate) fn advance<R>(&mut self, change: impl FnOnce(&mut Progress) -> (R, Change)) -> (R, Change) {
        let (given, change) = change(&mut self.progress);
        AWAITS_FORWARD.store(self.progress.awaits_forward(), Ordering::Relaxed);
        AWAITS_OPERATION.store(self.progress.awaits_operation(), Ordering::Relaxed);
        AWAITS_ALLOCATION.store(self.progress.awaits_allocation(), Ordering::Relaxed);
        if let Some(step) = change.step {
            self.turn_off_after_steps(step);
        }
        change.events().for_each(|what| self.push_of_program(what));
        (given, change)
    }

    pub(crate) fn is_in_marked_phase(&self) -> bool {
        self.progress.is_guarded()
    }

    /// Records an event that concerns the whole program.
    pub(crate) fn push_of_program(&mut self, what: What) {
        let is_open = self.session().is_some_and(|session| session.stage == Stage::Open);
        if is_open && level::records_events() {
            send_program_event(what);
        }
    }
}

#[inline]
pub(crate) fn awaits_forward() -> bool {
    AWAITS_FORWARD.load(Ordering::Relaxed)
}

#[inline]
pub(crate) fn awaits_operation() -> bool {
    AWAITS_OPERATION.load(Ordering::Relaxed)
}

#[inline]
pub(crate) fn awaits_allocation() -> bool {
    AWAITS_ALLOCATION.load(Ordering::Relaxed)
}

fn send_program_event(what: What) {
    sender::send(DeviceId(0), StackId::NONE, &Message::Event(what));
}

/// Copies the events that the running recording keeps in memory. Returns `None` if it keeps none.
pub(crate) fn copy() -> Option<HistoryCopy> {
    ask(Control::Copy)?
}

pub(crate) fn call_after_own() {
    let then = lock().after_own;
    if let Some(then) = then {
        then();
    }
}

/// Ends a recording, if it is the running one. Waits until all messages are read, so that another recording may begin.
pub(crate) fn end(id: SessionId) {
    let (answer, wait) = channel();
    {
        let mut hub = lock();
        let Some(session) = hub.session().filter(|session| session.id == id && !session.is_ending) else { return };
        session.is_ending = true;
        level::set(Wanted::default());
        control::put(Control::End(answer));
    }
    // If the collector is gone, there is nothing to wait for.
    let _: Result<(), RecvError> = wait.recv();
    lock().session = None;
}

fn ask<T>(wish: impl FnOnce(Sender<T>) -> Control) -> Option<T> {
    let (answer, wait) = channel();
    {
        // Under the hub's lock, so that the request comes before the recording's end.
        let mut hub = lock();
        hub.session().filter(|session| !session.is_ending)?;
        control::put(wish(answer));
    }
    wait.recv().ok()
}

pub(crate) fn name(text: &str) -> StringId {
    crate::names::string(text)
}

pub(crate) fn begin_op(name: StringId, stack: StackId) -> OpId {
    sender::send_op(NewOp { name, scope: context::current().scope, stack })
}

/// Sends a device's state to the running recording. Must not be called while an allocator is locked.
pub(crate) fn start_device(source: &dyn Source) {
    let _own = reentrancy::own_memory();
    let facts = source.facts();
    source.freeze(&mut |state| control::put(Control::Device(facts.clone(), state)));
}

/// Lets every allocator report the memory in use on its device, if events are recorded. Unless it `is_due`, an
/// allocator may skip it. Must not be called under any lock.
pub(crate) fn sample(is_due: bool) {
    if level::records_events() {
        let sources = lock().sources();
        sources.iter().for_each(|source| source.sample(is_due));
    }
}
