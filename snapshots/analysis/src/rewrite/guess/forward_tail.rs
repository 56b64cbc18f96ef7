//! Finds where forward ends if the program does something else than backward next.

use highwater_snapshots::ids::EventId;

/// Maximum number of allocations or frees that count as noise.
pub const NOISE: u32 = 2;

/// A point at which forward may have ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    /// The first event after forward.
    pub(super) first: EventId,
    /// The last event of the device before it.
    pub(super) last_event: EventId,
    /// The last allocation before it.
    pub(super) last_alloc: EventId,
}

/// The code that allocates or frees a block while forward runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Code {
    /// A module.
    Module,
    /// Other code of the program.
    Other,
    /// Code that never runs within forward: it loads data, moves a module or drops a graph.
    Foreign,
    /// Unknown: the stack of a free was not recorded.
    Unknown,
}

/// What happens to a block while forward runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub(super) code: Code,
    pub(super) is_alloc: bool,
    /// Whether a module allocated the block that is freed.
    pub(super) is_of_module: bool,
    /// Whether it did so since this forward began.
    pub(super) is_of_forward: bool,
}

/// What has happened since a module was last seen to run.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tail {
    /// The first event of other code.
    first: Option<Mark>,
    /// Number of allocations by other code.
    allocs: u32,
    /// The first of the frees since the last allocation, or the first by other code.
    frees: Option<Mark>,
    has_other_frees: bool,
    /// Number of blocks of modules that these free, and how many of them other code frees.
    dropped: u32,
    dropped_by_other: u32,
    /// Number of live blocks that modules allocated since forward began.
    kept: u32,
}

impl Tail {
    /// Counts a block that a module allocated in this forward.
    pub(super) fn keep(&mut self) {
        self.kept = self.kept.saturating_add(1);
    }

    /// Where forward ended, if it has no further allocation: before frees by other code, or of many blocks.
    pub(super) fn last_frees(&self) -> Option<Mark> {
        self.frees.filter(|_| self.has_other_frees || self.dropped > NOISE)
    }

    /// Where forward ended, if what happens at `here` shows that it has.
    pub(super) fn take(&mut self, seen: Seen, here: Mark) -> Option<Mark> {
        let is_module = seen.code == Code::Module;
        // Nothing that the modules computed before was kept for backward or for the modules that follow.
        let is_another = is_module && self.allocs > NOISE && self.kept <= NOISE;
        let is_drop = self.dropped_by_other > NOISE || (self.dropped > NOISE && !is_module);
        let ended = match seen.code {
            _ if is_another => self.first,
            Code::Foreign => self.frees.or(Some(here)),
            _ if is_drop && (is_module || seen.is_alloc) => self.frees,
            _ => None,
        };
        if ended.is_some() {
            *self = Self::default();
            return ended;
        }
        if is_module {
            *self = Self { kept: self.kept, ..Self::default() };
        } else if seen.is_alloc {
            self.first = self.first.or(Some(here));
            self.allocs = self.allocs.saturating_add(1);
            (self.frees, self.has_other_frees, self.dropped, self.dropped_by_other) = Default::default();
        } else {
            let by_other = seen.code == Code::Other;
            if by_other {
                self.first = self.first.or(Some(here));
            }
            if self.frees.is_none() || (by_other && !self.has_other_frees) {
                self.frees = Some(here);
            }
            self.has_other_frees |= by_other;
            self.dropped += u32::from(seen.is_of_module);
            self.dropped_by_other += u32::from(seen.is_of_module && by_other);
        }
        if seen.is_of_forward {
            self.kept = self.kept.saturating_sub(1);
        }
        None
    }
}
