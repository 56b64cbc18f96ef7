//! HistoryOptions: what to record, how much of it, and where to.

use std::ops::Range;
use std::path::{Path, PathBuf};

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
    /// What to do when the writer falls behind the program.
    pub when_behind: WhenBehind,
    /// Write the history to a new file in this folder when a device runs out of memory.
    pub dump_on_oom: Option<PathBuf>,
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

/// What happens to events that the writer thread cannot take in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenBehind {
    /// They are dropped and counted; the program never waits for the disk.
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
