//! Formats the statistics as a table.

use std::fmt;

use highwater_recorder::snapshots::units::{format_bytes, format_count};

use super::stats::{AllocStats, Stat, StatArray};

/// Prints the statistics as a table; returned by [`AllocStats::summary`].
#[derive(Clone, Copy, Debug)]
pub struct Summary<'a> {
    stats: &'a AllocStats,
}

impl AllocStats {
    /// Returns a multi-line table with the current value, peak and accumulated totals of each quantity, for both pools.
    pub fn summary(&self) -> Summary<'_> {
        Summary { stats: self }
    }
}

const WIDTHS: [usize; 5] = [24, 12, 12, 12, 12];

impl fmt::Display for Summary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stats = self.stats;
        row(f, &["memory", "now", "peak", "allocated in all", "freed in all"].map(str::to_owned))?;
        let bytes: [(&str, &StatArray); 5] = [
            ("requested", &stats.requested_bytes),
            ("allocated", &stats.allocated_bytes),
            ("active", &stats.active_bytes),
            ("reserved", &stats.reserved_bytes),
            ("stuck in split segments", &stats.inactive_split_bytes),
        ];
        for (name, stat) in bytes {
            array(f, name, stat, format_bytes)?;
        }
        let counts: [(&str, &StatArray); 4] = [
            ("blocks allocated", &stats.allocation),
            ("blocks active", &stats.active),
            ("segments", &stats.segment),
            ("stuck ranges", &stats.inactive_split),
        ];
        for (name, stat) in counts {
            array(f, name, stat, format_count)?;
        }
        single(f, "oversize blocks", &stats.oversize_allocations)?;
        single(f, "oversize segments", &stats.oversize_segments)?;
        write!(
            f,
            "driver calls: {} to reserve memory, {} to release it; out of memory: {}; retries: {}; waits for all streams: {}",
            format_count(stats.num_device_alloc),
            format_count(stats.num_device_free),
            format_count(stats.num_ooms),
            format_count(stats.num_alloc_retries),
            format_count(stats.num_sync_all_streams)
        )
    }
}

fn array(f: &mut fmt::Formatter<'_>, name: &str, stat: &StatArray, print: fn(u64) -> String) -> fmt::Result {
    cells(f, name, &stat.all, print)?;
    cells(f, "  large pool", &stat.large_pool, print)?;
    cells(f, "  small pool", &stat.small_pool, print)
}

fn single(f: &mut fmt::Formatter<'_>, name: &str, stat: &Stat) -> fmt::Result {
    cells(f, name, stat, format_count)
}

fn cells(f: &mut fmt::Formatter<'_>, name: &str, stat: &Stat, print: fn(u64) -> String) -> fmt::Result {
    row(f, &[name.to_owned(), print(stat.current), print(stat.peak), print(stat.allocated), print(stat.freed)])
}

fn row(f: &mut fmt::Formatter<'_>, cells: &[String; 5]) -> fmt::Result {
    write!(f, "{:<width$}", cells[0], width = WIDTHS[0])?;
    for (cell, width) in cells.iter().zip(WIDTHS).skip(1) {
        write!(f, "{cell:>width$}")?;
    }
    writeln!(f)
}
