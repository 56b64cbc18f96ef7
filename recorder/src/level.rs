//! Level: how much is recorded. Atomics, of which each entry point reads one before anything else is done.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

/// How much a recording keeps. What a stack costs is measured by `benches/stack.rs`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Level {
    /// Nothing: one relaxed load an event.
    #[default]
    Off,
    /// The live blocks and segments at the end, without history.
    State,
    /// Every event, without stacks.
    Events,
    /// Every event, with the stack that caused it.
    Stacks,
}

static LEVEL: AtomicU8 = AtomicU8::new(Level::Off as u8);
static FREE_STACKS: AtomicBool = AtomicBool::new(false);
static USES: AtomicBool = AtomicBool::new(false);

/// What a recording wants to be told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// How much of each event.
    pub(crate) level: Level,
    /// Stacks of frees too, at [`Level::Stacks`].
    pub(crate) free_stacks: bool,
    /// When blocks are used, from [`Level::Events`] on.
    pub(crate) uses: bool,
}

/// The level now.
#[inline]
pub fn current() -> Level {
    match LEVEL.load(Ordering::Relaxed) {
        1 => Level::State,
        2 => Level::Events,
        3 => Level::Stacks,
        _ => Level::Off,
    }
}

/// Whether events are wanted at all.
#[inline]
pub fn records_events() -> bool {
    LEVEL.load(Ordering::Relaxed) >= Level::Events as u8
}

/// Whether frees get a stack too, at [`Level::Stacks`].
#[inline]
pub(crate) fn has_free_stacks() -> bool {
    FREE_STACKS.load(Ordering::Relaxed)
}

/// Whether uses of blocks are wanted.
#[inline]
pub fn records_uses() -> bool {
    USES.load(Ordering::Relaxed)
}

pub(crate) fn set(wanted: Wanted) {
    FREE_STACKS.store(wanted.free_stacks, Ordering::Relaxed);
    LEVEL.store(wanted.level as u8, Ordering::Relaxed);
    USES.store(wanted.uses && wanted.level >= Level::Events, Ordering::Relaxed);
}
