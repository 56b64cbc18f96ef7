//! Restores an allocator from a recorded state: segments and blocks at their recorded addresses.

use std::sync::Arc;

use highwater_recorder::api::UNRECORDED;
use highwater_recorder::context::Context;
use highwater_recorder::snapshots::event::Range;

use super::allocator::CachingAllocator;
use super::arena::{BlockIndex, Use};
use super::block::Block;
use super::config::AllocConfig;
use super::driver::Driver;
use super::heap::Heap;
use super::tie_break::TieBreak;

/// A segment, or a run of mapped pages, to restore.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RestoredSegment {
    pub(crate) range: Range,
    /// The blocks, in address order, without overlaps, and within the range; the gaps between them are free.
    pub(crate) blocks: Vec<RestoredBlock>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RestoredBlock {
    /// The caller's id of the block.
    pub(crate) name: u32,
    pub(crate) address: u64,
    pub(crate) requested: u64,
    /// The size after rounding, in bytes, which is not 0.
    pub(crate) allocated: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RestoredState {
    /// Segments, oldest first.
    pub(crate) segments: Vec<RestoredSegment>,
    /// Reserved address ranges, each with its mapped runs in address order.
    pub(crate) reservations: Vec<(Range, Vec<RestoredSegment>)>,
}

impl CachingAllocator {
    /// Creates an allocator with the given state. Also returns the handles of the restored blocks with their ids. Does
    /// not call the driver for the restored memory, and does not record the allocator's operations.
    pub(crate) fn restored(
        driver: Box<dyn Driver>,
        config: AllocConfig,
        tie_break: TieBreak,
        restored: &RestoredState,
    ) -> (Arc<Self>, Vec<(u32, Block)>) {
        let allocator = Self::new(driver, UNRECORDED, config);
        let mut blocks = Vec::new();
        {
            let mut heap = allocator.heap();
            heap.tie_break = tie_break;
            for segment in &restored.segments {
                heap.restore_segment(segment, &mut blocks);
            }
            for (addresses, runs) in &restored.reservations {
                heap.plant_reservation(*addresses, runs, &mut blocks);
            }
            heap.stats.reset_accumulated();
            heap.stats.reset_peaks();
        }
        (allocator, blocks)
    }
}

impl Heap {
    fn restore_segment(&mut self, segment: &RestoredSegment, blocks: &mut Vec<(u32, Block)>) {
        let index = self.register(segment.range, Use::Free);
        self.stats.segment.increase(segment.range.pool, 1);
        self.stats.reserved_bytes.increase(segment.range.pool, segment.range.bytes);
        if !self.config.splits_freely(segment.range.bytes) {
            self.stats.oversize_segments.increase(1);
        }
        let whole = self.fill(index, segment, blocks);
        if let Some(rest) = whole {
            self.list_planted(rest);
        }
    }

    fn plant_reservation(&mut self, addresses: Range, runs: &[RestoredSegment], blocks: &mut Vec<(u32, Block)>) {
        let mut rest = Some(self.register(addresses, Use::Unmapped));
        for run in runs {
            let Some(index) = rest else { return };
            let (start, end) = (self.arena[index].address, self.arena[index].end());
            let gap = run.range.address.saturating_sub(start);
            if gap > 0 {
                let before = self.arena.cut_front(index, gap);
                self.list(before);
            }
            let run_end = run.range.address + run.range.bytes;
            let mapped = if run_end < end { self.arena.cut_front(index, run.range.bytes) } else { index };
            rest = (mapped != index).then_some(index);
            self.arena[mapped].used = Use::Free;
            self.stats.reserved_bytes.increase(run.range.pool, run.range.bytes);
            if let Some(free) = self.fill(mapped, run, blocks) {
                self.list_planted(free);
            }
        }
        if let Some(index) = rest {
            self.list(index);
        }
    }

    /// Splits the blocks of a segment off the free range `index`; returns the remainder at its end.
    fn fill(
        &mut self,
        index: BlockIndex,
        segment: &RestoredSegment,
        blocks: &mut Vec<(u32, Block)>,
    ) -> Option<BlockIndex> {
        for block in &segment.blocks {
            let gap = block.address - self.arena[index].address;
            if gap > 0 {
                let free = self.arena.cut_front(index, gap);
                self.list_planted(free);
            }
            let is_last = block.allocated == self.arena[index].bytes;
            let taken = if is_last { index } else { self.arena.cut_front(index, block.allocated) };
            blocks.push((block.name, self.plant_block(taken, block)));
            if is_last {
                return None;
            }
        }
        Some(index)
    }

    fn list_planted(&mut self, index: BlockIndex) {
        self.list(index);
        let record = &self.arena[index];
        if record.is_split() && !record.expandable {
            let (pool, bytes) = (record.pool, record.bytes);
            self.stats.inactive_split.increase(pool, 1);
            self.stats.inactive_split_bytes.increase(pool, bytes);
        }
    }

    fn plant_block(&mut self, index: BlockIndex, block: &RestoredBlock) -> Block {
        let key = self.next_key;
        self.next_key += 1;
        let record = &mut self.arena[index];
        record.used = Use::Allocated;
        record.requested = block.requested;
        record.key = key;
        record.context = Context::NOTHING;
        let handle = Block {
            index,
            owner: self.number,
            key,
            address: record.address,
            requested: block.requested,
            allocated: record.bytes,
            stream: record.stream,
            pool: record.pool,
        };
        self.count_alloc(&handle);
        handle
    }
}
