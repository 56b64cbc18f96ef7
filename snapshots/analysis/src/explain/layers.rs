//! Layers: from what the program asked for out to what the device has in use, each with what it adds.

use serde::Serialize;

use crate::metric::Totals;

/// The totals at a moment as a sum: what was asked for, and what each layer around it adds. All in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Layers {
    /// What live blocks asked for.
    pub requested: u64,
    /// What the allocator's rounding adds: together, `allocated`.
    pub rounding: u64,
    /// Blocks that are freed and wait for another stream: together, `active`.
    pub waiting: u64,
    /// Free in segments: together, `reserved`.
    pub free_in_segments: u64,
    /// In use on the device beside the allocator: together, `device_used`. None where the driver was not asked.
    pub outside: Option<u64>,
}

impl Layers {
    /// Takes `totals` apart. None where they contradict one another: where segments are missing from the recording, less
    /// is held than is used.
    pub fn of(totals: &Totals) -> Option<Self> {
        Some(Self {
            requested: totals.requested,
            rounding: totals.allocated.checked_sub(totals.requested)?,
            waiting: totals.active.checked_sub(totals.allocated)?,
            free_in_segments: totals.reserved.checked_sub(totals.active)?,
            outside: totals.device_used.checked_sub(totals.reserved).filter(|_| totals.device_used > 0),
        })
    }
}
