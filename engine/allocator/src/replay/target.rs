//! The failed request at which a replay ends, and the program's action right before it.

use highwater_recorder::StreamId;
use highwater_recorder::snapshots::EventId;

/// A request that failed in the recording. The replay ends with it. Requests that failed earlier may fail again, since
/// the program continued after them. All fields but `event` have an effect only with
/// [`DeviceModel::Modelled`](super::DeviceModel::Modelled).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// The request's event.
    pub event: EventId,
    /// The request's stream.
    pub stream: StreamId,
    /// The private pool of the request; `None` for the default pools.
    pub private: Option<(u64, u64)>,
    /// The program's action right before the request.
    pub before: Before,
}

/// The program's action right before a [`Target`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Before {
    /// The program does nothing.
    #[default]
    Nothing,
    /// The program empties the cache.
    EmptyCache,
    /// The program waits for all streams that still use freed blocks.
    Synchronize,
}
