//! The CPU time of all threads of the process, which is more reliable than a clock on a shared machine.

use std::time::Duration;

use criterion::measurement::{Measurement, ValueFormatter, WallTime};

/// Measures the time on a processor, summed over threads, if `HIGHWATER_BENCH_CPU` is set; the clock otherwise.
pub(crate) struct CpuTime {
    clock: WallTime,
    is_cpu: bool,
}

impl CpuTime {
    pub(crate) fn from_environment() -> Self {
        Self { clock: WallTime, is_cpu: std::env::var_os("HIGHWATER_BENCH_CPU").is_some() }
    }
}

/// The CPU time so far. The kernel reports it for each thread, to a few milliseconds.
fn spent() -> Duration {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let of_task = |task: std::fs::DirEntry| {
        let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<u64>().ok()
    };
    Duration::from_nanos(tasks.filter_map(of_task).sum())
}

impl Measurement for CpuTime {
    type Intermediate = (Option<Duration>, std::time::Instant);
    type Value = Duration;

    fn start(&self) -> Self::Intermediate {
        (self.is_cpu.then(spent), self.clock.start())
    }

    fn end(&self, (before, started): Self::Intermediate) -> Duration {
        match before {
            Some(before) => spent().saturating_sub(before),
            None => self.clock.end(started),
        }
    }

    fn add(&self, one: &Duration, other: &Duration) -> Duration {
        *one + *other
    }

    fn zero(&self) -> Duration {
        Duration::ZERO
    }

    fn to_f64(&self, value: &Duration) -> f64 {
        // Never nothing, which a mean could not be made of.
        (value.as_nanos() as f64).max(1.0)
    }

    fn formatter(&self) -> &dyn ValueFormatter {
        self.clock.formatter()
    }
}
