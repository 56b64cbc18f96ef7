//! Operations of [`CachingAllocator`] that only replays use.

use highwater_recorder::{Pool, StreamId};

use super::allocator::CachingAllocator;
use super::config::MAX_REQUEST;
use super::error::AllocError;
use super::request::Request;
use super::rounding::Rounded;

impl CachingAllocator {
    /// Returns whether the cache alone could serve a request now.
    pub(crate) fn could_serve(&self, bytes: u64, stream: StreamId) -> bool {
        let heap = self.heap();
        let requested = bytes.clamp(1, MAX_REQUEST);
        let request = Request { requested, rounded: Rounded::new(requested, &heap.config), stream };
        heap.candidate(&request).is_some()
    }

    /// Releases the segment at `address` to the driver if the whole segment is free. Returns whether it was released.
    pub(crate) fn release_at(&self, address: u64) -> Result<bool, AllocError> {
        let mut heap = self.heap();
        for pool in [Pool::Large, Pool::Small] {
            let found = heap.pool(pool).all().into_iter().find(|index| {
                let record = &heap.arena[*index];
                record.address == address && !record.expandable && !record.is_split()
            });
            if let Some(index) = found {
                heap.release_segment(index)?;
                return Ok(true);
            }
        }
        Ok(false)
    }
}
