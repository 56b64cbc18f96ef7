//! The requests that failed in a recording, with the sizes at that moment.

use highwater_snapshots::event::EventKind;
use highwater_snapshots::{DeviceId, EventId, Phase, Trace};

/// A request that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestFailure {
    /// Its event.
    pub event: EventId,
    /// Its step.
    pub step: Option<u32>,
    /// Its phase; `None` if the recording has no phases.
    pub phase: Option<Phase>,
    /// Requested bytes.
    pub requested: u64,
    /// Free bytes on the device, as the driver reported them.
    pub device_free: u64,
}

impl RequestFailure {
    /// Returns the requests that failed on `device`, in order.
    pub fn all(trace: &Trace, device: DeviceId) -> impl DoubleEndedIterator<Item = Self> {
        let has_phases = !trace.spans.is_all_setup();
        let is_one =
            move |row: &usize| trace.events.kind[*row] == EventKind::Oom && trace.events.device[*row] == device;
        (0..trace.events.len()).filter(is_one).filter_map(move |row| {
            let event = EventId::from_index(row);
            let oom = trace.ooms.get(trace.events.subject[row] as usize)?;
            let span = trace.spans.at(event)?;
            let phase = has_phases.then_some(span.phase);
            let (requested, device_free) = (oom.requested, oom.device_free);
            Some(Self { event, step: span.step, phase, requested, device_free })
        })
    }
}
