//! Facts about a device, as text.

use highwater_analysis::DeviceSummary;
use highwater_snapshots::format_bytes;

/// Formats the memory size of a device, such as `80 GiB` or `78.51 GiB (inferred)`; `None` if it is unknown.
pub fn capacity_text(summary: &DeviceSummary) -> Option<String> {
    let inferred = if summary.capacity_is_inferred { " (inferred)" } else { "" };
    (summary.capacity_bytes > 0).then(|| format!("{}{inferred}", format_bytes(summary.capacity_bytes)))
}
