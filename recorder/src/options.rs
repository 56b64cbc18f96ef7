//! Options of a recording, which determine the recorded events, the level of detail, and the destination.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::{Error, Result};
use crate::level::{Level, Wanted};

/// Options of a recording. Start from [`HistoryOptions::to_file`], [`in_memory`](HistoryOptions::in_memory) or
/// [`Default`], and change individual fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryOptions {
    /// Level of detail of each event.
    pub level: Level,
    /// The events that get a call stack, at [`Level::Stacks`].
    pub stacks_on: StacksOn,
    /// Keep only this number of the last events, and apply older events to the starting state. Unlimited if `None`.
    pub ring_events: Option<usize>,
    /// Whether to record uses of blocks as events. Uses show memory that is live but never used again. There are
    /// several times as many uses as allocations.
    pub uses: bool,
    /// The destination of the recording.
    pub sink: Sink,
    /// Minimum number of requested bytes of recorded blocks. Smaller blocks are only counted.
    pub smallest_bytes: u64,
    /// Record only these training steps, as counted by [`scope::step`](crate::scope::step). All steps if `None`.
    pub steps: Option<Range<u32>>,
    /// The handling of events when the recorder cannot keep up with the program.
    pub when_behind: WhenBehind,
    /// Write the history to a new file in this folder when a device runs out of memory.
    pub dump_on_oom: Option<PathBuf>,
    /// Maximum number of these files, so that a program that catches the error and retries does not fill the disk.
    pub max_oom_dumps: u32,
    /// Interval between writes to the file. A killed process loses at most this much plus some hundredths of a second.
    /// At first the interval is as long as the recording so far, and at least a tenth of a millisecond.
    pub flush_every: Duration,
    /// Memory limit in bytes for the event queues of all threads together, besides 64 KiB that each thread gets in any
    /// case.
    pub queue_bytes: usize,
    /// Write several files, one after another. If `None`, only one file is written.
    pub rotation: Option<Rotation>,
    /// The time at which stacks are symbolized.
    pub symbols: Symbols,
    /// Whether each of several ranks, as numbered by the launcher's environment variables, writes its own file, such as
    /// `step.rank3.snap` if the sink is `step.snap`.
    pub per_rank: bool,
}

/// Splits a recording into several files, each complete in itself, such as `step.0001.snap` and `step.0002.snap`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rotation {
    /// Number of bytes, besides the state with which a file begins, after which the next file begins. Exceeded by at
    /// most one write, and by the source lines at the end.
    pub file_bytes: u64,
    /// Limit in bytes for all files together, including those of earlier runs. The oldest complete files are removed to
    /// stay within it. Unlimited if `None`.
    pub disk_bytes: Option<u64>,
}

/// The time at which stacks are symbolized to functions, files and lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Symbols {
    /// At the end of the recording.
    #[default]
    AtEnd,
    /// Never. `highwater symbolize` can do it later or on another machine.
    Never,
}

/// The events that get a call stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StacksOn {
    /// Allocations, segments that are reserved or mapped, and out-of-memory events.
    #[default]
    Allocs,
    /// Also frees, segments that are released or unmapped, and uses if they are recorded.
    AllocsAndFrees,
}

/// The destination of a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Sink {
    /// In memory. The recording is returned by `finish`.
    #[default]
    Memory,
    /// A growing `.snap` file, valid at all times. With a ring or at [`Level::State`], the file is written at the end.
    File(PathBuf),
    /// Both in memory and to a file.
    Both(PathBuf),
}

/// The handling of events when the collector thread cannot keep up and the queues are full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenBehind {
    /// Events are dropped and counted, and the program never waits.
    #[default]
    Drop,
    /// The program waits until there is room, so that no event is lost.
    Wait,
}

impl Default for HistoryOptions {
    fn default() -> Self {
        Self {
            level: Level::Stacks,
            stacks_on: StacksOn::Allocs,
            ring_events: None,
            uses: false,
            sink: Sink::Memory,
            smallest_bytes: 0,
            steps: None,
            when_behind: WhenBehind::Drop,
            dump_on_oom: None,
            max_oom_dumps: 4,
            flush_every: Duration::from_millis(200),
            queue_bytes: 256 << 20,
            rotation: None,
            symbols: Symbols::AtEnd,
            per_rank: true,
        }
    }
}

impl HistoryOptions {
    /// Records everything, with stacks on allocations, to a growing file.
    pub fn to_file(path: impl Into<PathBuf>) -> Self {
        Self { sink: Sink::File(path.into()), ..Self::default() }
    }

    /// Records everything, with stacks on allocations, in memory.
    pub fn in_memory() -> Self {
        Self::default()
    }

    /// Sets the level of detail.
    pub fn level(self, level: Level) -> Self {
        Self { level, ..self }
    }

    /// Keeps only the last `events` events.
    pub fn ring(self, events: usize) -> Self {
        Self { ring_events: Some(events), ..self }
    }

    /// Sets whether uses of blocks are recorded as events.
    pub fn uses(self, uses: bool) -> Self {
        Self { uses, ..self }
    }

    /// Records only the training steps `steps`.
    pub fn only_steps(self, steps: Range<u32>) -> Self {
        Self { steps: Some(steps), ..self }
    }

    /// Splits the recording into files of about `file_bytes`, which together stay within `disk_bytes`, if given.
    pub fn rotate(self, file_bytes: u64, disk_bytes: Option<u64>) -> Self {
        Self { rotation: Some(Rotation { file_bytes, disk_bytes }), ..self }
    }

    /// Returns whether events are written to the file as they happen, rather than at the end.
    pub(crate) fn streams(&self) -> bool {
        self.sink.path().is_some() && self.ring_events.is_none() && self.level >= Level::Events
    }

    pub(crate) fn check(&self) -> Result<()> {
        let refuse = |what: &str| Err(Error::Options(what.to_owned()));
        if self.ring_events == Some(0) {
            return refuse("a ring needs room for at least one event");
        }
        if self.steps.as_ref().is_some_and(Range::is_empty) {
            return refuse("empty range of steps: the second number is exclusive");
        }
        if let Some(Rotation { file_bytes, disk_bytes }) = self.rotation {
            if !self.streams() {
                return refuse("rotation needs a recording that is written to a file as it happens, without a ring");
            }
            if file_bytes == 0 || disk_bytes.is_some_and(|most| most < file_bytes.saturating_mul(2)) {
                return refuse("the file size must not be 0, and the disk budget must be at least twice that size");
            }
        }
        Ok(())
    }

    pub(crate) fn wanted(&self) -> Wanted {
        let free_stacks = self.stacks_on == StacksOn::AllocsAndFrees;
        Wanted { level: self.level, free_stacks, uses: self.uses }
    }
}

impl Sink {
    /// Returns the path of the file, if there is one.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Memory => None,
            Self::File(path) | Self::Both(path) => Some(path),
        }
    }

    /// Returns whether the recording is kept in memory.
    pub fn is_in_memory(&self) -> bool {
        matches!(self, Self::Memory | Self::Both(_))
    }
}
