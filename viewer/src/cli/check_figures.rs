//! The JSON object of `check --json`.

use highwater_analysis::budget::{Culprit, Differences};
use highwater_analysis::diff::DiffGroup;
use highwater_analysis::{GroupKey, Metric};
use highwater_app::report::{Table, Value};
use highwater_snapshots::DeviceId;
use serde::Serialize;

use crate::cli::output::caveats::TrustFigures;
use crate::cli::output::key_cells::named;

#[derive(Debug, Serialize)]
pub(super) struct CheckFigures<'a> {
    pub(super) passed: bool,
    pub(super) broken: Table<'a>,
    /// Budgets that are met as far as the recording goes, which is not far enough.
    pub(super) undecided: Table<'a>,
    pub(super) rules: Table<'a>,
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

/// The group that caused the excess.
pub(super) fn culprit_value(culprit: &Culprit) -> Value {
    Value::Map(vec![
        ("category", culprit.category.clone().into()),
        ("place", culprit.place.clone().into()),
        ("op", culprit.op.clone().into()),
        ("bytes", culprit.bytes.into()),
        ("baseline_bytes", culprit.baseline_bytes.into()),
    ])
}

/// The groups and the rest sum to `delta_bytes`.
#[derive(Debug, Serialize)]
pub(super) struct DifferenceFigures {
    pub(super) device: u16,
    pub(super) delta_bytes: i128,
    pub(super) groups: Vec<Value>,
    pub(super) rest_delta_bytes: i128,
}

impl DifferenceFigures {
    pub(super) fn of(device: DeviceId, all: &Differences, keys: [GroupKey; 2]) -> Self {
        let row = |row: &DiffGroup| {
            Value::Map(vec![
                ("key", row.key.join(", ").into()),
                ("keys", named(&keys, &row.key)),
                // Number of groups, whose names differ only in numbers.
                ("groups", row.members.len().max(1).into()),
                ("baseline_bytes", row.a_bytes.into()),
                ("bytes", row.b_bytes.into()),
                ("delta_bytes", row.delta().into()),
            ])
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
