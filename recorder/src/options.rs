//! HistoryOptions: what to record, how much of it, and where to.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::{Error, Result};
use crate::level::{Level, Wanted};

/// How a recording is made. Start from [`HistoryOptions::to_file`], [`in_memory`](HistoryOptions::in_memory) or
/// [`Default`], and change what should differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryOptions {
    /// How much is kept of each event.
    pub level: Level,
    /// Which events get a stack, at [`Level::Stacks`].
    pub stacks_on: StacksOn,
    /// Keep only the last so many events; what the older ones did is folded into the starting state. Unbounded if none.
    pub ring_events: Option<usize>,
    /// Whether uses of blocks are events too: they show what is held and never used again, and are several times as many
    /// as allocations.
    pub uses: bool,
    /// Where the recording goes.
    pub sink: Sink,
    /// Blocks below so many requested bytes are left out, and counted.
    pub smallest_bytes: u64,
    /// Record only these training steps, as counted by [`scope::step`](crate::scope::step). Everything if none.
    pub steps: Option<Range<u32>>,
    /// What to do when the recorder falls behind the program.
    pub when_behind: WhenBehind,
    /// Write the history to a new file in this folder when a device runs out of memory.
    pub dump_on_oom: Option<PathBuf>,
    /// At most so many of these files: a program that catches the error and tries again shall not fill the disk.
    pub most_dumps: u32,
    /// How often the file is brought up to date: what a killed process loses at most, and some hundredths of a second.
    pub flush_every: Duration,
    /// The memory, in bytes, in which events may wait to be read by the recorder's own thread, of all threads together.
    pub queue_bytes: usize,
    /// Write one file after another. One file if none.
    pub rotation: Option<Rotation>,
    /// When stacks become functions, files and lines.
    pub symbols: Symbols,
    /// Whether each of several ranks, as the launcher's variables number them, writes a file of its own: `step.rank3.snap`
    /// where the sink says `step.snap`.
    pub per_rank: bool,
}

/// A recording in several files, each complete on its own: `step.0001.snap`, `step.0002.snap` and so on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rotation {
    /// The next file begins when one has this size, give or take what is written at a time.
    pub file_bytes: u64,
    /// The oldest files are removed so that all together stay below this. None: all are kept.
    pub disk_bytes: Option<u64>,
}

/// When stacks become functions, files and lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Symbols {
    /// When the recording ends.
    #[default]
    AtEnd,
    /// Not here: `highwater symbolize` does it later, or on another machine.
    Never,
}

/// Which events get a stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StacksOn {
    /// Allocations, segments and failed requests.
    #[default]
    Allocs,
    /// Frees too, and uses where they are recorded.
    AllocsAndFrees,
}

/// Where a recording goes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Sink {
    /// Held in memory, given back by `finish`.
    #[default]
    Memory,
    /// A growing `.snap` file, valid at every moment. With a ring: written at the end.
    File(PathBuf),
    /// Both.
    Both(PathBuf),
}

/// What happens to events that the recorder's thread cannot take in time, when there is no memory left for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenBehind {
    /// They are dropped and counted; the program never waits.
    #[default]
    Drop,
    /// The program waits.
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
            most_dumps: 4,
            flush_every: Duration::from_millis(200),
            queue_bytes: 256 << 20,
            rotation: None,
            symbols: Symbols::AtEnd,
            per_rank: true,
        }
    }
}

impl HistoryOptions {
    /// Everything, with stacks on allocations, to a growing file.
    pub fn to_file(path: impl Into<PathBuf>) -> Self {
        Self { sink: Sink::File(path.into()), ..Self::default() }
    }

    /// Everything, with stacks on allocations, held in memory.
    pub fn in_memory() -> Self {
        Self::default()
    }

    /// The same at another level.
    pub fn level(self, level: Level) -> Self {
        Self { level, ..self }
    }

    /// The same, keeping only the last `events` events.
    pub fn ring(self, events: usize) -> Self {
        Self { ring_events: Some(events), ..self }
    }

    /// The same, with uses of blocks as events or without.
    pub fn uses(self, uses: bool) -> Self {
        Self { uses, ..self }
    }

    /// The same, for steps `steps` only.
    pub fn only_steps(self, steps: Range<u32>) -> Self {
        Self { steps: Some(steps), ..self }
    }

    /// The same, in several files of about `file_bytes`, which together stay below `disk_bytes`.
    pub fn rotate(self, file_bytes: u64, disk_bytes: Option<u64>) -> Self {
        Self { rotation: Some(Rotation { file_bytes, disk_bytes }), ..self }
    }

    /// Whether events go to the file as they happen, rather than at the end.
    pub(crate) fn streams(&self) -> bool {
        self.sink.path().is_some() && self.ring_events.is_none() && self.level >= Level::Events
    }

    /// Says what cannot be met.
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
                return refuse("only a recording that goes to a file as it happens, without a ring, has several files");
            }
            if file_bytes == 0 || disk_bytes.is_some_and(|most| most < file_bytes.saturating_mul(2)) {
                return refuse("the disk budget of several files must be at least twice the size of one");
            }
        }
        Ok(())
    }

    /// What the entry points must know of them.
    pub(crate) fn wanted(&self) -> Wanted {
        let free_stacks = self.stacks_on == StacksOn::AllocsAndFrees;
        Wanted { level: self.level, free_stacks, uses: self.uses }
    }
}

impl Sink {
    /// The file, if there is one.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Memory => None,
            Self::File(path) | Self::Both(path) => Some(path),
        }
    }

    /// Whether the recording is wanted in memory.
    pub fn is_in_memory(&self) -> bool {
        matches!(self, Self::Memory | Self::Both(_))
    }
}
