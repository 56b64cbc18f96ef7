//! Clock: nanoseconds since a recording began.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// A monotonic clock with its origin in Unix time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    origin: Instant,
    /// Unix time of the origin, in microseconds.
    pub(crate) started_unix_us: u64,
}

impl Clock {
    /// How the clock is named in files.
    pub(crate) const NAME: &'static str = "monotonic";

    /// A clock that starts now.
    pub(crate) fn start() -> Self {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { origin: Instant::now(), started_unix_us: since_epoch.as_micros() as u64 }
    }

    /// Nanoseconds since the origin.
    #[inline]
    pub(crate) fn now_ns(&self) -> u64 {
        self.origin.elapsed().as_nanos() as u64
    }
}
