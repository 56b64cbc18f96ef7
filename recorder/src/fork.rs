//! Stops recording in forked children, which have neither the collector thread nor a file.

#![cfg_attr(unix, expect(unsafe_code, reason = "registers a fork handler with the C library"))]

#[cfg(unix)]
use crate::level::{self, Wanted};

#[cfg(unix)]
extern "C" fn in_child() {
    level::set(Wanted::default());
}

/// Turns recording off in future children of this process. Children that execute another program are not affected.
#[cfg(unix)]
pub(crate) fn stop_in_children() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        // SAFETY: `in_child` only stores to atomics, which a forked child may do, and is never unloaded.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
}

/// Does nothing, since this platform has no fork.
#[cfg(not(unix))]
pub(crate) fn stop_in_children() {}
