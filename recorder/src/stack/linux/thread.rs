//! Per-thread state of stack capture, created at the thread's first capture and dropped when it ends.

#![expect(unsafe_code, reason = "asks for the thread's stack, and keeps the thread's state behind a pointer")]

use std::cell::Cell;
use std::ops::Range;
use std::ptr::null_mut;

use super::walk::Record;
use crate::stack::depot::Front;

/// The capture state of one thread: some 50 KB of address space, of which only used pages are touched.
pub(super) struct Thread {
    /// Address range of the thread's own stack. A signal stack or a coroutine's stack is outside it.
    pub(super) stack: Range<u64>,
    pub(super) front: Front,
    pub(super) record: Box<Record>,
}

struct Owner(Cell<*mut Thread>);

impl Drop for Owner {
    fn drop(&mut self) {
        CURRENT.set(null_mut());
        let thread = self.0.replace(null_mut());
        if !thread.is_null() {
            // SAFETY: created by `Box::into_raw` in `make`; both pointers to it have been cleared.
            drop(unsafe { Box::from_raw(thread) });
        }
    }
}

thread_local! {
    /// Has no destructor, so that it can be read at any time in a thread's life, at the cost of one load.
    static CURRENT: Cell<*mut Thread> = const { Cell::new(null_mut()) };
    static OWNER: Owner = const { Owner(Cell::new(null_mut())) };
}

/// Returns the current thread's state; null before [`make`] and after the thread's destructors.
/// Dereference it only under [`ReentrancyGuard`](crate::reentrancy::ReentrancyGuard), which makes access unique.
#[inline(always)]
pub(super) fn current() -> *mut Thread {
    CURRENT.get()
}

/// Creates the current thread's state. Returns null if the thread is ending and its state is already destroyed.
pub(super) fn make() -> *mut Thread {
    OWNER
        .try_with(|owner| {
            let thread = Box::new(Thread { stack: own_stack(), front: Front::new(), record: Record::new() });
            let thread = Box::into_raw(thread);
            owner.0.set(thread);
            CURRENT.set(thread);
            thread
        })
        .unwrap_or(null_mut())
}

/// Returns the address range of the current thread's stack; empty if unknown. Takes some 20 µs on the main thread.
///
/// The main thread's stack grows downwards up to a limit: the range extends to that limit.
fn own_stack() -> Range<u64> {
    let mut start = null_mut();
    let mut size = 0;
    // SAFETY: the attributes are zeroed storage that `pthread_getattr_np` fills in; they are read and destroyed only
    // after it succeeded.
    unsafe {
        let mut attributes: libc::pthread_attr_t = std::mem::zeroed();
        if libc::pthread_getattr_np(libc::pthread_self(), &raw mut attributes) != 0 {
            return 0..0;
        }
        libc::pthread_attr_getstack(&raw const attributes, &raw mut start, &raw mut size);
        libc::pthread_attr_destroy(&raw mut attributes);
    }
    start as u64..start as u64 + size as u64
}
