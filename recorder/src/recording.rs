//! Starting and finishing recordings, wrapping a function in one, and the results.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use highwater_snapshots::Trace;

use crate::clock::Clock;
use crate::collector::{self, Collected, Handle};
use crate::error::{Error, Result};
use crate::file;
use crate::header;
use crate::held::write_file;
use crate::hub;
use crate::level::Level;
use crate::naming::{self, Rank};
use crate::options::HistoryOptions;
use crate::progress::{Change, Progress};
use crate::reentrancy;

/// Records what `body` does to memory.
///
/// The recording is finished whether `body` succeeds, fails or panics.
///
/// # Errors
///
/// Returns an error if the recording cannot be started. If `body` fails, returns its error as [`Error::Body`], with the
/// path of the recording.
///
/// # Examples
///
/// ```
/// use highwater_recorder::{HistoryOptions, record_memory_history, scope};
///
/// let run = record_memory_history(HistoryOptions::in_memory(), || {
///     for step in 0..3 {
///         scope::step(step);
///         // train_step(&model, &mut optimizer)?;
///     }
///     Ok(())
/// })?;
/// assert_eq!(run.trace.map(|trace| trace.spans.steps()), Some(vec![0, 1, 2]));
/// # Ok::<(), highwater_recorder::Error>(())
/// ```
pub fn record_memory_history<T>(
    options: HistoryOptions,
    body: impl FnOnce() -> Result<T, Box<dyn std::error::Error + Send + Sync>>,
) -> Result<Recorded<T>> {
    let recording = Recording::start(options)?;
    let result = body();
    let finished = recording.finish();
    let value = match result {
        Ok(value) => value,
        Err(source) => return Err(Error::Body { source, file: finished.ok().and_then(|finished| finished.file) }),
    };
    Ok(match finished {
        Ok(Finished { trace, file, counts, problem }) => Recorded { value, trace, file, counts, problem },
        Err(problem) => Recorded { value, trace: None, file: None, counts: Counts::default(), problem: Some(problem) },
    })
}

/// The result of a wrapped program, and its recording. If the recording could not be completed, the program's result is
/// still returned: see [`problem`](Self::problem).
#[derive(Debug)]
#[must_use = "the recording may have a problem"]
pub struct Recorded<T> {
    /// Value returned by the body.
    pub value: T,
    /// The recording, if the sink includes memory.
    pub trace: Option<Trace>,
    /// Path of the file, if the sink includes one.
    pub file: Option<PathBuf>,
    /// Numbers of events and blocks.
    pub counts: Counts,
    /// Why a requested part of the recording is missing; what was written to the file before can be read.
    pub problem: Option<Error>,
}

/// Numbers of events and blocks of a recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Events, including lost ones.
    pub events: u64,
    /// Events lost because a ring was full or a disk too slow.
    pub events_lost: u64,
    /// Blocks left out because they are smaller than [`HistoryOptions::smallest_bytes`].
    pub small_blocks: u64,
}

/// A finished recording.
#[derive(Debug)]
pub struct Finished {
    /// The recording, if the sink includes memory.
    pub trace: Option<Trace>,
    /// Path of the file, if the sink includes one.
    pub file: Option<PathBuf>,
    /// Numbers of events and blocks.
    pub counts: Counts,
    /// Why the file is incomplete, if the recording in memory is complete.
    pub problem: Option<Error>,
}

/// A running recording. Dropping it also finishes it, but discards errors: prefer [`finish`](Self::finish).
#[must_use = "the recording ends when the guard is dropped"]
#[derive(Debug)]
pub struct Recording {
    collector: Option<Handle>,
}

