//! Advice for an exceeded budget of the peak.

use highwater_analysis::Metric;
use highwater_analysis::budget::{Budget, Outcome};
use highwater_app::answers::plan::AdvicePeaks;
use highwater_snapshots::Trace;

/// Returns what recomputing modules gives, if `outcome` is an exceeded peak of requested bytes and they lower it.
pub(super) fn advice(outcome: &Outcome, metric: Metric, trace: &Trace) -> Option<String> {
    let is_peak = matches!(outcome.budget, Budget::Peak(_) | Budget::Growth(_)) && metric == Metric::Requested;
    if !is_peak || !outcome.is_broken() {
        return None;
    }
    let peaks = AdvicePeaks::of(trace, outcome.moment.device);
    if peaks.lowers(outcome.actual_bytes) { peaks.of_modules(outcome.actual_bytes) } else { None }
}
