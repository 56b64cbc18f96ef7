//! Assigns each device of each recording an ordinal and a name in the joined recording.

use std::collections::{BTreeMap, BTreeSet};

use super::JoinPart;
use highwater_snapshots::error::{Error, Result};
use highwater_snapshots::ids::DeviceId;
use highwater_snapshots::trace::{DeviceFacts, PINNED_DEVICE, Trace};

/// A device of the joined recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinedDevice {
    /// The ordinal in the joined recording.
    pub device: DeviceId,
    /// The name in the joined recording.
    pub name: String,
    /// The index of the recording that contains the device.
    pub part: usize,
    /// The ordinal in that recording.
    pub was: DeviceId,
}

/// The device ordinals of the joined recording.
#[derive(Debug)]
pub(super) struct Numbers {
    by_part: Vec<BTreeMap<DeviceId, DeviceId>>,
    /// The devices by new ordinal.
    pub(super) devices: Vec<JoinedDevice>,
}

impl Numbers {
    /// Assigns the ordinals. A device keeps its ordinal unless an earlier recording has it; other devices get the
    /// smallest ordinals that no recording has. If devices of several recordings have the same ordinal, the recording's
    /// name is added to their names.
    pub(super) fn of(parts: &[JoinPart<'_>]) -> Result<Self> {
        let named: Vec<BTreeSet<DeviceId>> = parts.iter().map(|part| devices_of(part.trace)).collect();
        let mut claims: BTreeMap<DeviceId, usize> = BTreeMap::new();
        for device in named.iter().flatten() {
            *claims.entry(*device).or_default() += 1;
        }
        let mut taken: BTreeSet<DeviceId> = BTreeSet::new();
        let mut free = (0..PINNED_DEVICE.0).map(DeviceId).filter(|device| !claims.contains_key(device));
        let mut numbers = Self { by_part: Vec::with_capacity(parts.len()), devices: Vec::new() };
        for (index, part) in parts.iter().enumerate() {
            let mut of_part = BTreeMap::new();
            for &was in &named[index] {
                let device = if taken.insert(was) { Some(was) } else { free.next() };
                let device = device.ok_or_else(|| Error::Encode {
                    what: format!("the recordings have more than {} devices; join fewer at once", PINNED_DEVICE.0),
                })?;
                of_part.insert(was, device);
                let name = device_name(part, was, claims[&was] > 1);
                numbers.devices.push(JoinedDevice { device, name, part: index, was });
            }
            numbers.by_part.push(of_part);
        }
        numbers.devices.sort_by_key(|device| device.device);
        Ok(numbers)
    }

    /// Returns the new ordinal of a recording's device.
    pub(super) fn of_part(&self, part: usize, device: DeviceId) -> DeviceId {
        self.by_part[part].get(&device).copied().unwrap_or(device)
    }

    /// Returns the facts of every device that has facts or needs a name.
    pub(super) fn facts(&self, parts: &[JoinPart<'_>]) -> Vec<DeviceFacts> {
        let facts = |device: &JoinedDevice| {
            let known = parts[device.part].trace.device_facts(device.was);
            let facts = known.cloned().or_else(|| (!device.name.is_empty()).then(DeviceFacts::default))?;
            Some(DeviceFacts { device: device.device, name: device.name.clone(), ..facts })
        };
        self.devices.iter().filter_map(facts).collect()
    }
}

/// Returns all devices in a recording, ignoring events that concern all devices.
fn devices_of(trace: &Trace) -> BTreeSet<DeviceId> {
    let mut devices: BTreeSet<DeviceId> = trace.device_ids().into_iter().collect();
    let of_events = trace.events.ids().filter(|id| !trace.is_everywhere(*id));
    devices.extend(of_events.map(|id| trace.events.device[id.0 as usize]));
    devices
}

/// Returns the name of a device. Includes the recording's name if another recording has a device with the same ordinal.
fn device_name(part: &JoinPart<'_>, device: DeviceId, is_shared: bool) -> String {
    let name = part.trace.device_facts(device).map_or("", |facts| facts.name.as_str());
    match (is_shared, name) {
        (false, name) => name.to_owned(),
        (true, "") => format!("device {} ({})", device.0, part.name),
        (true, name) => format!("{name} ({})", part.name),
    }
}
