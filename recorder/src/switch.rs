//! Recordings that are started and stopped from outside a running program, by creating and removing a file or by a
//! signal. Each start makes a separate recording.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use highwater_snapshots::rotation::numbered;

use crate::error::{Error, Result};
use crate::hub::Request;
use crate::options::{HistoryOptions, Sink};
use crate::recording::Recording;
use crate::signals;
use crate::warn::warn;

/// Polling interval for the file and for signals. Signals that arrive within one interval count as one.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A file or a signal that starts and stops recordings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// Records while this file exists, as with `touch record.me` and `rm record.me`.
    File(PathBuf),
    /// Starts at a signal with this number, and stops at the next one, as with `kill -USR1 PID`. Unix only.
    Signal(i32),
}

/// Watches a trigger. Dropping it completes a running recording and stops watching.
#[must_use = "dropping the switch immediately stops watching"]
#[derive(Debug)]
pub struct Switch {
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    pid: u32,
}

impl Switch {
    /// Records with `options` whenever `trigger` is on. If the options name `step.snap`, the first recording is written
    /// to `step.0001.snap`, the next to `step.0002.snap`. If a recording cannot be started, a warning is printed on
    /// standard error and the program continues.
    ///
    /// # Errors
    /// Returns an error if the options are invalid or name no file, or if the signal cannot be watched.
    pub fn watch(options: HistoryOptions, trigger: Trigger) -> Result<Self> {
        options.check()?;
        let Some(path) = options.sink.path().map(PathBuf::from) else {
            return Err(Error::Options("a recording that is started from outside needs a file: name one".to_owned()));
        };
        let mut is_on = watch(trigger)?;
        let ends = Arc::new(AtomicBool::new(false));
        let asked_to_end = Arc::clone(&ends);
        let watching = move || {
            let (mut running, mut number, mut was_on) = (None, 0, false);
            let mut finishing = Vec::new();
            while !asked_to_end.load(Ordering::Relaxed) {
                let on = is_on();
                if on != was_on {
                    was_on = on;
                    if let Some(recording) = running.take() {
                        // Completed in the background, since the next one may begin meanwhile.
                        finishing.push(Recording::finish_in_background(recording));
                    } else if on {
                        number += 1;
                        let sink = Sink::File(numbered(&path, number));
                        running = begin(HistoryOptions { sink, ..options.clone() });
                    }
                }
                std::thread::sleep(LOOK_EVERY);
            }
            finishing.extend(running.map(Recording::finish_in_background));
            for recording in finishing {
                if let Err(why) = recording.wait() {
                    warn(why.to_string());
                }
            }
        };
        let thread = signals::spawn("highwater-switch", watching);
        Ok(Self { ends, thread: Some(thread.map_err(Error::Thread)?), pid: std::process::id() })
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        // The thread does not exist in a forked child.
        if let Some(thread) = self.thread.take().filter(|_| self.pid == std::process::id()) {
            drop(thread.join());
        }
    }
}

fn watch(trigger: Trigger) -> Result<Box<dyn FnMut() -> bool + Send>> {
    match trigger {
        Trigger::File(path) => Ok(Box::new(move || path.exists())),
        #[cfg(unix)]
        Trigger::Signal(number) => {
            let refused = |why| Error::Options(format!("cannot handle signal {number}: {why}; use USR1 or USR2"));
            let arrivals = signals::count_arrivals(number).map_err(refused)?;
            let mut seen = arrivals.load(Ordering::Relaxed);
            let mut on = false;
            Ok(Box::new(move || {
                let now = arrivals.load(Ordering::Relaxed);
                on ^= now != seen;
                seen = now;
                on
            }))
        }
        #[cfg(not(unix))]
        Trigger::Signal(_) => Err(Error::Options("signals are not supported on this system: use a file".to_owned())),
    }
}

fn begin(options: HistoryOptions) -> Option<Recording> {
    Recording::begin(options, Request::Outside).map_err(|why| warn(why.to_string())).ok()
}
