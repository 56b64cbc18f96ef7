//! Times as allocation counts on a device, as recorded by the Python package.
//!
//! The count at the end of the recording is known, so the last allocation of the trace has that position.

use hashbrown::HashMap;

use super::super::raw::RunFacts;
use highwater_snapshots::event::EventKind;
use highwater_snapshots::ids::{BlockId, DeviceId, EventId};
use highwater_snapshots::trace::TraceParts;

pub(super) struct Positions {
    /// The allocations, in order.
    pub(super) allocs: Vec<EventId>,
    /// The position of the recording's beginning.
    first: u64,
    pub(super) by_address: HashMap<u64, Vec<BlockId>>,
}

impl Positions {
    fn of(trace: &TraceParts, device: DeviceId, total: u64) -> Self {
        let is_alloc = |row: &usize| trace.events.kind[*row] == EventKind::Alloc && trace.events.device[*row] == device;
        let allocs: Vec<EventId> = (0..trace.events.len()).filter(is_alloc).map(EventId::from_index).collect();
        let mut by_address: HashMap<u64, Vec<BlockId>> = HashMap::new();
        for block in trace.blocks.ids().filter(|block| trace.blocks.device[block.0 as usize] == device) {
            by_address.entry(trace.blocks.address[block.0 as usize]).or_default().push(block);
        }
        let first = total.saturating_sub(allocs.len() as u64);
        Self { allocs, first, by_address }
    }

    /// Returns the positions of allocations on `device` in a recorded program; `None` if they were not counted.
    pub(super) fn in_run(trace: &TraceParts, run: &RunFacts, device: u16) -> Option<Self> {
        Some(Self::of(trace, DeviceId(device), run.number(&format!("device.{device}.allocations"))?))
    }

    pub(super) fn is_before(&self, position: Option<u64>) -> bool {
        position.is_some_and(|position| position < self.first)
    }

    /// Returns the number of allocations in the recording before `position`; `None` if `position` is outside the
    /// recording.
    pub(super) fn recorded(&self, position: u64) -> Option<u64> {
        position.checked_sub(self.first).filter(|count| *count <= self.allocs.len() as u64)
    }

    /// Returns the block of `bytes` that is live at `address` after `count` allocations, and the number of allocations
    /// up to its own; `None` if there is no such block.
    pub(super) fn block(&self, trace: &TraceParts, count: u64, address: u64, bytes: u64) -> Option<(BlockId, u64)> {
        let before = count.checked_sub(1).map(|last| self.allocs[last as usize]);
        let blocks = &trace.blocks;
        let is_made = |block: &BlockId| {
            let alloc = blocks.alloc[block.0 as usize];
            !alloc.is_some() || before.is_some_and(|last| alloc <= last)
        };
        // Blocks of one address are in the order of their allocations.
        let all = self.by_address.get(&address)?;
        let block = *all.get(all.partition_point(is_made).checked_sub(1)?)?;
        let is_live = before.is_none_or(|last| blocks.free_requested[block.0 as usize] > last);
        if !is_live || bytes > blocks.allocated[block.0 as usize] {
            return None;
        }
        let alloc = blocks.alloc[block.0 as usize];
        let own = if alloc.is_some() { self.allocs.partition_point(|other| *other <= alloc) as u64 } else { 0 };
        Some((block, own))
    }
}
