//! What recomputing one call of a module changes.

use highwater_snapshots::{BlockId, EventId};

/// What recomputing one call of a module changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effect {
    /// The index of the module in its [`Members`](super::Members).
    pub module: usize,
    /// Blocks that are freed right after an event, earlier than recorded.
    pub ends: Vec<(BlockId, EventId)>,
    /// Inputs of the call, which are kept at least until the recomputation has ended.
    pub kept: Vec<BlockId>,
    /// The event after which the kept inputs are freed: if none, right after the recomputation.
    pub kept_until: EventId,
    /// The event before which the call is recomputed; none if the recording ends before that.
    pub at: EventId,
    /// The allocations and frees of the recomputation, in order; first of all, inputs that are recomputed as well.
    /// Blocks that it does not free are freed where the original was.
    pub repeats: Vec<Repeat>,
    /// Repeated blocks that backward frees right after an event, earlier than the original.
    pub repeat_ends: Vec<(BlockId, EventId)>,
}

/// A step of a recomputation, named after the block of the first forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeat {
    /// The block is allocated again.
    Alloc(BlockId),
    /// The second block is freed, within the recomputation.
    Free(BlockId),
}
