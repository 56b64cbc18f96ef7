//! Busy: marks a thread as inside capture, so that nothing captures, or waits for its own lock, a second time.

use std::cell::Cell;
use std::sync::atomic::{Ordering, compiler_fence};

thread_local! {
    static BUSY: Cell<bool> = const { Cell::new(false) };
}

/// Held while the thread works on stacks; a capture from a signal handler or an allocator hook is refused meanwhile.
pub(super) struct Busy(());

/// Marks the thread, unless it is marked already.
#[inline(always)]
pub(super) fn enter() -> Option<Busy> {
    if BUSY.replace(true) {
        return None;
    }
    compiler_fence(Ordering::SeqCst);
    Some(Busy(()))
}

impl Drop for Busy {
    #[inline(always)]
    fn drop(&mut self) {
        compiler_fence(Ordering::SeqCst);
        BUSY.set(false);
    }
}
