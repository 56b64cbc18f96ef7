//! Handles: the driver's pointers, which may go from thread to thread.
#![expect(unsafe_code, reason = "says that the driver's handles may be used on any thread")]

/// A pointer of the driver's that is never read here, only handed back.
#[derive(Debug)]
pub(super) struct Handle<T>(pub(super) *mut T);

impl<T> Clone for Handle<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Handle<T> {}

// SAFETY: the driver's functions are safe to call from any thread, with any handle, once its context is current there;
// "CUDA C++ Programming Guide", section "Driver API".
unsafe impl<T> Send for Handle<T> {}
// SAFETY: as above; a shared handle is only copied.
unsafe impl<T> Sync for Handle<T> {}
