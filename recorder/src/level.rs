//! The level of detail of the running recording, in atomics that are read before each event.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

/// Level of detail of a recording. `benches/stack.rs` measures the cost of a stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Level {
    /// Nothing is recorded, at the cost of one relaxed load per event.
    #[default]
    Off,
    /// The live blocks and segments at the end, without history.
    State,
    /// Every event, without stacks.
    Events,
    /// Every event, with a call stack for those selected by [`StacksOn`](crate::StacksOn).
    Stacks,
}

static LEVEL: AtomicU8 = AtomicU8::new(Level::Off as u8);
static FREE_STACKS: AtomicBool = AtomicBool::new(false);
static USES: AtomicBool = AtomicBool::new(false);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) level: Level,
    /// Whether frees also get a stack, at [`Level::Stacks`].
    pub(crate) free_stacks: bool,
    /// Whether uses of blocks are recorded, from [`Level::Events`] on.
    pub(crate) uses: bool,
}

/// Returns the current level.
#[inline]
pub fn current() -> Level {
    match LEVEL.load(Ordering::Relaxed) {
        1 => Level::State,
        2 => Level::Events,
        3 => Level::Stacks,
        _ => Level::Off,
    }
}

/// Returns whether events are recorded.
#[inline]
pub fn records_events() -> bool {
    LEVEL.load(Ordering::Relaxed) >= Level::Events as u8
}

#[inline]
pub(crate) fn has_free_stacks() -> bool {
    FREE_STACKS.load(Ordering::Relaxed)
}

/// Returns whether uses of blocks are recorded.
#[inline]
pub fn records_uses() -> bool {
    USES.load(Ordering::Relaxed)
}

pub(crate) fn set(wanted: Wanted) {
    FREE_STACKS.store(wanted.free_stacks, Ordering::Relaxed);
    LEVEL.store(wanted.level as u8, Ordering::Relaxed);
    USES.store(wanted.uses && wanted.level >= Level::Events, Ordering::Relaxed);
}
