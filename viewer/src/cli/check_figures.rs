//! The JSON object of `check --json`.

use std::collections::BTreeMap;

use highwater_analysis::budget::{Culprit, Differences, Outcome};
use highwater_analysis::diff::DiffGroup;
use highwater_analysis::{GroupKey, Metric};
use highwater_app::figures::moment::MomentFigures;
use highwater_snapshots::{DeviceId, Trace};
use serde::Serialize;

use crate::cli::output::caveats::TrustFigures;

#[derive(Debug, Serialize)]
pub(super) struct CheckFigures<'a> {
    pub(super) passed: bool,
    pub(super) broken: Vec<RuleFigures>,
    /// Budgets that are met as far as the recording goes, which is not far enough.
    pub(super) undecided: Vec<RuleFigures>,
    pub(super) rules: Vec<RuleFigures>,
    pub(super) file: String,
    pub(super) baseline: Option<String>,
    /// The default device of those that were measured.
    pub(super) device: u16,
    pub(super) devices: Vec<u16>,
    pub(super) unmeasured: Vec<Unmeasured<'a>>,
    pub(super) metric: Metric,
    /// Returns the figures of `device`.
    pub(super) differences: Option<DifferenceFigures>,
    pub(super) differences_by_device: Vec<DifferenceFigures>,
    pub(super) oom: Option<String>,
    /// How the baseline was recorded otherwise, if one of the two is of a simulated GPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) baseline_caveat: Option<String>,
    pub(super) trust: TrustFigures,
    pub(super) problems: Vec<String>,
}

/// A budget that cannot be measured on a device, while it can on others.
#[derive(Debug, Serialize)]
pub(super) struct Unmeasured<'a> {
    pub(super) device: u16,
    pub(super) why: &'a str,
}

#[derive(Debug, Serialize)]
pub(super) struct RuleFigures {
    pub(super) rule: String,
    pub(super) device: u16,
    pub(super) subject: String,
    pub(super) limit_bytes: u64,
    pub(super) actual_bytes: u64,
    pub(super) headroom_bytes: i128,
    pub(super) baseline_bytes: Option<u64>,
    pub(super) is_broken: bool,
    /// Why the budget, which is met, cannot be confirmed; null if it can, or is exceeded.
    pub(super) unconfirmed_because: Option<String>,
    pub(super) moment: MomentFigures,
    /// A sentence; null if the budget is met.
    pub(super) culprit: Option<String>,
    pub(super) culprit_group: Option<CulpritFigures>,
    /// What recomputing modules gives; null if it does not lower the value, or if the budget is met.
    pub(super) advice: Option<String>,
}

impl RuleFigures {
    pub(super) fn of(outcome: &Outcome, metric: Metric, trace: &Trace, advice: Option<String>) -> Self {
        Self {
            rule: outcome.budget.to_string(),
            device: outcome.moment.device.0,
            subject: outcome.budget.subject(metric),
            limit_bytes: outcome.limit_bytes,
            actual_bytes: outcome.actual_bytes,
            headroom_bytes: outcome.headroom(),
            baseline_bytes: outcome.baseline_bytes,
            is_broken: outcome.is_broken(),
            unconfirmed_because: None,
            moment: MomentFigures::of(trace, &outcome.moment),
            culprit: outcome.culprit.as_ref().map(|culprit| culprit.text.clone()),
            culprit_group: outcome.culprit.as_ref().map(CulpritFigures::of),
            advice,
        }
    }
}

#[derive(Debug, Serialize)]
pub(super) struct CulpritFigures {
    pub(super) category: String,
    pub(super) place: String,
    pub(super) op: String,
    pub(super) bytes: u64,
    pub(super) baseline_bytes: Option<u64>,
}

impl CulpritFigures {
    pub(super) fn of(culprit: &Culprit) -> Self {
        Self {
            category: culprit.category.clone(),
            place: culprit.place.clone(),
            op: culprit.op.clone(),
            bytes: culprit.bytes,
            baseline_bytes: culprit.baseline_bytes,
        }
    }
}

/// The groups and the rest sum to `delta_bytes`.
#[derive(Debug, Serialize)]
pub(super) struct DifferenceFigures {
    pub(super) device: u16,
    pub(super) delta_bytes: i128,
    pub(super) groups: Vec<GroupFigures>,
    pub(super) rest_delta_bytes: i128,
}

#[derive(Debug, Serialize)]
pub(super) struct GroupFigures {
    /// The values of the keys, joined.
    pub(super) key: String,
    pub(super) keys: BTreeMap<&'static str, String>,
    /// Number of groups, whose names differ only in numbers.
    pub(super) groups: u64,
    pub(super) baseline_bytes: u64,
    pub(super) bytes: u64,
    pub(super) delta_bytes: i128,
}

impl DifferenceFigures {
    pub(super) fn of(device: DeviceId, all: &Differences, keys: [GroupKey; 2]) -> Self {
        let row = |row: &DiffGroup| GroupFigures {
            key: row.key.join(", "),
            keys: keys.iter().map(|key| key.name()).zip(row.key.iter().cloned()).collect(),
            groups: row.members.len().max(1) as u64,
            baseline_bytes: row.a_bytes,
            bytes: row.b_bytes,
            delta_bytes: row.delta(),
        };
        let delta = |[before, now]: [u64; 2]| i128::from(now) - i128::from(before);
        Self {
            device: device.0,
            delta_bytes: delta(all.bytes),
            groups: all.rows.iter().map(row).collect(),
            rest_delta_bytes: delta(all.rest_bytes),
        }
    }
}
