//! Thread: what capture keeps for each thread, made at the thread's first capture and dropped when it ends.

#![expect(unsafe_code, reason = "asks for the thread's stack, and keeps the thread's state behind a pointer")]

use std::cell::Cell;
use std::ops::Range;
use std::ptr::null_mut;

use super::walk::Record;
use crate::stack::depot::Front;

/// The state of one thread: some 50 KB, of which what is used is touched.
pub(super) struct Thread {
    /// The addresses of the thread's own stack. A signal stack or a coroutine's lies outside.
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
            // SAFETY: made by `Box::into_raw` in `make`, and given up by both pointers to it.
            drop(unsafe { Box::from_raw(thread) });
        }
    }
}

thread_local! {
    /// Without a destructor, so that it can be read at any time in a thread's life, at the cost of one load.
    static CURRENT: Cell<*mut Thread> = const { Cell::new(null_mut()) };
    static OWNER: Owner = const { Owner(Cell::new(null_mut())) };
}

/// The running thread's state; null before [`make`] and after the thread's destructors.
/// To be dereferenced only under [`ReentrancyGuard`](crate::reentrancy::ReentrancyGuard), which makes it unique.
#[inline(always)]
pub(super) fn current() -> *mut Thread {
    CURRENT.get()
}

/// Makes the running thread's state; null when the thread is ending and its state is gone already.
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

/// The addresses of the running thread's stack; empty if the system does not say. Some 20 µs on the main thread.
///
/// The main thread's stack grows downwards up to a limit: the range reaches down to that limit.
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