impl Recording {
    /// Starts recording: reads the state of every registered allocator, then records every event.
    ///
    /// # Errors
    ///
    /// Returns an error if another recording is running, the options are invalid, or the file cannot be created.
    pub fn start(options: HistoryOptions) -> Result<Self> {
        let _own = reentrancy::own_memory();
        options.check()?;
        let clock = Clock::start();
        let is_deferred = options.steps.is_some();
        let path = options
            .sink
            .path()
            .map(|path| if options.per_rank { naming::for_rank(path, Rank::of_process()) } else { path.to_owned() });
        let header = header::of_process(&options, &clock);
        let options = Arc::new(options);
        let collector = {
            let mut hub = hub::lock();
            if hub.session().is_some() {
                return Err(Error::AlreadyRecording);
            }
            let collector = collector::start(Arc::clone(&options), path, header, clock)?;
            hub.begin(options);
            collector
        };
        crate::fork::stop_in_children();
        if !is_deferred || hub::lock().is_in_wanted_step() {
            begin_events();
        }
        Ok(Self { collector: Some(collector) })
    }

    /// Stops recording and completes the file: waits until everything is written and stacks are symbolized.
    ///
    /// # Errors
    ///
    /// Returns an error if the recording could not be completed.
    pub fn finish(self) -> Result<Finished> {
        self.finish_in_background().wait()
    }

    /// Stops recording, and completes the file in the background. Another recording may begin at once.
    pub fn finish_in_background(mut self) -> Finishing {
        if self.collector.as_ref().is_some_and(Handle::is_of_this_process) {
            stop();
        }
        Finishing { collector: self.collector.take() }
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        if let Some(collector) = self.collector.take() {
            if collector.is_of_this_process() {
                stop();
            }
            // Errors cannot be reported from here.
            drop(wait(collector));
        }
    }
}

/// A recording that is being completed in the background. Dropping it waits for completion.
#[must_use = "the recording may have a problem"]
#[derive(Debug)]
pub struct Finishing {
    collector: Option<Handle>,
}

impl Finishing {
    /// Waits until the file is complete.
    ///
    /// # Errors
    ///
    /// Returns an error if the recording could not be completed.
    pub fn wait(mut self) -> Result<Finished> {
        self.collector.take().map_or(Err(Error::Collector), wait)
    }
}

impl Drop for Finishing {
    fn drop(&mut self) {
        // Errors cannot be reported from here.
        drop(self.collector.take().map(wait));
    }
}

/// Turns events on, unless they are on already or the recording is ending, then reads the state of every allocator,
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

/// Changes the program's progress. Recordings of selected steps begin with the first of them and end after the last.
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

/// Ends the running recording: later messages do not belong to it.
fn stop() {
    let _own = reentrancy::own_memory();
    let state_only = hub::lock().session().is_some_and(|session| session.options.level == Level::State);
    if state_only {
        let sources = hub::lock().sources();
        for source in sources {
            hub::start_device(&*source);
        }
    }
    hub::end();
}

fn wait(collector: Handle) -> Result<Finished> {
    let Collected { trace, file, events, events_lost, small_blocks } = collector.join()?;
    let counts = Counts { events, events_lost, small_blocks };
    match (file, trace) {
        (Ok(file), trace) => Ok(Finished { trace, file, counts, problem: None }),
        (Err(problem), Some(trace)) => Ok(Finished { trace: Some(trace), file: None, counts, problem: Some(problem) }),
        (Err(problem), None) => Err(problem),
    }
}

/// Returns the memory of all threads' event queues, in bytes. [`HistoryOptions::queue_bytes`] limits it, except for 64
/// KiB per thread.
pub fn queue_bytes() -> usize {
    crate::queue::bytes()
}

/// Writes what the running recording keeps in memory to a file, and continues recording.
///
/// # Errors
///
/// Returns an error if nothing is kept in memory, as in a recording that streams to a file without a ring, which
/// already contains everything, or if the file cannot be written.
pub fn dump_snapshot(path: &Path) -> Result<()> {
    let _own = reentrancy::own_memory();
    let held = hub::copy().ok_or_else(|| Error::Options("no recording holds its history in memory".to_owned()))?;
    write_file(&file::claim(path)?, path, &held.into_trace())
}
