//! Decides which calls are not recorded, namely nested calls, and calls in a forked child of a recording process.
#![expect(unsafe_code, reason = "registers handlers of forks with the C library")]

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, Ordering};

static OFF: AtomicBool = AtomicBool::new(false);

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// A call of the driver by the recorded program. Calls nested in it, by the driver or by a signal handler, are not
/// recorded.
#[derive(Debug)]
pub(crate) struct Call {
    stays_on_its_thread: PhantomData<*const ()>,
}

impl Call {
    /// Begins a call. Returns `None` if it must not be recorded.
    pub(crate) fn enter() -> Option<Self> {
        let is_recorded =
            !OFF.load(Ordering::Relaxed) && INSIDE.try_with(|inside| !inside.replace(true)).unwrap_or(false);
        is_recorded.then_some(Self { stays_on_its_thread: PhantomData })
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        // The thread may be ending.
        let _ = INSIDE.try_with(|inside| inside.set(false));
    }
}

/// Returns an id of the current thread that is unique among live threads.
pub(crate) fn thread() -> u64 {
    INSIDE.try_with(|inside| std::ptr::from_ref(inside).addr() as u64).unwrap_or_default()
}

/// Returns whether this is a forked child, in which nothing is recorded.
pub(crate) fn is_off() -> bool {
    OFF.load(Ordering::Relaxed)
}

extern "C" fn in_child() {
    OFF.store(true, Ordering::Relaxed);
}

/// Turns recording off in forked children of this process, which have neither the driver nor the collector thread and
/// would write to their parent's file. A child that executes another program is not affected.
pub(crate) fn register_fork_handlers() {
    // SAFETY: `in_child` is an `extern "C"` function without arguments that only stores to an atomic.
    unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_within_a_call_is_not_recorded_and_one_after_it_is() {
        let outer = Call::enter().expect("nothing runs on this thread");
        assert!(Call::enter().is_none());
        std::thread::scope(|scope| {
            scope.spawn(|| assert!(Call::enter().is_some(), "another thread has calls of its own"));
        });
        drop(outer);
        assert!(Call::enter().is_some());
    }
}
