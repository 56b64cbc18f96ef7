//! Provides the allocator's state as a [`Source`], for a recording that starts while memory is already allocated.

use highwater_recorder::snapshots::event::{Alloc, Range};
use highwater_recorder::snapshots::trace::DeviceFacts;
use highwater_recorder::snapshots::{StartingBlock, StartingState};
use highwater_recorder::{Source, StackId};

use super::allocator::CachingAllocator;
use super::arena::Use;
use super::heap::Heap;

impl Source for CachingAllocator {
    fn facts(&self) -> DeviceFacts {
        let driver = self.driver();
        let mut settings = vec![("alloc_conf".to_owned(), self.config().to_string())];
        settings.extend(driver.facts());
        DeviceFacts {
            device: self.device(),
            name: driver.name(),
            // If the driver fails here, the first request reports the error.
            capacity_bytes: self.capacity().map_or(0, |capacity| capacity.total),
            driver: driver.kind().name().to_owned(),
            settings,
        }
    }

    fn freeze(&self, read: &mut dyn FnMut(StartingState)) {
        let heap = self.heap();
        read(heap.starting_state());
    }

    fn sample(&self, is_due: bool) {
        self.heap().sample(is_due);
    }
}

impl Heap {
    fn starting_state(&self) -> StartingState {
        let mut state = StartingState { device: self.device, ..StartingState::default() };
        for segment in self.state() {
            let range =
                Range { address: segment.address, bytes: segment.bytes, stream: segment.stream, pool: segment.pool };
            if segment.expandable { &mut state.mappings } else { &mut state.segments }.push(range);
        }
        for (_, record) in self.arena.iter().filter(|(_, record)| matches!(record.used, Use::Allocated | Use::Waiting))
        {
            let alloc = Alloc {
                block: record.key,
                address: record.address,
                requested: record.requested,
                allocated: record.bytes,
                stream: record.stream,
                pool: record.pool,
                category: record.context.category,
                op: record.context.op,
                scope: record.context.scope,
            };
            let free_requested = record.used == Use::Waiting;
            state.blocks.push(StartingBlock { alloc, stack: StackId::NONE, free_requested });
        }
        state.blocks.sort_by_key(|block| block.alloc.block);
        state
    }
}
