//! Starts the recordings that the program makes itself, with a guard or around a function.

use std::path::PathBuf;

use highwater_snapshots::Trace;

use crate::environment;
use crate::error::{Error, Result};
use crate::hub::{self, Request};
use crate::options::HistoryOptions;
use crate::recording::{Counts, Finished, Recording};
use crate::warn::warn;

impl Recording {
    /// Starts a recording, which reads the state of every registered allocator and then records every event.
    ///
    /// Takes precedence over a recording that the [environment] or a [`Switch`](crate::Switch) requested, which is
    /// reported on standard error, and also writes that recording's dumps. The recording requested by the environment
    /// continues afterwards, in another file.
    ///
    /// # Errors
    /// Returns an error if the program is recording already, the options are invalid, or the file cannot be created.
    pub fn start(options: HistoryOptions) -> Result<Self> {
        environment::start();
        Self::start_alone(options)
    }

    /// Like [`start`](Self::start), but does not start the recordings requested by environment variables. Used by a
    /// recorder that was injected into a program that may have its own recorder.
    ///
    /// # Errors
    /// See [`start`](Self::start).
    pub fn start_alone(options: HistoryOptions) -> Result<Self> {
        // The recording that gave way continues if this one cannot start.
        Self::begin(options, Request::Program).inspect_err(|_| hub::call_after_own())
    }
}

/// Records the memory history of `body`.
///
/// The recording is finished whether `body` succeeds, fails or panics.
///
/// # Errors
/// Returns an error if the recording cannot be started, because an option is invalid or the file cannot be created. If
/// another recording is running or writing to the file, `body` runs all the same: [`Recorded::problem`] reports it. If
/// `body` fails, returns its error as [`Error::Body`], with the path of the recording.
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
    let started = match Recording::start(options) {
        Err(Error::AlreadyRecording) => {
            warn("a recording is already running, so the program's own is not started".to_owned());
            Err(Error::AlreadyRecording)
        }
        Err(in_use @ Error::InUse { .. }) => {
            warn(format!("the program's own recording is not started: {in_use}"));
            Err(in_use)
        }
        started => Ok(started?),
    };
    let result = body();
    let finished = started.and_then(Recording::finish);
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
/// still returned, and [`problem`](Self::problem) has the error.
#[derive(Debug)]
#[must_use = "the recording may have a problem"]
pub struct Recorded<T> {
    /// Value returned by the body.
    pub value: T,
    /// The recording, if the sink includes memory.
    pub trace: Option<Trace>,
    /// Path of the file; `None` if the sink has none, or if nothing could be written.
    pub file: Option<PathBuf>,
    /// Event and block counts.
    pub counts: Counts,
    /// The reason that a requested part of the recording is missing. The data written to the file before can be read.
    pub problem: Option<Error>,
}
