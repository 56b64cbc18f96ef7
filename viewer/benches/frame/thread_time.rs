//! The CPU time of the calling thread, in nanoseconds.

use std::time::Duration;

/// The CPU time so far.
#[expect(unsafe_code, reason = "the system tells it by a pointer")]
pub(crate) fn spent() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a timespec of ours, which the call fills.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    assert_eq!(failed, 0, "this system tells no thread's time");
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}
