//! A request for memory, before and after rounding.

use highwater_recorder::StreamId;

use super::rounding::Rounded;

/// A request for memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    /// Bytes requested.
    pub(super) requested: u64,
    /// The rounded size and the pool that serves it.
    pub(super) rounded: Rounded,
    /// The stream that the block will belong to.
    pub(super) stream: StreamId,
}
