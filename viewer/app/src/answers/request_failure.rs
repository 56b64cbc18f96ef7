//! The failed requests of a recording, with the sizes at that point.

use highwater_analysis::Source;
use highwater_snapshots::{DeviceId, EventId, EventKind, Phase, Result, Trace};
use serde::{Deserialize, Serialize};

/// A failed request, and the memory that was free.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestFailure {
    /// The device that ran out of memory.
    pub device: DeviceId,
    /// The event, in the trace that contains it.
    pub event: EventId,
    /// The index of the event in the whole recording.
    pub number: u64,
    /// The training step of the request; `None` outside of steps.
    pub step: Option<u32>,
    /// The phase of the request; `None` if the recording has no phases.
    pub phase: Option<Phase>,
    /// Requested bytes.
    pub requested: u64,
    /// Free bytes on the device, as the driver reported them.
    pub device_free: u64,
}

impl RequestFailure {
    /// Returns the first failed requests on `device`, at most `most` of them.
    ///
    /// # Errors
    /// Fails if the recording cannot be read.
    pub fn first(source: &Source<'_>, device: DeviceId, most: usize) -> Result<Vec<Self>> {
        let first = Self::events(source, device)?.into_iter().take(most);
        let failures: Result<Vec<Option<Self>>> = first.map(|event| Self::at(source, event)).collect();
        Ok(failures?.into_iter().flatten().collect())
    }

    /// Returns the last failed request on `device`.
    ///
    /// # Errors
    /// Fails like [`Self::first`].
    pub fn last(source: &Source<'_>, device: DeviceId) -> Result<Option<Self>> {
        let last = Self::events(source, device)?.pop();
        last.map_or(Ok(None), |event| Self::at(source, event))
    }

    /// Returns the event indices of the failed requests on `device`.
    fn events(source: &Source<'_>, device: DeviceId) -> Result<Vec<u64>> {
        if source.count(device, EventKind::Oom) == 0 {
            return Ok(Vec::new());
        }
        Ok(source.failed_requests()?.into_iter().filter(|(_, of)| *of == device).map(|(event, _)| event).collect())
    }

    fn at(source: &Source<'_>, event: u64) -> Result<Option<Self>> {
        let window = source.window_at(Some(event))?;
        Ok(window.last().and_then(|event| Self::of(&window.trace, event)))
    }

    /// Returns the failed requests on `device`, in order.
    pub fn all(trace: &Trace, device: DeviceId) -> impl DoubleEndedIterator<Item = Self> {
        trace.failed_requests_on(device).filter_map(|event| Self::of(trace, event))
    }

    /// Returns the request that failed at `event`.
    pub fn of(trace: &Trace, event: EventId) -> Option<Self> {
        let row = event.index()?;
        let oom = trace.ooms.get(trace.events.subject[row] as usize)?;
        let span = trace.spans.at(event)?;
        let phase = (!trace.spans.is_all_setup()).then_some(span.phase);
        let (device, number) = (trace.events.device[row], trace.number(event));
        let (requested, device_free) = (oom.requested, oom.device_free);
        Some(Self { device, event, number, step: span.step, phase, requested, device_free })
    }
}
