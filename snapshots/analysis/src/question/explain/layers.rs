//! Splits the totals into layers, from requested bytes to device used.

use crate::index::capacity::obtained;
use crate::metric::Totals;

/// The totals at some point as a sum: the requested bytes, and the bytes that each outer layer adds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Layers {
    /// Bytes requested for live blocks, which are the total `requested`.
    pub requested: u64,
    /// Bytes added to these blocks by rounding; with `requested`, the total `allocated`.
    pub rounding: u64,
    /// Bytes of freed blocks awaiting free; with the fields above, the total `active`.
    pub waiting: u64,
    /// Free bytes in segments; with the fields above, the total `reserved`.
    pub free_in_segments: u64,
    /// Bytes in use on the device outside of the allocator; with the fields above, the total `device_used`. `None` if
    /// the driver was not sampled, or reported less than the memory of the allocator.
    pub outside: Option<u64>,
}

impl Layers {
    /// Splits `totals`. `None` if they are inconsistent, such as reserved memory less than active memory because
    /// segments are missing from the recording.
    pub fn of(totals: &Totals) -> Option<Self> {
        Some(Self {
            requested: totals.requested,
            rounding: totals.allocated.checked_sub(totals.requested)?,
            waiting: totals.active.checked_sub(totals.allocated)?,
            free_in_segments: totals.reserved.checked_sub(totals.active)?,
            outside: totals.device_used.checked_sub(obtained(*totals)).filter(|_| totals.device_used > 0),
        })
    }
}
