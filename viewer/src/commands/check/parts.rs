//! Parts of the JSON object of `highwater check`: causes, and differences from the baseline.

use highwater_analysis::GroupKey;
use highwater_analysis::budget::{Culprit, Differences};
use highwater_analysis::diff::DiffGroup;
use highwater_app::report::Value;
use highwater_snapshots::DeviceId;

use crate::output::key_cells::named;

/// Returns the group that caused the excess as a JSON object.
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
pub(super) fn difference_value(device: DeviceId, all: &Differences, keys: [GroupKey; 2]) -> Value {
    let row = |row: &DiffGroup| {
        Value::Map(vec![
            ("key", row.key.join(", ").into()),
            ("keys", named(&keys, &row.key).into()),
            // Number of groups, whose names differ only in numbers.
            ("groups", row.members.len().max(1).into()),
            ("baseline_bytes", row.a_bytes.into()),
            ("bytes", row.b_bytes.into()),
            ("delta_bytes", row.delta().into()),
        ])
    };
    let delta = |[before, now]: [u64; 2]| i128::from(now) - i128::from(before);
    Value::Map(vec![
        ("device", device.0.into()),
        ("delta_bytes", delta(all.bytes).into()),
        ("groups", all.rows.iter().map(row).collect::<Vec<_>>().into()),
        ("rest_delta_bytes", delta(all.rest_bytes).into()),
    ])
}
