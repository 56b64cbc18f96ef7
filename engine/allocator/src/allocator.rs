//! Allocator: the public face of the heap: one lock, and what must be said outside it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use highwater_recorder::{Category, DeviceId, StreamId, api};

use super::block::Block;
use super::config::AllocConfig;
use super::driver::{Capacity, Driver, DriverError};
use super::error::AllocError;
use super::heap::Heap;
use super::state::SegmentState;
use super::stats::AllocStats;

/// A caching allocator over the memory of one device. See the [module](super) for how it works.
pub struct CachingAllocator {
    device: DeviceId,
    driver: Arc<dyn Driver>,
    config: AllocConfig,
    heap: Mutex<Heap>,
}

impl CachingAllocator {
    /// An allocator that holds nothing yet. Settings that the driver cannot follow (see
    /// [`AllocConfig::check_driver`]) make every request fail with [`AllocError::Config`].
    pub fn new(driver: Box<dyn Driver>, device: DeviceId, config: AllocConfig) -> Arc<Self> {
        let driver: Arc<dyn Driver> = Arc::from(driver);
        let heap = Mutex::new(Heap::new(Arc::clone(&driver), device, config.clone()));
        Arc::new(Self { device, driver, config, heap })
    }

    /// The device whose memory this is.
    pub fn device(&self) -> DeviceId {
        self.device
    }

    /// The driver that the memory comes from. Not public: who could call it could take live memory away.
    pub(crate) fn driver(&self) -> &dyn Driver {
        &*self.driver
    }

    /// The device's name, as its driver has it.
    pub fn device_name(&self) -> String {
        self.driver.name()
    }

    /// The size of the device and what is free of it, as its driver says.
    pub fn capacity(&self) -> Result<Capacity, DriverError> {
        self.driver.capacity()
    }

    /// The settings. The memory fraction among them is the one that the allocator began with.
    pub fn config(&self) -> &AllocConfig {
        &self.config
    }

    /// A block of at least `bytes` for work on `stream`, aligned to 512 bytes. The memory may still be in use by work
    /// that `stream` was given before: it is safe for work that the stream is given from now on. Zero bytes give an
    /// empty block.
    ///
    /// # Errors
    /// [`AllocError::OutOfMemory`] once all cached memory was given back in vain; the recording is told.
    #[inline]
    pub fn malloc(&self, bytes: u64, stream: StreamId) -> Result<Block, AllocError> {
        if bytes == 0 {
            return Ok(Block::empty(stream));
        }
        let result = self.heap().malloc(bytes, stream);
        if let Err(AllocError::OutOfMemory(report)) = &result {
            api::oom(self.device, Some(stream), bytes, report.device_free);
        }
        result
    }

    /// Takes a block back. The work that uses it need not be done: its own stream will use the memory only afterwards,
    /// and streams named with [`record_stream`](Self::record_stream) are waited for, by events.
    ///
    /// # Panics
    /// If the block is another allocator's.
    #[inline]
    #[expect(clippy::needless_pass_by_value, reason = "the block ends here")]
    pub fn free(&self, block: Block) {
        if !block.is_empty() {
            let mut heap = self.heap();
            heap.check_owner(&block);
            heap.free(block.index);
        }
    }

    /// Notes that work on `stream` uses the block: once freed, it is not used again before that work is done.
    ///
    /// # Panics
    /// If the block is another allocator's.
    pub fn record_stream(&self, block: &Block, stream: StreamId) {
        if !block.is_empty() {
            let mut heap = self.heap();
            heap.check_owner(block);
            heap.record_stream(block.index, stream);
        }
    }

    /// Says what a block is for, where that became known after it was handed out.
    ///
    /// # Panics
    /// If the block is another allocator's.
    pub fn tag(&self, block: &Block, category: Category) {
        if !block.is_empty() {
            let mut heap = self.heap();
            heap.check_owner(block);
            heap.arena[block.index].context.category = category;
            api::tag(self.device, block.key, category);
        }
    }

    /// Says, in a recording that asks for it, that work reads or writes the block.
    #[inline]
    pub fn used(&self, block: &Block) {
        if !block.is_empty() {
            api::used(self.device, block.key);
        }
    }

    /// Waits for all streams that freed blocks wait for, then gives all cached memory back to the driver, as far as it
    /// consists of whole segments or pages. Gives the bytes released.
    pub fn empty_cache(&self) -> Result<u64, AllocError> {
        Ok(self.heap().release_cached()?)
    }

    /// Makes blocks available whose streams have got far enough. Every [`malloc`](Self::malloc) does this first.
    pub fn process_events(&self) -> Result<(), AllocError> {
        Ok(self.heap().process_events()?)
    }

    /// Waits for all streams that freed blocks wait for, and makes those blocks available.
    pub fn synchronize_events(&self) -> Result<(), AllocError> {
        Ok(self.heap().synchronize_events()?)
    }

    /// Limits what may be reserved to a share of the device, from 0 to 1; 1 takes the limit away. Memory that is
    /// reserved already stays.
    pub fn set_memory_fraction(&self, fraction: f64) -> Result<(), AllocError> {
        if !(0.0..=1.0).contains(&fraction) {
            return Err(AllocError::Fraction { fraction });
        }
        self.heap().memory_fraction = fraction;
        Ok(())
    }

    /// What the allocator has counted so far.
    pub fn stats(&self) -> AllocStats {
        self.heap().stats.clone()
    }

    /// Sets every peak to the current value.
    pub fn reset_peak_stats(&self) {
        self.heap().stats.reset_peaks();
    }

    /// Sets every running total and counter to 0.
    pub fn reset_accumulated_stats(&self) {
        self.heap().stats.reset_accumulated();
    }

    /// All segments with their blocks, by address.
    pub fn state(&self) -> Vec<SegmentState> {
        self.heap().state()
    }

    /// Checks the allocator's own books from scratch and gives what is wrong, in a sentence each; empty if all is well.
    /// Takes time linear in the blocks: for tests and for hunting bugs.
    pub fn audit(&self) -> Vec<String> {
        self.heap().audit()
    }

    /// A panic under the lock leaves the books as they were at worst between two steps; going on is as safe as the
    /// audit says, and better than failing every later free.
    #[inline]
    pub(super) fn heap(&self) -> MutexGuard<'_, Heap> {
        self.heap.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for CachingAllocator {
    /// Gives cached memory back, so that a recording sees it go. What blocks still hold, the driver frees.
    fn drop(&mut self) {
        // A driver that fails here has said so before, or has nobody left to tell.
        drop(self.empty_cache());
    }
}

impl std::fmt::Debug for CachingAllocator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (device, kind) = (self.device, self.driver.kind());
        f.debug_struct("CachingAllocator").field("device", &device).field("kind", &kind).finish_non_exhaustive()
    }
}
