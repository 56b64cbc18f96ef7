//! Watches a growing file. Reads all of it until it is too long to be in memory, then only its summaries.

#[cfg(not(target_family = "wasm"))]
use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError};
use std::time::Duration;

use highwater_snapshots::format::{Follower, Windows};
use web_time::Instant;

use super::{Followed, recording};
use crate::files::growing::{GrowingFile, Lost};
use crate::session::run::Run;

/// Minimum time between two checks of the file's length.
const LOOK: Duration = Duration::from_millis(250);

/// Minimum time between two checks of a long file. Each check reopens the file and may cause another part to be read.
const LOOK_AT_LONG: Duration = Duration::from_secs(1);

/// After reading new data, the watcher pauses for this many times as long as the reading took.
const REST: u32 = 3;

/// Time to wait for the index of a finished recording before it is used without one.
const PATIENCE: Duration = Duration::from_secs(2);

const PORTION: usize = 1 << 20;

pub(super) enum Stop {
    Unwanted,
    Lost(String),
}

pub(super) struct Watcher<'a> {
    pub(super) path: &'a Path,
    /// Number of events in the recording last sent.
    pub(super) known: usize,
    pub(super) run: Option<Arc<Run>>,
    pub(super) most_resident: u64,
    pub(super) stopped: &'a Receiver<()>,
    pub(super) outbox: &'a Sender<Followed>,
    pub(super) wake: &'a dyn Fn(),
}

