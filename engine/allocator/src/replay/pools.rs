//! The allocators of a replay, one for the default pools and one for each private pool, on one device.

use std::sync::Arc;

use super::driver::ReplayDriver;
use super::start::{Private, Start};
use crate::{AllocConfig, Block, CachingAllocator, RestoredState, TieBreak};

/// The restored blocks, each with its row and the index of its allocator.
pub(super) type RestoredBlocks = Vec<(u32, Block, usize)>;

/// The allocators of a replay, by index. The first one serves the default pools.
pub(super) struct Pools {
    driver: ReplayDriver,
    config: AllocConfig,
    tie_break: TieBreak,
    allocators: Vec<(Private, Arc<CachingAllocator>)>,
}

impl Pools {
    /// Restores the allocators from `start`. Returns them with the restored blocks, each with its row and the index of
    /// its allocator.
    pub(super) fn new(
        driver: ReplayDriver,
        (config, tie_break): (AllocConfig, TieBreak),
        start: &Start,
    ) -> (Self, RestoredBlocks) {
        let mut pools = Self { driver, config, tie_break, allocators: Vec::new() };
        let mut blocks = Vec::new();
        let nothing = RestoredState::default();
        let common = (None, start.restored.get(&None).unwrap_or(&nothing));
        let private =
            start.restored.iter().filter(|(pool, _)| pool.is_some()).map(|(pool, restored)| (*pool, restored));
        for (pool, restored) in std::iter::once(common).chain(private) {
            let number = pools.allocators.len();
            let handles = pools.add(pool, restored);
            blocks.extend(handles.into_iter().map(|(row, block)| (row, block, number)));
        }
        (pools, blocks)
    }

    fn add(&mut self, pool: Private, restored: &RestoredState) -> Vec<(u32, Block)> {
        let driver = Box::new(self.driver.clone());
        let (allocator, blocks) = CachingAllocator::restored(driver, self.config.clone(), self.tie_break, restored);
        self.allocators.push((pool, allocator));
        blocks
    }

    /// Returns the index of a pool's allocator, creating the allocator if needed.
    pub(super) fn number(&mut self, pool: Private) -> usize {
        if pool.is_none() {
            return 0;
        }
        let known = self.allocators.iter().position(|(known, _)| *known == pool);
        known.unwrap_or_else(|| {
            self.add(pool, &RestoredState::default());
            self.allocators.len() - 1
        })
    }

    /// Returns the private pool of an allocator; `None` for the default pools.
    pub(super) fn private(&self, number: usize) -> Private {
        self.allocators[number].0
    }

    pub(super) fn len(&self) -> usize {
        self.allocators.len()
    }

    pub(super) fn get(&self, number: usize) -> &CachingAllocator {
        &self.allocators[number].1
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &CachingAllocator> {
        self.allocators.iter().map(|(_, allocator)| &**allocator)
    }
}
