//! Advice on source lines that leak memory in every step up to the peak.

use std::collections::HashSet;

use super::peak_context::{LEAST_PERCENT, PeakContext, TOP_LINES};
use super::remedy::{Advice, Remedy};
use crate::between::bytes_of;
use crate::filter::Filter;
use crate::growth::{Leaks, StepWindow};
use crate::matches::Matches;
use highwater_snapshots::BlockId;
use highwater_snapshots::line_text::unique_suffixes;
use highwater_snapshots::units::format_bytes;

impl PeakContext<'_> {
    /// Advice on the memory that leaking lines keep at the peak from earlier steps.
    pub(super) fn fix_leak(&self) -> Option<Advice> {
        let trace = self.trace;
        let window = StepWindow::of(trace, self.series.device(), None, None).ok().filter(StepWindow::is_whole)?;
        let matches = Matches::of(trace, &Filter::default());
        let leaks = Leaks::of(trace, self.live, self.peak.metric, &window, &matches);
        let step_of = |row: usize| trace.spans.at(trace.blocks.alloc[row]).and_then(|span| span.step);
        let mut kept = leaks.kept_among(trace, self.at_peak);
        kept.retain(|id| step_of(id.0 as usize).is_some_and(|step| Some(step) != self.peak.step));
        let steps = kept.iter().filter_map(|id| step_of(id.0 as usize));
        let (first, last) = steps.fold((u32::MAX, 0), |(first, last), step| (first.min(step), last.max(step)));
        let steps = if first == last { format!("step {first}") } else { format!("steps {first} to {last}") };
        let bytes = kept.iter().map(|id| bytes_of(trace, self.peak.metric, *id)).sum();
        if !self.is_much(bytes, LEAST_PERCENT) {
            return None;
        }
        let names = unique_suffixes(&leaks.lines.iter().map(|leak| leak.line.as_str()).collect::<Vec<_>>());
        let told = leaks.lines.iter().zip(names).take(TOP_LINES);
        let mut lines: Vec<String> =
            told.map(|(leak, line)| format!("{line} leaks {} a step", format_bytes(leak.bytes_per_step))).collect();
        match leaks.lines.len().saturating_sub(TOP_LINES) {
            0 => {}
            1 => lines.push("1 more line leaks".to_owned()),
            more => lines.push(format!("{more} more lines leak")),
        }
        let all: HashSet<BlockId> = kept.into_iter().collect();
        let without = self.left_without(|id| all.contains(&id));
        let text = format!(
            "{} ({}) at the peak were kept from {steps}: {}; {}. `highwater growth` shows where.",
            format_bytes(bytes),
            self.share(bytes),
            lines.join(", "),
            self.peak_without(&without),
        );
        let without = Some(without);
        Some(Advice { remedy: Remedy::FixLeak, bytes, without, settings: None, condition: None, text })
    }
}
