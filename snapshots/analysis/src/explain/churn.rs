//! Advice on segments that are freed to the driver and allocated from it again and again.

use std::collections::HashMap;

use super::peak_context::{PeakContext, TOP_LINES};
use super::remedy::{Advice, Remedy};
use highwater_snapshots::line_text::unique_suffixes;
use highwater_snapshots::units::{format_bytes, format_count};

/// Names the lines that count most: `train.py:12 step (300), eval.py:3 run (20)`.
fn most(lines: &HashMap<String, u64>) -> Option<String> {
    let mut rows: Vec<(&str, u64)> = lines.iter().map(|(line, count)| (line.as_str(), *count)).collect();
    rows.sort_by_key(|(line, count)| (std::cmp::Reverse(*count), *line));
    rows.truncate(TOP_LINES);
    let names = unique_suffixes(&rows.iter().map(|(line, _)| *line).collect::<Vec<_>>());
    let texts = names.iter().zip(&rows).map(|(name, (_, count))| format!("{name} ({})", format_count(*count)));
    let texts: Vec<String> = texts.collect();
    (!texts.is_empty()).then(|| texts.join(", "))
}

impl PeakContext<'_> {
    /// Advice on segments that are freed and allocated again, as a program does that empties the allocator's cache.
    pub(super) fn segment_churn(&self) -> Option<Advice> {
        let churn = &self.findings.churn;
        if !churn.is_much() {
            return None;
        }
        let at = |what: &str, lines| most(lines).map_or_else(String::new, |lines| format!(" {what} at {lines}."));
        let remedy = if self.trace.header.recorder.starts_with("PyTorch") {
            "Call `torch.cuda.empty_cache()` less often, or not at all: the allocator reuses what it has cached."
        } else {
            "Keep segments for reuse instead of freeing them."
        };
        let text = format!(
            "{} segments were allocated and {} freed in {} events: {} were allocated again after others were freed ({}), \
             and each call of the driver takes time.{}{} {remedy}",
            format_count(churn.first.count + churn.again.count),
            format_count(churn.freed),
            format_count(churn.events),
            format_count(churn.again.count),
            format_bytes(churn.again.bytes),
            at("Freed", &churn.freed_at),
            at("Allocated again", &churn.again.at),
        );
        let (without, settings, condition) = (None, None, None);
        Some(Advice { remedy: Remedy::KeepSegments, bytes: 0, without, settings, condition, text })
    }
}
