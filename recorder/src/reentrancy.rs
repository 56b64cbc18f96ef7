//! Marks a thread as inside the recorder, so that it does not record, capture or lock recursively.

use std::cell::Cell;
use std::sync::atomic::{Ordering, compiler_fence};

thread_local! {
    static BUSY: Cell<bool> = const { Cell::new(false) };
    static OWN: Cell<bool> = const { Cell::new(false) };
}

/// Active while the thread works for the recorder. Events of signal handlers and allocator hooks on the thread then
/// belong to the recorder itself, or must be rejected.
pub(crate) struct ReentrancyGuard(());

/// Returns `None` if the thread is already marked.
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

/// Active while allocations of the thread belong to the recorder. Unlike [`ReentrancyGuard`], it suppresses no events.
pub(crate) struct Own {
    was: bool,
}

/// Marks the current thread's allocations as the recorder's own until the result is dropped.
pub(crate) fn own_memory() -> Own {
    Own { was: OWN.replace(true) }
}

/// Marks the current thread as one of the recorder's, for its whole life.
pub(crate) fn own_this_thread() {
    OWN.set(true);
}

#[inline(always)]
pub(crate) fn is_own_memory() -> bool {
    BUSY.get() || OWN.get()
}

impl Drop for Own {
    fn drop(&mut self) {
        OWN.set(self.was);
    }
}
