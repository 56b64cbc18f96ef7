//! The devices of a checked recording, and the corresponding devices of its baseline.

use highwater_analysis::budget::{Budget, Culprit};
use highwater_analysis::{Diff, DiffGroup, GroupKey, Metric};
use highwater_app::report::Value;
use highwater_snapshots::{DeviceId, Trace};

use super::budgets::Budgets;
use crate::input::{Input, covered};
use crate::output::{Failure, about, named};

/// Returns the devices that a check covers and that have samples of `metric`; an error if none of them has.
pub(super) fn measured_devices(input: &Input, wanted: Option<u16>, metric: Metric) -> Result<Vec<DeviceId>, Failure> {
    let covered = covered(input.facts(), wanted)?;
    let has_metric = |device: &DeviceId| input.check_metric(*device, metric).is_ok();
    let measured: Vec<DeviceId> = covered.iter().copied().filter(has_metric).collect();
    match covered.first() {
        Some(first) if measured.is_empty() => input.check_metric(*first, metric).map(|()| measured),
        _ => Ok(measured),
    }
}

/// Returns the device of `baseline` to compare with `device` of `trace`: the device with the same ordinal, or the only
/// device if both recordings have just one.
///
/// # Errors
/// Returns an error if there is no such device and a budget of growth needs it, or if the device lacks the metric.
pub(super) fn device_of_baseline(
    baseline: &Input,
    trace: &Trace,
    device: DeviceId,
    budgets: &Budgets,
) -> Result<Option<DeviceId>, Failure> {
    let (known, own) = (baseline.facts().device_ids(), trace.device_ids());
    let found = match known.as_slice() {
        _ if known.contains(&device) => Some(device),
        [one] if own.len() == 1 => Some(*one),
        _ => None,
    };
    if let Some(found) = found {
        baseline.check_metric(found, budgets.metric).map_err(|failure| about("baseline", failure))?;
    } else if budgets.rows.iter().any(|budget| matches!(budget, Budget::Growth(_))) {
        let have: Vec<String> = known.iter().map(|device| device.0.to_string()).collect();
        let have = if have.is_empty() { "none".to_owned() } else { have.join(", ") };
        let text = format!(
            "baseline: the recording has no device {}; it has {have}; name one that both have with --device N",
            device.0
        );
        return Err(Failure::Usage(text));
    }
    Ok(found)
}

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
pub(super) fn difference_value(device: DeviceId, diff: &Diff, keys: [GroupKey; 2]) -> Value {
    let row = |row: &DiffGroup| {
        Value::Map(vec![
            ("key", row.key.join(", ").into()),
            ("keys", named(&keys, &row.key).into()),
            // How many groups, whose names differ only in numbers, the row combines.
            ("groups", row.members.len().max(1).into()),
            ("baseline_bytes", row.bytes[0].into()),
            ("bytes", row.bytes[1].into()),
            ("delta_bytes", row.delta().into()),
        ])
    };
    let [rest_before, rest_now] = diff.rest_bytes.map(i128::from);
    Value::Map(vec![
        ("device", device.0.into()),
        ("delta_bytes", diff.delta().into()),
        ("groups", diff.groups.iter().map(row).collect::<Vec<_>>().into()),
        ("rest_delta_bytes", (rest_now - rest_before).into()),
    ])
}
