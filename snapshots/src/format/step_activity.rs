//! Counts the steps in which devices are active, for one row of a summary.

use serde::{Deserialize, Serialize};

use crate::ids::DeviceId;

/// The steps among the events of one summary row in which a device (or any device) is active. A device is active in a
/// step that has an event of the device whose kind [is activity](crate::event::EventKind::is_activity).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActiveSteps {
    /// Whether the device is active before the first change of step.
    pub first: bool,
    /// Number of active steps that both begin and end within the row.
    pub inner: u32,
    /// Whether the device is active after the last change of step; `false` if the step does not change.
    pub last: bool,
}

impl ActiveSteps {
    /// Ends a part of the row at a change of the step. `is_first` is true for the first part of the row, `is_step` for
    /// parts within a step.
    pub(super) fn end(&mut self, is_active: bool, is_first: bool, is_step: bool) {
        if is_first {
            self.first = is_active;
        } else {
            self.inner += u32::from(is_active && is_step);
        }
    }

    /// Ends the last part of the row, which may also be its first.
    pub(super) fn end_row(&mut self, is_active: bool, is_first: bool) {
        *(if is_first { &mut self.first } else { &mut self.last }) = is_active;
    }
}

/// The activity in the steps among the events of one row.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepActivity {
    /// Whether a step begins or ends among the events.
    pub changes: bool,
    /// Number of steps that begin among the events.
    pub begun: u32,
    /// The steps in which any device is active.
    pub any: ActiveSteps,
    /// The active steps of each device, by ordinal. Devices without activity are omitted.
    pub devices: Vec<(DeviceId, ActiveSteps)>,
}
