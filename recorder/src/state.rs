//! The live segments and blocks of a device, updated event by event, so that a recording can start at any event.

use std::collections::HashMap;

use highwater_snapshots::event::{Event, Range, What};
use highwater_snapshots::{DeviceId, StartingBlock, StartingState};

/// The segments and blocks of a device.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeviceState {
    segments: HashMap<u64, Range>,
    mappings: Vec<Range>,
    blocks: HashMap<u64, StartingBlock>,
}

impl From<&StartingState> for DeviceState {
    fn from(state: &StartingState) -> Self {
        Self {
            segments: state.segments.iter().map(|range| (range.address, *range)).collect(),
            mappings: state.mappings.clone(),
            blocks: state.blocks.iter().map(|block| (block.alloc.block, *block)).collect(),
        }
    }
}

impl DeviceState {
    /// Applies an event of the device.
    pub(crate) fn fold(&mut self, event: &Event) {
        match event.what {
            What::Alloc(alloc) => {
                let block = StartingBlock { alloc, stack: event.stack, free_requested: false };
                self.blocks.insert(alloc.block, block);
            }
            What::FreeRequested(key) => {
                if let Some(block) = self.blocks.get_mut(&key) {
                    block.free_requested = true;
                }
            }
            What::FreeCompleted(key) => drop(self.blocks.remove(&key)),
            What::Tag(key, category) => {
                if let Some(block) = self.blocks.get_mut(&key) {
                    block.alloc.category = category;
                }
            }
            What::SegmentAlloc(range) => drop(self.segments.insert(range.address, range)),
            What::SegmentFree(range) => drop(self.segments.remove(&range.address)),
            What::SegmentMap(range) => self.mappings.push(range),
            What::SegmentUnmap(range) => self.unmap(range),
            What::Oom(_) | What::DeviceUsed(_) | What::Step(_) | What::Phase(_) | What::Mark(_) | What::Used(_) => {}
        }
    }

    /// Removes a range from the mappings, cutting those that it overlaps.
    fn unmap(&mut self, gone: Range) {
        let end = gone.address.saturating_add(gone.bytes);
        let mut kept = Vec::with_capacity(self.mappings.len() + 1);
        for range in self.mappings.drain(..) {
            let range_end = range.address.saturating_add(range.bytes);
            if range_end <= gone.address || range.address >= end {
                kept.push(range);
                continue;
            }
            if range.address < gone.address {
                kept.push(Range { bytes: gone.address - range.address, ..range });
            }
            if range_end > end {
                kept.push(Range { address: end, bytes: range_end - end, ..range });
            }
        }
        self.mappings = kept;
    }

    /// Returns the state, with blocks sorted by key, segments and mappings by address.
    pub(crate) fn state(&self, device: DeviceId) -> StartingState {
        let mut segments: Vec<Range> = self.segments.values().copied().collect();
        segments.sort_by_key(|range| range.address);
        let mut mappings = self.mappings.clone();
        mappings.sort_by_key(|range| range.address);
        let mut blocks: Vec<StartingBlock> = self.blocks.values().copied().collect();
        blocks.sort_by_key(|block| block.alloc.block);
        StartingState { device, segments, mappings, blocks }
    }
}
