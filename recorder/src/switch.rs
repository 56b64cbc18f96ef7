//! Switch: recordings that are begun and ended from outside, while the program runs: by a file that is there or not, or by
//! a signal. Each time is a recording of its own.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::naming;
use crate::options::{HistoryOptions, Sink};
use crate::recording::Recording;
use crate::signals;
use crate::warn::warn;

/// How often the file is looked for, and signals are counted: those that come within this time are one.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// What begins and ends recordings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// Records while this file exists: `touch record.me`, `rm record.me`.
    File(PathBuf),
    /// Begins at a signal with this number, and ends at the next: `kill -USR1 PID`. Unix only.
    Signal(i32),
}

/// Watches a trigger. When it is dropped, a running recording is completed and no other begins.
#[must_use = "nothing is watched once this is dropped"]
#[derive(Debug)]
pub struct Switch {
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    pid: u32,
}

impl Switch {
    /// Records as `options` say whenever `trigger` says so. The first recording goes to `step.0001.snap` where the options say
    /// `step.snap`, the next to `step.0002.snap`.
    ///
    /// Fails if the options name no file, or if the signal cannot be watched. That a recording could not begin is said on
    /// standard error, and the program goes on.
    pub fn watch(options: HistoryOptions, trigger: Trigger) -> Result<Self> {
        options.check()?;
        let Some(path) = options.sink.path().map(PathBuf::from) else {
            return Err(Error::Options("recordings that are begun from outside go to files: name one".to_owned()));
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
                        // The next one may begin while this is being completed.
                        finishing.push(Recording::finish_in_background(recording));
                    } else if on {
                        number += 1;
                        let sink = Sink::File(naming::numbered(&path, number));
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
        // In a forked child the thread does not exist.
        if let Some(thread) = self.thread.take().filter(|_| self.pid == std::process::id()) {
            drop(thread.join());
        }
    }
}

/// What tells whether recording shall be on.
fn watch(trigger: Trigger) -> Result<Box<dyn FnMut() -> bool + Send>> {
    match trigger {
        Trigger::File(path) => Ok(Box::new(move || path.exists())),
        #[cfg(unix)]
        Trigger::Signal(number) => {
            let refused = |why| Error::Options(format!("signal {number} cannot be watched: {why}; use USR1 or USR2"));
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
    Recording::start(options).map_err(|why| warn(why.to_string())).ok()
}
