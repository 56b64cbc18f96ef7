//! The state before the first event of a trace that is a window of a longer recording.

use crate::ids::{BlockId, DeviceId, OpId};
use crate::stage::Stage;

/// The state before the first event; empty for a whole recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Start {
    /// The number of events of the recording before this trace's first.
    pub events: u64,
    /// The number of events of the recording; `None` if this trace is all of it.
    pub all_events: Option<u64>,
    /// Step and phase before the first event.
    pub stage: Stage,
    /// Whether the recording has steps or phases anywhere.
    pub has_stages: bool,
    /// Each device of the recording, with what differs from the sum of the baseline.
    pub devices: Vec<DeviceStart>,
    /// The numbers that the blocks have in the recording, by row; empty if unknown, or if they are the rows.
    pub blocks: Vec<BlockId>,
    /// The numbers that the operations have in the recording, by row; empty if they are the rows.
    pub ops: Vec<OpId>,
}

/// The state of a device at the start, in addition to its blocks and segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceStart {
    /// The device.
    pub device: DeviceId,
    /// The last sample of the memory in use on the device, in bytes; 0 if there was none.
    pub device_used: u64,
    /// Reserved bytes: not the sum of the segments where the recording contradicts itself.
    pub reserved: u64,
}

impl Start {
    /// The state of `device` at the start; `None` if the sums of the baseline are right.
    pub fn device(&self, device: DeviceId) -> Option<DeviceStart> {
        self.devices.iter().find(|start| start.device == device).copied()
    }
}
