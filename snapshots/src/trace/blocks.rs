//! One row for each allocation of a trace.

use crate::event::Alloc;
use crate::ids::{BlockId, DeviceId, EventId, OpId, ScopeId, StackId, StreamId};
use crate::metric::Metric;
use crate::stage::Outside;
use crate::yielding::tick;
use crate::{Category, Pool};

/// Blocks as columns of equal length; position is [`BlockId`].
#[derive(Clone, Debug, Default)]
pub struct Blocks {
    /// The device.
    pub device: Vec<DeviceId>,
    /// First byte on the device.
    pub address: Vec<u64>,
    /// Requested bytes.
    pub requested: Vec<u64>,
    /// Bytes after rounding.
    pub allocated: Vec<u64>,
    /// The stream that it was allocated for.
    pub stream: Vec<StreamId>,
    /// The pool that it came from.
    pub pool: Vec<Pool>,
    /// Its category; the last one if it changed.
    pub category: Vec<Category>,
    /// The operation that requested it.
    pub op: Vec<OpId>,
    /// The module in which that was.
    pub scope: Vec<ScopeId>,
    /// The stack that allocated it.
    pub stack: Vec<StackId>,
    /// Its alloc event; none for the baseline.
    pub alloc: Vec<EventId>,
    /// Its free-requested event; none while it lives.
    pub free_requested: Vec<EventId>,
    /// Its free-completed event; none while it is active.
    pub free_completed: Vec<EventId>,
    /// Its last use; none if no use is recorded. Check [`Trace::records_uses`](super::Trace::records_uses) first: most
    /// recordings have no uses.
    pub last_use: Vec<EventId>,
    /// Of a window of a longer recording: the allocation of each block of the baseline that was allocated within the
    /// recording. By row; none, as past the end, for blocks from before the recording.
    pub births: Vec<Option<Outside>>,
    /// Of a window: the requested free of blocks that are live at its end, in the order of their ids.
    pub deaths: Vec<(BlockId, Outside)>,
}

/// The row of one block: its values in all columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// The device.
    pub device: DeviceId,
    /// First byte on the device.
    pub address: u64,
    /// Requested bytes.
    pub requested: u64,
    /// Bytes after rounding.
    pub allocated: u64,
    /// The stream that it was allocated for.
    pub stream: StreamId,
    /// The pool that it came from.
    pub pool: Pool,
    /// Its category.
    pub category: Category,
    /// The operation that requested it.
    pub op: OpId,
    /// The module in which that was.
    pub scope: ScopeId,
    /// The stack that allocated it.
    pub stack: StackId,
    /// Its alloc event; none for the baseline.
    pub alloc: EventId,
    /// Its free-requested event; none while it lives.
    pub free_requested: EventId,
    /// Its free-completed event; none while it is active.
    pub free_completed: EventId,
    /// Its last use; none if no use is recorded.
    pub last_use: EventId,
    /// Its allocation, if that is before the window that was read.
    pub birth: Option<Outside>,
    /// Its requested free, if that is after the window that was read.
    pub death: Option<Outside>,
}

impl Block {
    /// Whether it was live before the first event that was read.
    pub fn is_baseline(&self) -> bool {
        !self.alloc.is_some()
    }

    /// Whether it was live before recording began.
    pub fn is_from_before(&self) -> bool {
        self.is_baseline() && self.birth.is_none()
    }

    /// Whether its free was requested in the recording.
    pub fn is_freed(&self) -> bool {
        self.free_requested.is_some() || self.death.is_some()
    }

    /// Whether it is live after event `at` (from its alloc until its free is requested).
    pub fn is_live_after(&self, at: EventId) -> bool {
        (self.is_baseline() || self.alloc <= at) && self.free_requested > at
    }

    /// The block in the form in which it was recorded, under the key `id`.
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
    /// Number of blocks.
    pub fn len(&self) -> usize {
        self.device.len()
    }

    /// Returns whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.device.is_empty()
    }

    /// The bytes of each block in `metric`: requested bytes for that metric, else rounded bytes.
    #[inline]
    pub fn sizes(&self, metric: Metric) -> &[u64] {
        if metric == Metric::Requested { &self.requested } else { &self.allocated }
    }

    /// The ids, in order.
    pub fn ids(&self) -> impl DoubleEndedIterator<Item = BlockId> + ExactSizeIterator {
        (0..self.len() as u32).map(BlockId)
    }

    /// The row of `id`; panics if there is none.
    #[inline]
    pub fn get(&self, id: BlockId) -> Block {
        tick();
        let row = id.index().expect("a block id names a block");
        Block {
            device: self.device[row],
            address: self.address[row],
            requested: self.requested[row],
            allocated: self.allocated[row],
            stream: self.stream[row],
            pool: self.pool[row],
            category: self.category[row],
            op: self.op[row],
            scope: self.scope[row],
            stack: self.stack[row],
            alloc: self.alloc[row],
            free_requested: self.free_requested[row],
            free_completed: self.free_completed[row],
            last_use: self.last_use[row],
            birth: self.births.get(row).copied().flatten(),
            death: self.death(id),
        }
    }

    /// The requested free of a block that is live at the end of the window that was read.
    #[inline]
    fn death(&self, id: BlockId) -> Option<Outside> {
        let found = self.deaths.binary_search_by_key(&id, |(block, _)| *block).ok()?;
        Some(self.deaths[found].1)
    }

    /// Makes room for `rows` more.
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

    /// Appends a row.
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
