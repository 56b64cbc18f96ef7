//! A per-thread switch that makes primitives skip their arithmetic, while their callers allocate memory as usual.

use std::cell::Cell;
use std::marker::PhantomData;

thread_local! {
    static LEFT_OUT: Cell<bool> = const { Cell::new(false) };
}

/// Returns whether primitives skip their arithmetic on this thread.
pub fn is_left_out() -> bool {
    LEFT_OUT.get()
}

/// Makes primitives skip their arithmetic on this thread until the guard is dropped. The same memory is allocated, but
/// nothing is written to it, so new memory is uninitialized.
pub fn leave_out() -> ArithmeticGuard {
    ArithmeticGuard::set(true)
}

/// Makes primitives compute again within [`leave_out`], until the guard is dropped.
pub(crate) fn bring_in() -> ArithmeticGuard {
    ArithmeticGuard::set(false)
}

/// Restores the previous setting when dropped. Not [`Send`].
#[must_use = "dropping the guard immediately restores the previous setting"]
#[derive(Debug)]
pub struct ArithmeticGuard {
    former: bool,
    stays_on_its_thread: PhantomData<*const ()>,
}

impl ArithmeticGuard {
    fn set(left_out: bool) -> Self {
        Self { former: LEFT_OUT.replace(left_out), stays_on_its_thread: PhantomData }
    }
}

impl Drop for ArithmeticGuard {
    fn drop(&mut self) {
        LEFT_OUT.set(self.former);
    }
}
