//! Gradient mode: whether operations on this thread are recorded for backward, and how much of them is kept.

use std::cell::Cell;
use std::marker::PhantomData;

thread_local! {
    static ENABLED: Cell<bool> = const { Cell::new(true) };
    static RECOMPUTES: Cell<bool> = const { Cell::new(true) };
}

/// Whether operations on this thread are recorded for backward.
pub fn is_grad_enabled() -> bool {
    ENABLED.get()
}

/// Switches recording off on this thread until the guard drops.
pub fn no_grad() -> GradModeGuard {
    GradModeGuard::set(false)
}

/// Switches recording on again within [`no_grad`], until the guard drops.
pub fn enable_grad() -> GradModeGuard {
    GradModeGuard::set(true)
}

/// Restores the former mode when dropped. Stays on its thread.
#[must_use = "the mode is restored when the guard is dropped"]
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

/// Whether what is cheap to compute again is recomputed in backward, instead of being kept.
pub(crate) fn recomputes() -> bool {
    RECOMPUTES.get()
}

/// Has operations on this thread keep all that their gradients read, even what is cheap to compute again (results of
/// activation functions, normalisations and products that the next operation would save), until the guard drops.
/// Backward is then a little faster, and needs as much memory as in PyTorch.
pub fn no_recompute() -> RecomputeGuard {
    RecomputeGuard::set(false)
}

/// Restores the former way of keeping when dropped. Stays on its thread.
#[must_use = "the former way is restored when the guard is dropped"]
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
