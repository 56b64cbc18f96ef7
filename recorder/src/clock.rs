//! Event timestamps that take a few nanoseconds to read, and are later converted to nanoseconds since the start.
//!
//! On x86-64, if the time stamp counter is invariant and the kernel itself uses it as its clock source, an event stores
//! that counter. From time to time the collector reads it together with the system's clock, and interpolates linearly
//! between such pairs. Otherwise an event stores the system's monotonic clock.

#![cfg_attr(not(target_family = "wasm"), expect(unsafe_code, reason = "reads the processor's counter"))]

use std::sync::OnceLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

static ORIGIN: OnceLock<Instant> = OnceLock::new();

fn monotonic_ns() -> u64 {
    ORIGIN.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

#[cfg(target_arch = "x86_64")]
mod source {
    use std::arch::x86_64::{__cpuid, _rdtsc};
    use std::sync::Once;
    use std::sync::atomic::{AtomicBool, Ordering};

    static HAS_EVEN_COUNTER: AtomicBool = AtomicBool::new(false);

    /// Chooses the clock of event timestamps. Must be called before anything is recorded.
    pub(super) fn choose() {
        static ONCE: Once = Once::new();
        ONCE.call_once(look);
    }

    fn look() {
        let kernel = std::fs::read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource");
        let kernel_trusts_it = kernel.is_ok_and(|name| ["tsc", "kvm-clock"].contains(&name.trim()));
        // Leaf 8000_0007, EDX bit 8: invariant TSC, which runs at a constant rate in all power states.
        let is_even = __cpuid(0x8000_0000).eax >= 0x8000_0007 && __cpuid(0x8000_0007).edx & (1 << 8) != 0;
        HAS_EVEN_COUNTER.store(is_even && kernel_trusts_it, Ordering::Relaxed);
    }

    #[inline(always)]
    pub(super) fn ticks() -> u64 {
        if HAS_EVEN_COUNTER.load(Ordering::Relaxed) {
            // SAFETY: every x86-64 processor has the instruction; it only reads a register.
            return unsafe { _rdtsc() };
        }
        super::monotonic_ns()
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod source {
    pub(super) fn choose() {}

    #[inline(always)]
    pub(super) fn ticks() -> u64 {
        super::monotonic_ns()
    }
}

/// Returns the time stamp counter, or the monotonic clock in nanoseconds if the counter is not used.
#[inline(always)]
pub(crate) fn ticks() -> u64 {
    source::ticks()
}

/// The same moment on both clocks.
#[derive(Clone, Copy, Debug)]
struct Pair {
    ticks: u64,
    ns: u64,
}

impl Pair {
    fn now() -> Self {
        // The counter is read before and after, to detect an interruption between the two; the closest of four wins.
        let read = || {
            let before = ticks();
            let ns = monotonic_ns();
            let after = ticks();
            (after.saturating_sub(before), Self { ticks: before.midpoint(after), ns })
        };
        let first = read();
        let best = (0..3).map(|_| read()).fold(first, |best, next| if next.0 < best.0 { next } else { best });
        best.1
    }
}

/// Minimum distance between the former and the last reading, in nanoseconds, before the former one is replaced.
const FAR_NS: u64 = 10_000_000;

/// The rate of one nanosecond per tick, as a fixed-point number with 32 fractional bits.
const ONE: u64 = 1 << 32;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start_ns: u64,
    former: Pair,
    last: Pair,
    /// Nanoseconds per tick between these readings, in units of 2^-32.
    rate: u64,
    pub(crate) started_unix_us: u64,
}

impl Clock {
    pub(crate) const NAME: &'static str = "monotonic";

    pub(crate) fn start() -> Self {
        source::choose();
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = Pair::now();
        Self { start_ns: now.ns, former: now, last: now, rate: ONE, started_unix_us: since_epoch.as_micros() as u64 }
    }

    /// Reads both clocks again, so that timestamps taken before are interpolated rather than extrapolated.
    pub(crate) fn advance(&mut self) {
        let now = Pair::now();
        if now.ticks <= self.last.ticks || now.ns <= self.last.ns {
            // On some machines the counter restarts after sleep.
            if now.ticks < self.last.ticks {
                (self.former, self.last, self.rate) = (now, now, ONE);
            }
            return;
        }
        // Readings that are close together give an inexact slope: the older one stays until the last is far from it.
        if self.last.ns - self.former.ns >= FAR_NS {
            self.former = self.last;
        }
        self.last = now;
        let run = now.ticks.saturating_sub(self.former.ticks).max(1);
        let rise = now.ns.saturating_sub(self.former.ns);
        // Rounded down, so that times before a reading are not after it.
        self.rate = u64::try_from((u128::from(rise) << 32) / u128::from(run)).unwrap_or(u64::MAX);
    }

    /// Converts a timestamp to nanoseconds since the recording began; 0 if it is earlier.
    #[inline]
    pub(crate) fn ns(&self, ticks: u64) -> u64 {
        let Pair { ticks: from, ns } = self.former;
        let since = |ticks: u64| ((u128::from(ticks) * u128::from(self.rate)) >> 32) as u64;
        let at = match ticks.checked_sub(from) {
            Some(after) => ns.saturating_add(since(after)),
            None => ns.saturating_sub(since(from - ticks)),
        };
        at.saturating_sub(self.start_ns)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_is_noted_between_two_readings_lies_between_them_as_the_system_s_clock_says() {
        let mut clock = Clock::start();
        let began = Instant::now();
        std::thread::sleep(Duration::from_millis(3));
        let (noted, elapsed) = (ticks(), began.elapsed());
        std::thread::sleep(Duration::from_millis(2));
        clock.advance();
        let found = Duration::from_nanos(clock.ns(noted));
        // The machine may have been busy with something else between the two readings of each.
        assert!(found.abs_diff(elapsed) < Duration::from_secs(1), "{found:?} beside {elapsed:?}");
        assert_eq!(clock.ns(0), 0, "what was noted before the beginning is at the beginning");
    }

    #[test]
    fn times_do_not_go_back_where_one_reading_follows_another() {
        let mut clock = Clock::start();
        let mut last = 0;
        for _ in 0..200 {
            let noted = ticks();
            clock.advance();
            let now = clock.ns(noted);
            assert!(now + 20_000_000 >= last, "{now} after {last}");
            last = now;
        }
    }
}
