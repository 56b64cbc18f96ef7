//! Running and finished recordings.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError, Weak};

use highwater_snapshots::Trace;
use highwater_snapshots::rotation::numbered;

use crate::clock::Clock;
use crate::collector::{self, Collected, Handle};
use crate::error::{Error, Result};
use crate::exit;
use crate::header;
use crate::history_copy::write_file;
use crate::hub::{self, Request, SessionId};
use crate::level::Level;
use crate::naming::{self, Rank};
use crate::options::HistoryOptions;
use crate::progress::{Change, Progress};
use crate::reentrancy;
use crate::warn::warn;
use crate::{file, flush, signals};

/// Event and block counts of a recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Events, including lost and unregistered ones.
    pub events: u64,
    /// Events lost because the queues or a ring were full, or because the file could not be written.
    pub events_lost: u64,
    /// Events that were not recorded because no allocator was registered for their device.
    pub events_unregistered: u64,
    /// Blocks omitted because they are smaller than [`HistoryOptions::smallest_bytes`].
    pub small_blocks: u64,
}

/// The result of a recording, with its trace or file, and its losses.
#[derive(Debug)]
pub struct Finished {
    /// The recording, if the sink includes memory.
    pub trace: Option<Trace>,
    /// Path of the file; `None` if the sink has none, or if nothing could be written.
    pub file: Option<PathBuf>,
    /// Event and block counts.
    pub counts: Counts,
    /// The reason that the recording is incomplete, such as a full disk. The data written to the file before can be
    /// opened.
    pub problem: Option<Error>,
}

/// A running recording. Dropping it also finishes it, but discards errors, so [`finish`](Self::finish) is preferable.
/// The recording is also finished when the program ends by returning from `main` or by calling `exit`.
#[must_use = "the recording ends when the guard is dropped"]
#[derive(Debug)]
pub struct Recording {
    collector: Arc<Collecting>,
}

/// The collector of a recording, until a caller waits for its end.
#[derive(Debug)]
struct Collecting {
    session: SessionId,
    handle: Mutex<Option<Handle>>,
}

static UNFINISHED: Mutex<Vec<Weak<Collecting>>> = Mutex::new(Vec::new());

/// Finishes the recordings that are left when the program ends. Errors were reported by the collector.
fn finish_all() {
    let unfinished = std::mem::take(&mut *UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner));
    for collecting in unfinished.iter().filter_map(Weak::upgrade) {
        drop(collecting.finish());
    }
}

impl Collecting {
    fn lock(&self) -> MutexGuard<'_, Option<Handle>> {
        self.handle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the recording, unless this is a forked child.
    fn stop(&self) {
        let is_ours = self.lock().as_ref().is_some_and(Handle::is_of_this_process);
        if is_ours {
            stop(self.session);
        }
    }

    /// Waits until the file is complete. Returns `None` if another caller has already taken the result. Concurrent
    /// callers wait equally long.
    fn wait(&self) -> Option<Result<Finished>> {
        let mut handle = self.lock();
        handle.take().map(wait)
    }

    fn finish(&self) -> Option<Result<Finished>> {
        self.stop();
        self.wait()
    }
}

impl Recording {
    /// Starts a recording. If the program starts it, a recording requested from outside ends first, and leaves its
    /// dumps to the new one.
    pub(crate) fn begin(mut options: HistoryOptions, request: Request) -> Result<Self> {
        let _own = reentrancy::own_memory();
        options.check()?;
        let path = path_of(&options);
        if request == Request::Program {
            take_over(&mut options, path.as_deref());
        }
        let clock = Clock::start();
        let (is_deferred, is_streamed) = (options.steps.is_some(), options.streams());
        let header = header::of_process(&options, &clock);
        let options = Arc::new(options);
        let (session, handle) = {
            let mut hub = hub::lock();
            if hub.session().is_some() {
                return Err(Error::AlreadyRecording);
            }
            let handle = collector::start(Arc::clone(&options), path, header, clock)?;
            (hub.begin(options, request), handle)
        };
        crate::fork::stop_in_children();
        if is_streamed {
            signals::flush_before_signals();
        }
        let collector = Arc::new(Collecting { session, handle: Mutex::new(Some(handle)) });
        finish_at_exit(&collector);
        if !is_deferred || hub::lock().is_in_wanted_step() {
            begin_events();
        }
        Ok(Self { collector })
    }

    /// Stops recording and completes the file. Waits until everything is written and stacks are symbolized.
    ///
    /// # Errors
    /// Returns an error in a forked child, or if the recorder's thread failed while it completed the recording. If the
    /// recording is incomplete, as on a full disk, [`Finished::problem`] has the reason.
    pub fn finish(self) -> Result<Finished> {
        self.finish_in_background().wait()
    }

    /// Stops recording, and completes the file in the background. Another recording may begin at once.
    pub fn finish_in_background(self) -> Finishing {
        self.collector.stop();
        Finishing { recording: self }
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        // Errors cannot be returned from here; the collector reported them.
        drop(self.collector.finish());
    }
}

/// A recording that is being completed in the background. Dropping it waits for completion.
#[must_use = "the recording may have a problem"]
#[derive(Debug)]
pub struct Finishing {
    recording: Recording,
}

