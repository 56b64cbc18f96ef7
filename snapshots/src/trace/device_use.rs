//! Chooses the device that is meant where none is named, and the devices that a verdict covers.

use std::cmp::Reverse;

use crate::ids::DeviceId;

/// What a recording has of a device, as far as it decides which devices are looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceUse {
    /// The device.
    pub device: DeviceId,
    /// Whether it is host memory rather than a GPU.
    pub is_host: bool,
    /// Whether the recording has a block, a segment or a failed request of it.
    pub has_memory: bool,
    /// Whether a request failed on it.
    pub ran_out: bool,
    /// The peak of requested bytes.
    pub peak: u64,
}

impl DeviceUse {
    /// Orders devices: the default one is the largest.
    fn rank(&self) -> impl Ord + use<> {
        (self.has_memory, !self.is_host, self.ran_out, self.peak, Reverse(self.device))
    }
}

/// The device that is meant where none is named: see [`Trace::main_device`](super::Trace::main_device).
pub(crate) fn main_device(uses: &[DeviceUse]) -> DeviceId {
    uses.iter().max_by_key(|one| one.rank()).map(|one| one.device).unwrap_or_default()
}

/// The devices that a verdict covers: see [`Trace::covered_devices`](super::Trace::covered_devices).
pub(crate) fn covered_devices(uses: &[DeviceUse]) -> Vec<DeviceId> {
    let Some(main) = uses.iter().max_by_key(|one| one.rank()) else { return vec![DeviceId::default()] };
    let is_alike = |one: &&DeviceUse| (one.has_memory, one.is_host) == (main.has_memory, main.is_host);
    uses.iter().filter(is_alike).map(|one| one.device).collect()
}
