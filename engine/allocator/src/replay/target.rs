//! Target: the failed request that a replay is about, and what is changed right before it.

use highwater_recorder::StreamId;
use highwater_recorder::snapshots::EventId;

/// A request that failed in the recording. The replay ends with it, and requests that failed before it may fail again,
/// since the program went on after them. The device must be a modelled one for anything to be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// The event of the request.
    pub event: EventId,
    /// The stream that the request is made on.
    pub stream: StreamId,
    /// The private pool that it is made of; none for the pools of all.
    pub private: Option<(u64, u64)>,
    /// What happens right before it.
    pub before: Before,
}

/// What happens right before a [`Target`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Before {
    /// Nothing.
    #[default]
    Nothing,
    /// The program empties the cache.
    EmptyCache,
    /// The program waits for all streams that freed blocks wait for.
    Synchronize,
}
