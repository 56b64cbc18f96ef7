//! Gradient mode, which determines whether operations on this thread are recorded for backward, and how much they save.

use std::cell::Cell;
use std::marker::PhantomData;

thread_local! {
    static ENABLED: Cell<bool> = const { Cell::new(true) };
    static RECOMPUTES: Cell<bool> = const { Cell::new(true) };
}

/// Returns whether operations on this thread are recorded for backward.
pub fn is_grad_enabled() -> bool {
    ENABLED.get()
}

/// Disables gradients on this thread until the guard is dropped.
pub fn no_grad() -> GradModeGuard {
    GradModeGuard::set(false)
}

/// Enables gradients again within [`no_grad`], until the guard is dropped.
pub fn enable_grad() -> GradModeGuard {
    GradModeGuard::set(true)
}

/// Restores the previous mode when dropped. Cannot be sent to another thread.
#[must_use = "dropping the guard immediately restores the previous mode"]
#[derive(Debug)]
pub struct GradModeGuard {
    former: bool,
    stays_on_its_thread: PhantomData<*const ()>,
}

impl GradModeGuard {
    fn set(enabled: bool) -> Self {
        Self { former: ENABLED.replace(enabled), stays_on_its_thread: PhantomData }
    }
}

impl Drop for GradModeGuard {
    fn drop(&mut self) {
        ENABLED.set(self.former);
    }
}

/// Returns whether results that are cheap to compute are recomputed in backward instead of being saved.
pub(crate) fn recomputes() -> bool {
    RECOMPUTES.get()
}

/// Makes operations on this thread save everything that their gradients read until the guard is dropped, even tensors
/// that are cheap to recompute (results of activation functions, normalizations and products that the next operation
/// would save). Backward is then a little faster, and needs as much memory as in PyTorch.
pub fn no_recompute() -> RecomputeGuard {
    RecomputeGuard::set(false)
}

/// Restores the previous mode when dropped. Cannot be sent to another thread.
#[must_use = "dropping the guard immediately restores the previous mode"]
#[derive(Debug)]
pub struct RecomputeGuard {
    former: bool,
    stays_on_its_thread: PhantomData<*const ()>,
}

impl RecomputeGuard {
    pub(crate) fn set(recomputes: bool) -> Self {
        Self { former: RECOMPUTES.replace(recomputes), stays_on_its_thread: PhantomData }
    }
}

impl Drop for RecomputeGuard {
    fn drop(&mut self) {
        RECOMPUTES.set(self.former);
    }
}
