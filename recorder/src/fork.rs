//! Fork: a forked child has neither the recorder's thread nor a file of its own, so nothing is recorded there.

#![expect(unsafe_code, reason = "asks the C library to be told of forks")]

use std::sync::Once;

use crate::level::{self, Wanted};

extern "C" fn in_child() {
    level::set(Wanted::default());
}

/// Switches recording off in children that this process forks from now on. A child that runs another program is not
/// concerned: that begins anew.
#[cfg(unix)]
pub(crate) fn stop_in_children() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: `in_child` only stores to atomics, which a forked child may do, and lives as long as the program.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
}

/// There is no fork here.
#[cfg(not(unix))]
pub(crate) fn stop_in_children() {}