impl Watcher<'_> {
    pub(super) fn watch(mut self) -> Result<(), Stop> {
        let opened = GrowingFile::open(self.path);
        let mut file = opened.map_err(|why| self.stop(&format!("cannot open the file: {why}")))?;
        if self.run.is_none() {
            let Some(run) = self.watch_whole(&mut file)? else { return Ok(()) };
            self.notify(Followed::Long(Arc::clone(&run)))?;
            self.run = Some(run);
        }
        match self.run.clone() {
            Some(run) => self.watch_run(&mut file, &run),
            None => Ok(()),
        }
    }

    /// Watches a recording in memory until it is finished or becomes too long for memory. In the second case, returns
    /// the long recording.
    fn watch_whole(&mut self, file: &mut GrowingFile) -> Result<Option<Arc<Run>>, Stop> {
        let mut follower = Follower::new();
        let mut finished_since: Option<Instant> = None;
        loop {
            let length = file.facts(follower.bytes_fed()).map_err(|lost| self.lost(lost, follower.bytes_fed()))?.len();
            let begun = Instant::now();
            if length > follower.bytes_fed() {
                self.feed(file, &mut follower, length)?;
                finished_since = None;
            }
            if follower.events() as u64 > self.most_resident {
                let run = |windows| Run::new(windows, self.path).map_err(|why| why.to_string());
                match self.open_windows().and_then(run) {
                    Ok(run) => return Ok(Some(Arc::new(run))),
                    // For example, a recording with annotations, which are not read in parts.
                    Err(_) => self.most_resident = u64::MAX,
                }
            }
            // The index follows the end of a recording at once; without one, the end suffices after a while.
            let is_finished = follower.is_whole()
                || follower.is_finished() && finished_since.get_or_insert_with(Instant::now).elapsed() >= PATIENCE;
            if is_finished {
                self.notify(Followed::Finished(Box::new(recording(self.path, &follower))))?;
                return Ok(None);
            }
            if follower.events() > self.known {
                self.known = follower.events();
                self.notify(Followed::Grown(Box::new(recording(self.path, &follower))))?;
            }
            self.rest(LOOK.max(begun.elapsed() * REST))?;
        }
    }

    /// Watches a long recording. Reads its summaries again when it has grown.
    fn watch_run(&self, file: &mut GrowingFile, run: &Run) -> Result<(), Stop> {
        let mut read = 0;
        let mut finished_since: Option<Instant> = None;
        loop {
            let length = file.facts(read).map_err(|lost| self.lost(lost, read))?.len();
            let begun = Instant::now();
            if length > read {
                file.recognize().map_err(|lost| self.lost(lost, read))?;
                let windows = self.open_windows().map_err(|why| self.stop(&why))?;
                read = length;
                let (before, base) = (run.events(), windows.base());
                let is_finished = !base.trust.unfinished;
                let is_whole = is_finished && base.problems.iter().all(|problem| !problem.is_index_only);
                finished_since = is_finished.then(Instant::now);
                run.extend(windows).map_err(|why| self.stop(&why.to_string()))?;
                if is_whole {
                    return self.notify(Followed::Completed);
                }
                if run.events() > before {
                    self.notify(Followed::Lengthened)?;
                }
            }
            if finished_since.is_some_and(|since| since.elapsed() >= PATIENCE) {
                return self.notify(Followed::Completed);
            }
            self.rest(LOOK_AT_LONG.max(begun.elapsed() * REST))?;
        }
    }

    /// Opens the file in its present state for reading in parts. The error is a sentence.
    #[cfg(not(target_family = "wasm"))]
    fn open_windows(&self) -> Result<Windows, String> {
        let file = File::open(self.path).map_err(|why| format!("cannot open the file: {why}"))?;
        let mut watch = |_| std::ops::ControlFlow::Continue(());
        Windows::open(Arc::new(file), &mut watch).map_err(|why| why.to_string())
    }

    /// Returns an error, because recordings are not read in parts in browsers.
    #[cfg(target_family = "wasm")]
    fn open_windows(&self) -> Result<Windows, String> {
        Err(format!("cannot open {}: a browser cannot read parts of a file", self.path.display()))
    }

    /// Reads the file up to `length`, or until the recording is too long, and passes the bytes to `follower`.
    fn feed(&self, file: &mut GrowingFile, follower: &mut Follower, length: u64) -> Result<(), Stop> {
        file.recognize().map_err(|lost| self.lost(lost, follower.bytes_fed()))?;
        while follower.bytes_fed() < length {
            let most = usize::try_from(length - follower.bytes_fed()).unwrap_or(PORTION).min(PORTION);
            let portion =
                file.read(follower.bytes_fed(), most).map_err(|lost| self.lost(lost, follower.bytes_fed()))?;
            if portion.is_empty() {
                break;
            }
            follower.feed(&portion).map_err(|why| self.stop(&why.to_string()))?;
            self.check()?;
            if follower.events() as u64 > self.most_resident {
                // The rest must not be held in memory.
                break;
            }
        }
        Ok(())
    }

    fn notify(&self, news: Followed) -> Result<(), Stop> {
        self.outbox.send(news).map_err(|_| Stop::Unwanted)?;
        (self.wake)();
        Ok(())
    }

    fn check(&self) -> Result<(), Stop> {
        if self.stopped.try_recv() == Err(TryRecvError::Disconnected) { Err(Stop::Unwanted) } else { Ok(()) }
    }

    /// Waits; fails if the receiver was dropped.
    fn rest(&self, time: Duration) -> Result<(), Stop> {
        match self.stopped.recv_timeout(time) {
            Err(RecvTimeoutError::Timeout) => Ok(()),
            _ => Err(Stop::Unwanted),
        }
    }

    /// Returns the reason to stop: the file could not be read further after `read` bytes.
    fn lost(&self, lost: Lost, read: u64) -> Stop {
        self.stop(&match lost {
            Lost::Missing => "it is missing: it was moved or deleted".to_owned(),
            Lost::Replaced => "another file has replaced it; press F5 to read that one".to_owned(),
            Lost::Truncated(length) => {
                format!("the file was truncated to {length} of {read} bytes; press F5 to read the rest")
            }
            Lost::Overwritten => "the file was overwritten; press F5 to read the new recording".to_owned(),
            Lost::Unreadable(why) => format!("cannot read the file: {why}"),
        })
    }

    fn stop(&self, why: &str) -> Stop {
        Stop::Lost(format!("stopped following {}: {why}", self.path.display()))
    }
}
