//! The state before the first event of a trace that is a window of a longer recording.

use crate::ids::{BlockId, DeviceId, OpId};
use crate::stage::Stage;

/// The state before the first event; empty for a whole recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Start {
    /// Number of events of the recording before this trace's first event.
    pub events: u64,
    /// Number of events of the whole recording; `None` if this trace is the whole recording.
    pub all_events: Option<u64>,
    /// Step and phase before the first event.
    pub stage: Stage,
    /// Whether the whole recording has steps or phases.
    pub has_stages: bool,
    /// The devices of the recording, with the totals that are not sums over the baseline.
    pub devices: Vec<DeviceStart>,
    /// The ids of the blocks in the whole recording, by row; empty if unknown, or if they equal the rows.
    pub blocks: Vec<BlockId>,
    /// The ids of the operations in the whole recording, by row; empty if they equal the rows.
    pub ops: Vec<OpId>,
}

/// The state of a device at the start, in addition to its blocks and segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceStart {
    /// The device that this state describes.
    pub device: DeviceId,
    /// The last sample of the device's memory in use, in bytes; 0 without samples.
    pub device_used: u64,
    /// Reserved bytes, which differ from the sum of the segments if the recording is inconsistent.
    pub reserved: u64,
}

impl Start {
    /// Returns the state of `device` at the start; `None` if its totals are the sums over the baseline.
    pub fn device(&self, device: DeviceId) -> Option<DeviceStart> {
        self.devices.iter().find(|start| start.device == device).copied()
    }
}
