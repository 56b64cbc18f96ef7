//! Counters of incomplete, failed and slow stack captures.

use std::sync::atomic::{AtomicU64, Ordering};

/// Numbers of incomplete, failed and slow captures since the process started, which show how reliable the stacks are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Stacks deeper than [`MAX_FRAMES`](super::MAX_FRAMES), recorded without their outermost frames.
    pub cut: u64,
    /// Captures that returned no stack, because another capture on the same thread was in progress (in a signal handler
    /// or an allocator hook), because the thread was ending, or because the table of stacks was full.
    pub refused: u64,
    /// Captures by the platform's unwinder, which is also exact, but a hundred times slower.
    pub portable: u64,
}

static CUT: AtomicU64 = AtomicU64::new(0);
static REFUSED: AtomicU64 = AtomicU64::new(0);
static PORTABLE: AtomicU64 = AtomicU64::new(0);

/// Returns the current counts.
pub fn losses() -> Losses {
    Losses {
        cut: CUT.load(Ordering::Relaxed),
        refused: REFUSED.load(Ordering::Relaxed),
        portable: PORTABLE.load(Ordering::Relaxed),
    }
}

#[cold]
pub(super) fn count_cut() {
    CUT.fetch_add(1, Ordering::Relaxed);
}

#[cold]
pub(super) fn count_refused() {
    REFUSED.fetch_add(1, Ordering::Relaxed);
}

#[cold]
pub(super) fn count_portable() {
    PORTABLE.fetch_add(1, Ordering::Relaxed);
}
