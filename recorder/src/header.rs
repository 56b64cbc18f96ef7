//! The header of a recording, which describes the process that made it.

use highwater_snapshots::trace::Header;

use crate::clock::Clock;
use crate::level::Level;
use crate::naming::Rank;
use crate::options::HistoryOptions;

pub(crate) fn of_process(options: &HistoryOptions, clock: &Clock) -> Header {
    let Rank { rank, world_size } = Rank::of_process();
    let level = match options.level {
        Level::Off => "off",
        Level::State => "state",
        Level::Events => "events",
        Level::Stacks => "stacks",
    };
    Header {
        recorder: concat!("highwater ", env!("CARGO_PKG_VERSION")).to_owned(),
        program: std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" "),
        host: host_name(),
        pid: std::process::id(),
        rank,
        world_size,
        started_unix_us: clock.started_unix_us,
        clock: Clock::NAME.to_owned(),
        level: level.to_owned(),
        ring_capacity: options.ring_events.map(|events| events as u64),
        facts: Vec::new(),
    }
}

pub(crate) fn host_name() -> String {
    let from_kernel = std::fs::read_to_string("/proc/sys/kernel/hostname").map(|name| name.trim().to_owned());
    from_kernel.or_else(|_| std::env::var("HOSTNAME")).unwrap_or_default()
}
