//! The input of a replay: the recorded events and driver calls, and the requests derived from them.

use highwater_recorder::StreamId;
use highwater_recorder::snapshots::event::What;
use highwater_recorder::snapshots::transition::Transition;
use highwater_recorder::snapshots::{OpId, ScopeId, StackId};

use super::BlockOverride;
use super::driver::Call;
use super::start::Private;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct At {
    /// The index of the event.
    pub(super) number: u64,
    pub(super) time_ns: u64,
    pub(super) stack: StackId,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Recorded {
    pub(super) at: At,
    pub(super) what: What,
    /// The effect in the recording.
    pub(super) done: Transition,
    /// The live block whose free event is missing: this event allocates the block's key again.
    pub(super) former: Option<u64>,
    /// The index of the event that completes a requested free, or [`UNKNOWN`].
    pub(super) completion: u64,
    pub(super) private: Private,
    /// The change to the block that this event allocates.
    pub(super) change: BlockOverride,
}

/// The completion of a requested free whose completing event is not known yet.
pub(super) const UNKNOWN: u64 = u64::MAX;

/// A recorded driver call that has not been assigned to a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    pub(super) call: Call,
    pub(super) event: At,
    pub(super) private: Private,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) event: At,
    pub(super) bytes: u64,
    pub(super) stream: StreamId,
    /// The index of the allocator of its pool.
    pub(super) pool: usize,
    /// The operation and module that made the request.
    pub(super) origin: (OpId, ScopeId),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Freed {
    pub(super) block: u64,
    pub(super) requested: At,
    /// The event that completes the free, as in [`Recorded`].
    pub(super) completion: u64,
}
