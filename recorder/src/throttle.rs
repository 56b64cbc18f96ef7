//! Limits how often a driver is queried for the memory in use, since each query takes several microseconds.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Minimum interval between two queries, in nanoseconds.
const INTERVAL_NS: u64 = 10_000_000;
/// Minimum ratio of the interval to the duration of a query.
const SHARE: u64 = 100;

/// Skips queries that follow another query too soon.
#[derive(Debug, Default)]
pub struct Throttle {
    /// Time from which on a query is made again.
    next_ns: AtomicU64,
}

impl Throttle {
    /// Creates a throttle. The first query is made.
    pub const fn new() -> Self {
        Self { next_ns: AtomicU64::new(0) }
    }

    /// Returns the result of `query`, or `None` if it fails or is skipped. It is not skipped if it `is_due`.
    pub fn run<T>(&self, is_due: bool, query: impl FnOnce() -> Option<T>) -> Option<T> {
        let now = now_ns();
        if !is_due && now < self.next_ns.load(Ordering::Relaxed) {
            return None;
        }
        let result = query()?;
        let took = now_ns().saturating_sub(now);
        let pause = INTERVAL_NS.max(took.saturating_mul(SHARE));
        self.next_ns.store(now.saturating_add(pause), Ordering::Relaxed);
        Some(result)
    }
}

fn now_ns() -> u64 {
    static ORIGIN: OnceLock<Instant> = OnceLock::new();
    u64::try_from(ORIGIN.get_or_init(Instant::now).elapsed().as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_skipped_after_another_unless_it_is_due() {
        let throttle = Throttle::new();
        assert_eq!(throttle.run(false, || None::<u8>), None, "a failed query does not count");
        assert_eq!(throttle.run(false, || Some(1)), Some(1));
        // The interval after this query lasts a hundred times as long as the query itself.
        let slow = || {
            std::thread::sleep(std::time::Duration::from_millis(20));
            Some(2)
        };
        assert_eq!(throttle.run(true, slow), Some(2));
        assert_eq!(throttle.run(false, || Some(3)), None);
        assert_eq!(throttle.run(true, || Some(4)), Some(4));
    }
}
