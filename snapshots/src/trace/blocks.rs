//! One row for each allocation of a trace.

use crate::event::Alloc;
use crate::ids::{BlockId, DeviceId, EventId, OpId, ScopeId, StackId, StreamId};
use crate::metric::Metric;
use crate::stage::Outside;
use crate::{Category, Pool};

use super::columns::columns;

columns!(
    /// Blocks as columns of equal length, indexed by [`BlockId`].
    Blocks by BlockId,
    /// The row of one block: its values in all columns.
    Block {
        /// The device on which the block was allocated.
        device: DeviceId,
        /// Address of its first byte.
        address: u64,
        /// Requested bytes.
        requested: u64,
        /// Bytes after rounding.
        allocated: u64,
        /// The stream for which the block was allocated.
        stream: StreamId,
        /// The pool from which the block was allocated.
        pool: Pool,
        /// The category; the last one if it was changed.
        category: Category,
        /// The operation that requested the block.
        op: OpId,
        /// The module in which that operation ran.
        scope: ScopeId,
        /// The stack that allocated the block.
        stack: StackId,
        /// The alloc event; [`EventId::NONE`] for blocks of the baseline.
        alloc: EventId,
        /// The free-requested event; [`EventId::NONE`] if the block is live at the end, event 0 if its free was
        /// requested before the first event.
        free_requested: EventId,
        /// The free-completed event; [`EventId::NONE`] if the block is active at the end.
        free_completed: EventId,
        /// The last use; [`EventId::NONE`] if no use is recorded. Check
        /// [`Trace::records_uses`](super::Trace::records_uses) first, since most recordings have no uses.
        last_use: EventId,
    }
    beside {
        /// In a window of a longer recording, the allocations of the baseline blocks that were allocated within the
        /// recording, by row. `None`, or past the end, for blocks from before the recording.
        births: Vec<Option<Outside>>,
        /// In a window, the requested frees of blocks that are live at its end, ordered by id.
        deaths: Vec<(BlockId, Outside)>,
    }
    /// The allocation, if it is before the window.
    birth: Option<Outside> = Blocks::birth,
    /// The requested free, if it is after the window.
    death: Option<Outside> = Blocks::death,
);

impl Block {
    /// Returns whether the block was live before the first event of the window.
    pub fn is_baseline(&self) -> bool {
        !self.alloc.is_some()
    }

    /// Returns whether the block was live before recording began.
    pub fn is_from_before(&self) -> bool {
        self.is_baseline() && self.birth.is_none()
    }

    /// Returns whether the block's free was requested in the recording or before it.
    pub fn is_freed(&self) -> bool {
        self.free_requested.is_some() || self.death.is_some()
    }

    /// Returns whether the block is live after event `at`, that is, between its alloc and its free-requested event.
    pub fn is_live_after(&self, at: EventId) -> bool {
        (self.is_baseline() || self.alloc <= at) && self.free_requested > at
    }

    /// The block in the form of an alloc event, with `id` as its key.
    pub fn as_alloc(&self, id: BlockId) -> Alloc {
        Alloc {
            block: u64::from(id.0),
            address: self.address,
            requested: self.requested,
            allocated: self.allocated,
            stream: self.stream,
            pool: self.pool,
            category: self.category,
            op: self.op,
            scope: self.scope,
        }
    }
}

impl Blocks {
    /// Returns the bytes of each block in `metric`: requested bytes for [`Metric::Requested`], otherwise rounded bytes.
    #[inline]
    pub fn sizes(&self, metric: Metric) -> &[u64] {
        if metric == Metric::Requested { &self.requested } else { &self.allocated }
    }

    #[inline]
    fn birth(&self, id: BlockId) -> Option<Outside> {
        self.births.get(id.0 as usize).copied().flatten()
    }

    #[inline]
    fn death(&self, id: BlockId) -> Option<Outside> {
        let found = self.deaths.binary_search_by_key(&id, |(block, _)| *block).ok()?;
        Some(self.deaths[found].1)
    }

    pub(crate) fn reserve(&mut self, rows: usize) {
        self.device.reserve(rows);
        self.address.reserve(rows);
        self.requested.reserve(rows);
        self.allocated.reserve(rows);
        self.stream.reserve(rows);
        self.pool.reserve(rows);
        self.category.reserve(rows);
        self.op.reserve(rows);
        self.scope.reserve(rows);
        self.stack.reserve(rows);
        self.alloc.reserve(rows);
        self.free_requested.reserve(rows);
        self.free_completed.reserve(rows);
        self.last_use.reserve(rows);
    }

    pub(crate) fn push(&mut self, device: DeviceId, alloc: &Alloc, stack: StackId, event: EventId) -> BlockId {
        let id = BlockId::from_index(self.len());
        self.device.push(device);
        self.address.push(alloc.address);
        self.requested.push(alloc.requested);
        self.allocated.push(alloc.allocated);
        self.stream.push(alloc.stream);
        self.pool.push(alloc.pool);
        self.category.push(alloc.category);
        self.op.push(alloc.op);
        self.scope.push(alloc.scope);
        self.stack.push(stack);
        self.alloc.push(event);
        self.free_requested.push(EventId::NONE);
        self.free_completed.push(EventId::NONE);
        self.last_use.push(EventId::NONE);
        id
    }
}
