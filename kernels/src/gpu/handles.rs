//! Driver handles that may be sent between threads.
#![expect(unsafe_code, reason = "says that the driver's handles may be used on any thread")]

/// A pointer from the driver that is never dereferenced here, only passed back.
#[derive(Debug)]
pub(super) struct Handle<T>(pub(super) *mut T);

impl<T> Clone for Handle<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Handle<T> {}

// SAFETY: the driver's functions may be called from any thread with any handle, once its context is current there;
// "CUDA C++ Programming Guide", section "Driver API".
unsafe impl<T> Send for Handle<T> {}
// SAFETY: as above; shared handles are only copied.
unsafe impl<T> Sync for Handle<T> {}
