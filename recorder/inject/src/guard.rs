//! Guard: when a call is not recorded: within another, and in a child of a process that records.
#![expect(unsafe_code, reason = "asks the C library to tell of forks")]

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, Ordering};

static OFF: AtomicBool = AtomicBool::new(false);

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// A call of the program's that is being recorded. Calls within it, by the driver or by a signal's handler, are the
/// driver's own business.
#[derive(Debug)]
pub(crate) struct Call {
    stays_on_its_thread: PhantomData<*const ()>,
}

impl Call {
    /// Begins a call; none if it is not to be recorded.
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

/// What is the running thread's own, as long as it lives.
pub(crate) fn thread() -> u64 {
    INSIDE.try_with(|inside| std::ptr::from_ref(inside).addr() as u64).unwrap_or_default()
}

/// Whether this process records nothing any more.
pub(crate) fn is_off() -> bool {
    OFF.load(Ordering::Relaxed)
}

extern "C" fn in_child() {
    OFF.store(true, Ordering::Relaxed);
}

/// Has children of this process, in which neither the driver nor the recorder's thread lives on, record nothing: they
/// would write into their parent's file. A child that starts another program begins anew.
pub(crate) fn be_told_of_forks() {
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
