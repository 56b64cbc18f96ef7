//! Advice on segments that are repeatedly freed to the driver and allocated again.

use std::collections::HashMap;

use super::peak_context::{PeakContext, TOP_LINES};
use super::remedy::{Advice, Remedy};
use highwater_snapshots::line_text::unique_suffixes;
use highwater_snapshots::units::{format_bytes, format_count};

/// Lists the lines with the highest counts, such as `train.py:12 step (300), eval.py:3 run (20)`; `None` without lines.
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
    pub(super) fn segment_churn(&self) -> Option<Advice> {
        let churn = &self.findings.churn;
        if !churn.is_significant() {
            return None;
        }
        let at = |what: &str, lines| most(lines).map_or_else(String::new, |lines| format!(" {what} at {lines}."));
        let is_pytorch = self.trace.header.recorder.starts_with("PyTorch");
        let (short, reuse) = (
            "when memory is short, the allocator frees cached segments that do not fit the request or belong to \
             another stream",
            "request equal sizes on one stream, so that cached segments can be reused, or lower the peak",
        );
        let remedy = match (churn.is_by_requests(), is_pytorch) {
            (true, _) => format!("The allocator frees them itself: {short}. To avoid this, {reuse}."),
            (false, true) if churn.has_stacks => {
                "Call `torch.cuda.empty_cache()` less often, or not at all: the allocator reuses what it has cached."
                    .to_owned()
            }
            (false, true) => format!(
                "No call stacks show who frees them. If the program calls `torch.cuda.empty_cache()`, call it less \
                 often; if not, {short}: {reuse}."
            ),
            (false, false) => "Keep segments for reuse instead of freeing them.".to_owned(),
        };
        let text = format!(
            "{} segments were allocated and {} freed in {} events: {} were allocated again after others were freed \
             ({}), and each call of the driver takes time.{}{} {remedy}",
            format_count(churn.first.count + churn.again.count),
            format_count(churn.freed),
            format_count(churn.events),
            format_count(churn.again.count),
            format_bytes(churn.again.bytes),
            at("Freed", &churn.freed_at),
            at("Allocated again", &churn.again.at),
        );
        Some(Advice::new(Remedy::KeepSegments, 0, text))
    }
}
