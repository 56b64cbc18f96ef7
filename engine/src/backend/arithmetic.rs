//! Whether primitives compute on this thread, or only allocate memory as if they did.

use std::cell::Cell;
use std::marker::PhantomData;

thread_local! {
    static LEFT_OUT: Cell<bool> = const { Cell::new(false) };
}

/// Whether primitives are left out on this thread.
pub fn is_left_out() -> bool {
    LEFT_OUT.get()
}

/// Leaves primitives out on this thread until the guard drops: whatever runs meanwhile takes the same memory and
/// changes no number. New memory keeps whatever was there.
pub fn leave_out() -> ArithmeticGuard {
    ArithmeticGuard::set(true)
}

/// Lets primitives compute again within [`leave_out`], until the guard drops.
pub fn bring_in() -> ArithmeticGuard {
    ArithmeticGuard::set(false)
}

/// Restores what was before when dropped. Stays on its thread.
#[must_use = "what was before is restored when the guard is dropped"]
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