impl Finishing {
    /// Waits until the file is complete.
    ///
    /// # Errors
    /// See [`Recording::finish`].
    pub fn wait(self) -> Result<Finished> {
        self.recording.collector.wait().unwrap_or(Err(Error::Collector))
    }
}

fn finish_at_exit(collector: &Arc<Collecting>) {
    static HOOKED: Once = Once::new();
    HOOKED.call_once(|| exit::at_exit(finish_all));
    let mut unfinished = UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner);
    unfinished.retain(|collecting| collecting.strong_count() > 0);
    unfinished.push(Arc::downgrade(collector));
}

/// Returns the first of `run.0002.snap`, `run.0003.snap` and so on that does not exist.
pub(crate) fn next_free(path: &Path) -> PathBuf {
    let mut paths = (2..).map(|number| numbered(path, number));
    paths.find(|path| !path.exists()).unwrap_or_else(|| path.to_owned())
}

/// Returns the path of the file for a recording with these options; `None` without a file. Each rank can have its own.
fn path_of(options: &HistoryOptions) -> Option<PathBuf> {
    let path = options.sink.path()?;
    Some(if options.per_rank { naming::for_rank(path, Rank::of_process()) } else { path.to_owned() })
}

/// Ends the running recording if it was requested from outside. `options`, those of the program's recording, take over
/// its dumps. If both use the file `own`, renames the file of the running recording, whose collector still writes to
/// it.
fn take_over(options: &mut HistoryOptions, own: Option<&Path>) {
    let outside = hub::lock()
        .session()
        .filter(|session| session.request == Request::Outside)
        .map(|s| (s.id, Arc::clone(&s.options)));
    let Some((session, former)) = outside else { return };
    stop(session);
    if let (None, Some(folder)) = (&options.dump_on_oom, &former.dump_on_oom) {
        options.dump_on_oom = Some(folder.clone());
        options.max_oom_dumps = former.max_oom_dumps;
    }
    let Some(path) = path_of(&former) else { return };
    let is_same = |own: &Path| {
        let [former, own] = [path.as_path(), own].map(|path| path.canonicalize().ok());
        former.is_some() && former == own
    };
    let moved = own.filter(|own| is_same(own)).and_then(|own| {
        let free = next_free(own);
        std::fs::rename(own, &free).ok().map(|()| format!("; the file before it was renamed to {}", free.display()))
    });
    let own = own.map_or_else(String::new, |own| format!(" to {}", own.display()));
    warn(format!(
        "the program started its own recording{own}: until it ends, nothing is recorded to {}, which was requested \
         from outside{}",
        path.display(),
        moved.unwrap_or_default()
    ));
}

/// Turns events on, unless they are already on or the recording is ending, then reads the state of every allocator,
/// whose events are recorded from then on. Returns whether it turned events on.
fn begin_events() -> bool {
    let _own = reentrancy::own_memory();
    let Some(sources) = hub::lock().turn_on() else { return false };
    for source in sources {
        hub::start_device(&*source);
    }
    hub::lock().open();
    hub::sample(true);
    true
}

/// Changes the program's progress. Recordings of selected steps begin with the first and end after the last.
pub(crate) fn advance<R>(change: impl FnOnce(&mut Progress) -> (R, Change)) -> R {
    let (given, change, is_wanted) = {
        let mut hub = hub::lock();
        let (given, change) = hub.advance(change);
        (given, change, change.step.is_some() && hub.is_in_wanted_step())
    };
    if change != Change::default() && !(is_wanted && begin_events()) {
        hub::sample(false);
    }
    given
}

/// Ends the recording `session`, unless it has ended. Later messages do not belong to it. A recording that gave way to
/// it may resume.
fn stop(session: SessionId) {
    let _own = reentrancy::own_memory();
    let running = hub::lock()
        .session()
        .filter(|running| running.id == session)
        .map(|running| (running.options.level == Level::State, running.request));
    let Some((state_only, request)) = running else { return };
    if state_only {
        let sources = hub::lock().sources();
        for source in sources {
            hub::start_device(&*source);
        }
    }
    hub::end(session);
    if request == Request::Program {
        hub::call_after_own();
    }
}

fn wait(collector: Handle) -> Result<Finished> {
    let Collected { trace, file, problem, events, events_lost, events_unregistered, small_blocks } =
        collector.join()?;
    let counts = Counts { events, events_lost, events_unregistered, small_blocks };
    Ok(Finished { trace, file, counts, problem })
}

/// Waits at most a quarter of a second until all events recorded so far are in the file, if there is one. Intended for
/// hooks of functions that end the program. Neither locks nor allocates.
pub fn flush() {
    flush::wait(flush::PATIENCE);
}

/// Returns the bytes of all event queues, which [`HistoryOptions::queue_bytes`] limits except for 64 KiB per thread.
pub fn queue_bytes() -> usize {
    crate::queue::bytes()
}

/// Writes the events that the running recording keeps in memory to a file, and continues recording.
///
/// # Errors
/// Returns an error if nothing is kept in memory, as in a recording that streams to a file without a ring, which
/// already contains everything, or if the file cannot be written.
pub fn dump_snapshot(path: &Path) -> Result<()> {
    let _own = reentrancy::own_memory();
    let copy = hub::copy().ok_or_else(|| Error::Options("no recording keeps its history in memory".to_owned()))?;
    write_file(&file::claim(path)?, path, &copy.into_trace())
}
