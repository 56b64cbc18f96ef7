//! Advice for an exceeded budget of the peak.

use highwater_analysis::Metric;
use highwater_analysis::budget::{Budget, Outcome};
use highwater_app::answers::plan::Reach;
use highwater_snapshots::Trace;

/// Returns what recomputing modules gives, if `outcome` is an exceeded peak of requested bytes and they lower it.
pub(super) fn advice(outcome: &Outcome, metric: Metric, trace: &Trace) -> Option<String> {
    let is_peak = matches!(outcome.budget, Budget::Peak(_) | Budget::Growth(_)) && metric == Metric::Requested;
    if !is_peak || !outcome.is_broken() {
        return None;
    }
    let reach = Reach::of(trace, outcome.moment.device);
    if reach.lowers(outcome.actual_bytes) { reach.of_modules(outcome.actual_bytes) } else { None }
}
