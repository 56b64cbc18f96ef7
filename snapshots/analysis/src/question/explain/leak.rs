//! Advice on source lines that leak memory in every step up to the peak.

use super::peak_context::{PeakContext, TOP_LINES};
use super::remedy::{Advice, Remedy};
use highwater_snapshots::line_text::unique_suffixes;
use highwater_snapshots::units::format_bytes;

impl PeakContext<'_> {
    pub(super) fn fix_leak(&self) -> Option<Advice> {
        let leak = self.findings.leak.as_ref()?;
        let (first, last) = leak.steps;
        let steps = if first == last { format!("step {first}") } else { format!("steps {first} to {last}") };
        let all = &leak.leaks.lines;
        let names = unique_suffixes(&all.iter().map(|leak| leak.line.as_str()).collect::<Vec<_>>());
        let listed = all.iter().zip(names).take(TOP_LINES);
        let mut lines: Vec<String> =
            listed.map(|(leak, line)| format!("{line} leaks {} a step", format_bytes(leak.bytes_per_step))).collect();
        match all.len().saturating_sub(TOP_LINES) {
            0 => {}
            1 => lines.push("1 more line leaks".to_owned()),
            more => lines.push(format!("{more} more lines leak")),
        }
        let (bytes, without) = (leak.bytes, Some(leak.without));
        let of_these = match leak.earlier_bytes == bytes {
            true => format!("They were kept from {steps}"),
            false => format!("{} of these were kept from {steps}", format_bytes(leak.earlier_bytes)),
        };
        let text = format!(
            "{} at the peak leak: {}. {of_these}; {}. `highwater growth` shows where.",
            self.with_share(bytes),
            lines.join(", "),
            self.peak_without(&leak.without),
        );
        Some(Advice { without, ..Advice::new(Remedy::FixLeak, bytes, text) })
    }
}
