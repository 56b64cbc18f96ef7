//! Chooses the default device, and the devices that a check covers.

use std::cmp::Reverse;

use crate::event::EventKind;
use crate::ids::DeviceId;

/// The facts about a device that decide whether it is analyzed by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceUse {
    /// The device that these facts describe.
    pub device: DeviceId,
    /// Whether the recording has a block, a segment or a failed request on the device.
    pub has_memory: bool,
    /// Whether a request failed on the device.
    pub ran_out: bool,
    /// The peak of requested bytes.
    pub peak: u64,
}

impl DeviceUse {
    /// Determines the properties of `device`. `has_event` returns whether the recording of the device has events of a
    /// kind; `has_start` is whether the recording begins with live blocks or segments.
    pub fn of(device: DeviceId, has_start: bool, has_event: impl Fn(EventKind) -> bool, peak: u64) -> Self {
        let of_memory = [EventKind::Alloc, EventKind::SegmentAlloc, EventKind::SegmentMap, EventKind::Oom];
        let has_memory = has_start || of_memory.into_iter().any(&has_event);
        Self { device, has_memory, ran_out: has_event(EventKind::Oom), peak }
    }

    /// The default device, if there is any: see [`Trace::main_device`](super::Trace::main_device).
    pub fn main(uses: &[Self], is_host: impl Fn(DeviceId) -> bool) -> Option<Self> {
        let rank = |one: &&Self| (one.has_memory, !is_host(one.device), one.ran_out, one.peak, Reverse(one.device));
        uses.iter().max_by_key(rank).copied()
    }
}

/// Returns the devices that a check covers; see [`Trace::covered_devices`](super::Trace::covered_devices).
pub(crate) fn covered_devices(uses: &[DeviceUse], is_host: impl Fn(DeviceId) -> bool) -> Vec<DeviceId> {
    let Some(main) = DeviceUse::main(uses, &is_host) else { return vec![DeviceId::default()] };
    let kind = |one: &DeviceUse| (one.has_memory, is_host(one.device));
    uses.iter().filter(|one| kind(one) == kind(&main)).map(|one| one.device).collect()
}
