//! The event columns of a trace.

use crate::event::EventKind;
use crate::ids::{DeviceId, EventId, StackId};

/// Events as columns of equal length, indexed by [`EventId`].
#[derive(Clone, Debug, Default)]
pub struct Events {
    /// The kind of each event.
    pub kind: Vec<EventKind>,
    /// The device of each event; 0 for events of all devices.
    pub device: Vec<DeviceId>,
    /// Time, in nanoseconds since the recording's origin.
    pub time_ns: Vec<u64>,
    /// The call stack that caused the event.
    pub stack: Vec<StackId>,
    /// The subject, as a row of the table that depends on the kind; see [`Trace::subject`](super::Trace::subject).
    pub subject: Vec<u32>,
}

impl Events {
    /// Number of events.
    pub fn len(&self) -> usize {
        self.kind.len()
    }

    /// Returns whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.kind.is_empty()
    }

    /// The ids, in order.
    pub fn ids(&self) -> impl DoubleEndedIterator<Item = EventId> + ExactSizeIterator {
        (0..self.len() as u32).map(EventId)
    }

    /// Returns the time of `id` in nanoseconds since the recording's origin; `None` if there is no such event.
    pub fn time_of(&self, id: EventId) -> Option<u64> {
        id.index().and_then(|index| self.time_ns.get(index)).copied()
    }

    /// Returns the last event at or before `time_ns`, if any, assuming that recorded times never decrease.
    pub fn at_time(&self, time_ns: u64) -> Option<EventId> {
        let after = self.time_ns.partition_point(|&time| time <= time_ns);
        after.checked_sub(1).map(EventId::from_index)
    }
}
