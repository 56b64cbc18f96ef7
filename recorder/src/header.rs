//! Header: what a recording says of the process that made it.

use highwater_snapshots::trace::Header;

use crate::clock::Clock;
use crate::level::Level;
use crate::options::HistoryOptions;

/// The facts of this process. Rank and world size come from the variables that launchers set (`RANK`, `WORLD_SIZE`).
pub(crate) fn of_process(options: &HistoryOptions, clock: &Clock) -> Header {
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse().ok());
    let level = match options.level {
        Level::Off => "off",
        Level::State => "state",
        Level::Events => "events",
        Level::Stacks => "stacks",
    };
    Header {
        recorder: concat!("highwater ", env!("CARGO_PKG_VERSION")).to_owned(),
        program: std::env::args().collect::<Vec<_>>().join(" "),
        host: host_name(),
        pid: std::process::id(),
        rank: number("RANK"),
        world_size: number("WORLD_SIZE"),
        started_unix_us: clock.started_unix_us,
        clock: Clock::NAME.to_owned(),
        level: level.to_owned(),
        ring_capacity: options.ring_events.map(|events| events as u64),
        facts: Vec::new(),
    }
}

fn host_name() -> String {
    let from_kernel = std::fs::read_to_string("/proc/sys/kernel/hostname").map(|name| name.trim().to_owned());
    from_kernel.or_else(|_| std::env::var("HOSTNAME")).unwrap_or_default()
}
