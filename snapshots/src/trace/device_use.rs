//! Chooses the device that is meant where none is named, and the devices that a verdict covers.

use std::cmp::Reverse;

use crate::ids::DeviceId;

/// The facts about a device in a recording that decide which devices are looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceUse {
    /// The device.
    pub device: DeviceId,
    /// Whether the recording has a block, a segment or a failed request of it.
    pub has_memory: bool,
    /// Whether a request failed on it.
    pub ran_out: bool,
    /// The peak of requested bytes.
    pub peak: u64,
}

/// The device that is meant where none is named, if any is known: see
/// [`Trace::main_device`](super::Trace::main_device).
pub(crate) fn main_use(uses: &[DeviceUse], is_host: impl Fn(DeviceId) -> bool) -> Option<DeviceUse> {
    let rank = |one: &&DeviceUse| (one.has_memory, !is_host(one.device), one.ran_out, one.peak, Reverse(one.device));
    uses.iter().max_by_key(rank).copied()
}

/// The devices that a verdict covers: see [`Trace::covered_devices`](super::Trace::covered_devices).
pub(crate) fn covered_devices(uses: &[DeviceUse], is_host: impl Fn(DeviceId) -> bool) -> Vec<DeviceId> {
    let Some(main) = main_use(uses, &is_host) else { return vec![DeviceId::default()] };
    let kind = |one: &DeviceUse| (one.has_memory, is_host(one.device));
    uses.iter().filter(|one| kind(one) == kind(&main)).map(|one| one.device).collect()
}
