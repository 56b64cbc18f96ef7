//! ReentrancyGuard: marks a thread as inside the recorder, so that nothing is recorded, captured or locked a second time there.

use std::cell::Cell;
use std::sync::atomic::{Ordering, compiler_fence};

thread_local! {
    static BUSY: Cell<bool> = const { Cell::new(false) };
    static OWN: Cell<bool> = const { Cell::new(false) };
}

/// Held while the thread works for the recorder: what a signal handler or an allocator's hook would record meanwhile is
/// the recorder's own, or has to be refused.
pub(crate) struct ReentrancyGuard(());

/// Marks the thread, unless it is marked already.
#[inline(always)]
pub(crate) fn enter() -> Option<ReentrancyGuard> {
    if BUSY.replace(true) {
        return None;
    }
    compiler_fence(Ordering::SeqCst);
    Some(ReentrancyGuard(()))
}

impl Drop for ReentrancyGuard {
    #[inline(always)]
    fn drop(&mut self) {
        compiler_fence(Ordering::SeqCst);
        BUSY.set(false);
    }
}

/// Held while the memory that the thread takes is the recorder's own. Unlike [`ReentrancyGuard`], it does not keep events from being
/// told.
pub(crate) struct Own {
    was: bool,
}

/// Says that the memory that the running thread takes from now on is the recorder's own.
pub(crate) fn own_memory() -> Own {
    Own { was: OWN.replace(true) }
}

/// Says that the running thread is the recorder's as long as it lives.
pub(crate) fn own_this_thread() {
    OWN.set(true);
}

/// Whether the running thread takes memory for the recorder.
#[inline(always)]
pub(crate) fn is_own_memory() -> bool {
    BUSY.get() || OWN.get()
}

impl Drop for Own {
    fn drop(&mut self) {
        OWN.set(self.was);
    }
}
