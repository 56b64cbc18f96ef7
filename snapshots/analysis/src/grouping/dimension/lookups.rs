//! Lookup tables for the values of blocks, each built on first use.

use highwater_snapshots::ids::BlockId;
use highwater_snapshots::trace::{Block, Trace};

use crate::grouping::origin::Origins;
use crate::index::pools::Pools;

/// Lookup tables for the values of blocks. Lookups are fastest in block order.
#[derive(Clone, Debug)]
pub(crate) struct Lookups<'a> {
    pub(crate) trace: &'a Trace,
    pub(super) origins: Origins<'a>,
    pools: Option<Pools>,
}

impl<'a> Lookups<'a> {
    pub(crate) fn new(trace: &'a Trace) -> Self {
        Self { trace, origins: Origins::new(trace), pools: None }
    }

    pub(super) fn block(&self, id: BlockId) -> Block {
        self.trace.blocks.get(id)
    }

    pub(super) fn pools(&mut self) -> &Pools {
        self.pools.get_or_insert_with(|| Pools::of(self.trace))
    }
}
