//! The public allocator, which locks the heap for every call, and reports failed requests to the recorder after
//! unlocking.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use highwater_recorder::{Category, DeviceId, StreamId, api};

use super::block::Block;
use super::config::AllocConfig;
use super::driver::{Capacity, Driver, DriverError};
use super::error::AllocError;
use super::heap::Heap;
use super::state::SegmentState;
use super::stats::AllocStats;

/// A caching allocator for the memory of one device. See the [module](super) for a description.
pub struct CachingAllocator {
    device: DeviceId,
    driver: Arc<dyn Driver>,
    config: AllocConfig,
    heap: Mutex<Heap>,
}

impl CachingAllocator {
    /// Creates an allocator without any segments. Settings that the driver does not support (see
    /// [`AllocConfig::check_driver`]) make every request fail with [`AllocError::Config`].
    pub fn new(driver: Box<dyn Driver>, device: DeviceId, config: AllocConfig) -> Arc<Self> {
        let driver: Arc<dyn Driver> = Arc::from(driver);
        let heap = Mutex::new(Heap::new(Arc::clone(&driver), device, config.clone()));
        Arc::new(Self { device, driver, config, heap })
    }

    /// Returns the device whose memory this allocator manages.
    pub fn device(&self) -> DeviceId {
        self.device
    }

    /// Returns the driver that provides the memory. Not public, since a caller could release live memory.
    pub(crate) fn driver(&self) -> &dyn Driver {
        &*self.driver
    }

    /// Returns the device's name, as reported by its driver.
    pub fn device_name(&self) -> String {
        self.driver.name()
    }

    /// Returns the total and free memory of the device, as reported by its driver.
    ///
    /// # Errors
    /// Returns an error if the driver fails.
    pub fn capacity(&self) -> Result<Capacity, DriverError> {
        self.driver.capacity()
    }

    /// Returns the settings. The memory fraction is the initial one.
    pub fn config(&self) -> &AllocConfig {
        &self.config
    }

    /// Allocates a block of at least `bytes` for work on `stream`, aligned to 512 bytes. Work submitted to `stream`
    /// from now on may use the memory; earlier work on `stream` may still use it for a previous block. A request of
    /// zero bytes returns an empty block.
    ///
    /// # Errors
    /// Returns [`AllocError::OutOfMemory`] if releasing all cached memory did not make enough room; the recording gets
    /// an out-of-memory event. Returns other errors if the driver does not support the settings, the request is too
    /// large, or the driver fails.
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

    /// Frees a block. Work that uses it need not be complete: later work on the block's stream runs after that work,
    /// and streams added with [`record_stream`](Self::record_stream) are tracked with events.
    ///
    /// # Panics
    /// Panics if the block belongs to another allocator.
    #[inline]
    #[expect(clippy::needless_pass_by_value, reason = "the block ends here")]
    pub fn free(&self, block: Block) {
        if !block.is_empty() {
            let mut heap = self.heap();
            heap.check_owner(&block);
            heap.free(block.index);
        }
    }

    /// Records that work on `stream` uses the block. After it is freed, the block is not reused before that work is
    /// complete.
    ///
    /// # Panics
    /// Panics if the block belongs to another allocator.
    pub fn record_stream(&self, block: &Block, stream: StreamId) {
        if !block.is_empty() {
            let mut heap = self.heap();
            heap.check_owner(block);
            heap.record_stream(block.index, stream);
        }
    }

    /// Sets the category of a block, for example because it was not known at the allocation.
    ///
    /// # Panics
    /// Panics if the block belongs to another allocator.
    pub fn tag(&self, block: &Block, category: Category) {
        if !block.is_empty() {
            let mut heap = self.heap();
            heap.check_owner(block);
            heap.arena[block.index].context.category = category;
            api::tag(self.device, block.key, category);
        }
    }

    /// Records that work reads or writes the block, if the recording includes uses.
    #[inline]
    pub fn used(&self, block: &Block) {
        if !block.is_empty() {
            api::used(self.device, block.key);
        }
    }

    /// Waits for all streams that still use freed blocks, then releases all cached memory that consists of whole
    /// segments or pages to the driver. Returns the bytes released.
    ///
    /// # Errors
    /// Returns an error if the driver fails.
    pub fn empty_cache(&self) -> Result<u64, AllocError> {
        Ok(self.heap().release_cached()?)
    }

    /// Makes freed blocks available once their events have completed. Every [`malloc`](Self::malloc) does this first.
    ///
    /// # Errors
    /// Returns an error if the driver fails.
    pub fn process_events(&self) -> Result<(), AllocError> {
        Ok(self.heap().process_events()?)
    }

    /// Waits for all streams that still use freed blocks, and makes those blocks available.
    ///
    /// # Errors
    /// Returns an error if the driver fails.
    pub fn synchronize_events(&self) -> Result<(), AllocError> {
        Ok(self.heap().synchronize_events()?)
    }

    /// Limits reserved memory to a fraction of the device memory, from 0 to 1, where 1 removes the limit. Memory that
    /// is already reserved is not released.
    ///
    /// # Errors
    /// Returns [`AllocError::Fraction`] if `fraction` is not between 0 and 1.
    pub fn set_memory_fraction(&self, fraction: f64) -> Result<(), AllocError> {
        if !(0.0..=1.0).contains(&fraction) {
            return Err(AllocError::Fraction { fraction });
        }
        self.heap().memory_fraction = fraction;
        Ok(())
    }

    /// Returns the allocator's statistics.
    pub fn stats(&self) -> AllocStats {
        self.heap().stats.clone()
    }

    /// Sets every peak to the current value.
    pub fn reset_peak_stats(&self) {
        self.heap().stats.reset_peaks();
    }

    /// Sets every accumulated total and counter to 0.
    pub fn reset_accumulated_stats(&self) {
        self.heap().stats.reset_accumulated();
    }

    /// Returns all segments with their blocks, by address.
    pub fn state(&self) -> Vec<SegmentState> {
        self.heap().state()
    }

    /// Checks the allocator's data structures from scratch and returns one sentence per error. Takes time linear in the
    /// number of blocks, so it is meant for tests and debugging.
    pub fn audit(&self) -> Vec<String> {
        self.heap().audit()
    }

    /// Locks the heap. A panic under the lock can leave the data structures incompletely updated; to continue is better
    /// than to make every later free fail, and the audit reports any error.
    #[inline]
    pub(super) fn heap(&self) -> MutexGuard<'_, Heap> {
        self.heap.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for CachingAllocator {
    /// Releases cached memory, so that a recording shows the release. The driver frees the memory of blocks that are
    /// still live.
    fn drop(&mut self) {
        // A driver error here was already reported by an earlier call, or there is no caller left to report it to.
        drop(self.empty_cache());
    }
}

impl std::fmt::Debug for CachingAllocator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (device, kind) = (self.device, self.driver.kind());
        f.debug_struct("CachingAllocator").field("device", &device).field("kind", &kind).finish_non_exhaustive()
    }
}
