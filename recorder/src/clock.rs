//! Clock: what a moment costs a few nanoseconds to note, and later is worth in nanoseconds since a recording began.
//!
//! On x86-64, where the processor's counter runs evenly on all cores and the kernel itself tells time by it, an event
//! notes that counter; the collector reads it beside the system's clock now and then, and goes straight from one such
//! pair to the next. Elsewhere an event notes the system's monotonic clock.

#![expect(unsafe_code, reason = "reads the processor's counter")]

use std::sync::OnceLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Where the system's monotonic clock is counted from, for the whole process.
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

    /// Decides which clock events note, once for the process; called before anything is recorded.
    pub(super) fn choose() {
        static ONCE: Once = Once::new();
        ONCE.call_once(look);
    }

    fn look() {
        let kernel = std::fs::read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource");
        let kernel_trusts_it = kernel.is_ok_and(|name| ["tsc", "kvm-clock"].contains(&name.trim()));
        // Leaf 8000_0007 tells in bit 8 that the counter runs at one rate whatever the processor does.
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

/// The moment, in the unit of this machine's counter.
#[inline(always)]
pub(crate) fn ticks() -> u64 {
    source::ticks()
}

/// One moment on both clocks.
#[derive(Clone, Copy, Debug)]
struct Pair {
    ticks: u64,
    ns: u64,
}

impl Pair {
    fn now() -> Self {
        // The counter is read on both sides, so that an interruption between the two shows; the closest of a few wins.
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

/// Two readings are this far apart, where time allows: a thousand times what reading both takes.
const FAR_NS: u64 = 10_000_000;

/// Nanoseconds since a recording began, from what events noted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    /// The system's clock when the recording began.
    start_ns: u64,
    former: Pair,
    last: Pair,
    /// Unix time of the beginning, in microseconds.
    pub(crate) started_unix_us: u64,
}

impl Clock {
    /// How the clock is named in files.
    pub(crate) const NAME: &'static str = "monotonic";

    /// A clock that starts now.
    pub(crate) fn start() -> Self {
        source::choose();
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = Pair::now();
        Self { start_ns: now.ns, former: now, last: now, started_unix_us: since_epoch.as_micros() as u64 }
    }

    /// Reads both clocks anew: what was noted up to now lies between the former reading and this.
    pub(crate) fn advance(&mut self) {
        let now = Pair::now();
        if now.ticks <= self.last.ticks || now.ns <= self.last.ns {
            // Some machines count anew after they slept.
            if now.ticks < self.last.ticks {
                (self.former, self.last) = (now, now);
            }
            return;
        }
        // Readings that lie close together make crooked lines: the former one stays until the last is far from it.
        if self.last.ns - self.former.ns >= FAR_NS {
            self.former = self.last;
        }
        self.last = now;
    }

    /// Nanoseconds since the beginning at which `ticks` was noted.
    #[inline]
    pub(crate) fn ns(&self, ticks: u64) -> u64 {
        let Pair { ticks: from, ns } = self.former;
        let (run, rise) = (self.last.ticks.saturating_sub(from), self.last.ns.saturating_sub(ns));
        let since = |ticks: u64| match run {
            0 => ticks,
            run => (u128::from(ticks) * u128::from(rise) / u128::from(run)) as u64,
        };
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
