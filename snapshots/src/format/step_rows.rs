//! The activity per step of all summaries, from which the steps of each device are counted without reading events.

use hashbrown::HashMap;
use serde::{Deserialize, Serialize};

use super::step_activity::{ActiveSteps, StepActivity};
use super::summary::Summary;
use crate::ids::DeviceId;

/// The activity in a row of events, in the form stored in files.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct StepActivityRow {
    /// Number of events of the recording before the row.
    pub(super) first: u64,
    pub(super) activity: StepActivity,
}

impl StepActivityRow {
    /// `None` if the activity of `summary` is unknown.
    pub(super) fn of(summary: &Summary) -> Option<Self> {
        summary.step_activity.clone().map(|activity| Self { first: summary.first, activity })
    }

    /// Adds the activity to the summary of the same events. Impossible values are ignored.
    pub(super) fn add_to(self, summaries: &mut [Summary]) {
        let Ok(row) = summaries.binary_search_by_key(&self.first, |row| row.first) else { return };
        let StepActivity { any, devices, .. } = &self.activity;
        let is_plausible =
            |(device, steps): &(DeviceId, ActiveSteps)| device.0 < DeviceId::END && steps.inner <= any.inner;
        if any.inner <= summaries[row].events
            && devices.is_sorted_by(|a, b| a.0 < b.0)
            && devices.iter().all(is_plausible)
        {
            summaries[row].step_activity = Some(self.activity);
        }
    }
}

/// Counts the steps of each of `devices`: the steps in which the device is active, plus the steps in which no device is
/// active. `rows` must be all summaries of a recording. Returns `None` if the summaries are insufficient, such as
/// before version 1.5 of the format, or if a step's number is not larger than those of all earlier steps.
pub fn count_steps(rows: &[Summary], devices: &[DeviceId]) -> Option<Vec<u64>> {
    let mut counts: HashMap<DeviceId, u64> = HashMap::new();
    let (mut steps, mut active_steps) = (0, 0);
    let (mut is_in_step, mut any) = (false, false);
    let mut active: Vec<DeviceId> = Vec::new();
    let mut end_step = |active: &mut Vec<DeviceId>, any: &mut bool, counts: &mut HashMap<DeviceId, u64>| {
        active_steps += u64::from(std::mem::take(any));
        active.sort_unstable();
        active.dedup();
        active.drain(..).for_each(|device| *counts.entry(device).or_default() += 1);
    };
    let mut inner = 0;
    for row in rows {
        // Otherwise a step begins that may have been counted before.
        let activity = row.step_activity.as_ref().filter(|activity| activity.begun == row.steps)?;
        steps += u64::from(row.steps);
        if is_in_step {
            any |= activity.any.first;
            active.extend(activity.devices.iter().filter(|(_, steps)| steps.first).map(|(device, _)| *device));
        }
        if !activity.changes {
            continue;
        }
        end_step(&mut active, &mut any, &mut counts);
        inner += u64::from(activity.any.inner);
        activity
            .devices
            .iter()
            .for_each(|(device, steps)| *counts.entry(*device).or_default() += u64::from(steps.inner));
        is_in_step = row.stage.step.is_some();
        if is_in_step {
            any = activity.any.last;
            active.extend(activity.devices.iter().filter(|(_, steps)| steps.last).map(|(device, _)| *device));
        }
    }
    end_step(&mut active, &mut any, &mut counts);
    let of_none = steps - (active_steps + inner).min(steps);
    Some(devices.iter().map(|device| counts.get(device).copied().unwrap_or(0) + of_none).collect())
}
