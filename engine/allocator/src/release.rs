//! Releases cached memory to the driver: when the program requests it, when the memory is too old, or when another
//! request needs it.

use highwater_recorder::{Pool, StreamId, api};

use super::arena::BlockIndex;
use super::driver::DriverError;
use super::free_list::FreeKey;
use super::heap::Heap;

impl Heap {
    /// Waits for all events, then releases every segment and page that is not in use, first in the large pool, then in
    /// the small pool. Returns the released bytes.
    pub(super) fn release_cached(&mut self) -> Result<u64, DriverError> {
        self.synchronize_events()?;
        let before = self.stats.reserved_bytes.all.current;
        self.release_pool(Pool::Large)?;
        self.release_pool(Pool::Small)?;
        Ok(before - self.stats.reserved_bytes.all.current)
    }

    fn release_pool(&mut self, pool: Pool) -> Result<(), DriverError> {
        let free = self.pool(pool).all();
        let (growing, fixed): (Vec<_>, Vec<_>) = free.into_iter().partition(|&index| self.arena[index].expandable);
        for index in fixed {
            if !self.arena[index].is_split() {
                self.release_segment(index)?;
            }
        }
        for index in growing {
            self.unmap(index)?;
        }
        Ok(())
    }

    pub(super) fn release_segment(&mut self, index: BlockIndex) -> Result<(), DriverError> {
        let range = self.range(index);
        self.unlist(index);
        self.arena.remove(index);
        self.stats.num_device_free += 1;
        self.stats.segment.decrease(range.pool, 1);
        self.stats.reserved_bytes.decrease(range.pool, range.bytes);
        if !self.config.splits_freely(range.bytes) {
            self.stats.oversize_segments.decrease(1);
        }
        api::release(self.device, range);
        self.driver.release(range.address, range.bytes)?;
        self.sample(true);
        Ok(())
    }

    /// With a split limit, releases the smallest free range that could have served the request if splitting were
    /// allowed, if that range is a whole segment. If there is no such range, releases the largest segments of the
    /// stream until they suffice. Returns whether there was such a range or enough was released; if not, these segments
    /// are released anyway.
    pub(super) fn release_oversize(&mut self, stream: StreamId, pool: Pool, bytes: u64) -> Result<bool, DriverError> {
        let Some(limit) = self.config.max_split_bytes() else {
            return Ok(false);
        };
        let wanted = bytes.max(limit);
        let whole = |heap: &Self, index: BlockIndex| !heap.arena[index].expandable && !heap.arena[index].is_split();
        if let Some(FreeKey { index, .. }) = self.pool(pool).best_fit(stream, wanted) {
            if whole(self, index) {
                self.release_segment(index)?;
            }
            return Ok(true);
        }
        let largest = self.pool(pool).smaller(stream, wanted);
        let mut released = 0;
        for index in largest {
            let bytes = self.arena[index].bytes;
            if released >= wanted || bytes < limit {
                break;
            }
            if whole(self, index) {
                self.release_segment(index)?;
                released += bytes;
            }
        }
        Ok(released >= wanted)
    }

    /// If the reserved bytes exceed the threshold, releases segments of the large pool that have been cached for longer
    /// than the average, repeatedly, until the excess is gone or no segment is left. Does not wait for events.
    pub(super) fn collect_garbage(&mut self, limit: u64) -> Result<(), DriverError> {
        let Some(share) = self.config.garbage_collection_threshold() else {
            return Ok(());
        };
        let threshold = (share * limit as f64) as u64;
        let reserved = self.stats.reserved_bytes.all.current;
        let Some(excess) = reserved.checked_sub(threshold).filter(|&excess| excess > 0) else {
            return Ok(());
        };

        let now = self.pool(Pool::Large).searches;
        let age = |heap: &Self, index: BlockIndex| (now - heap.arena[index].listed_at) as f64;
        let mut whole: Vec<BlockIndex> =
            self.pool(Pool::Large).all().into_iter().filter(|&index| !self.arena[index].is_split()).collect();
        let mut total_age: f64 = whole.iter().map(|&index| age(self, index)).sum();
        let mut released = 0;
        while released < excess && !whole.is_empty() {
            let average = total_age / whole.len() as f64;
            let (old, young): (Vec<_>, Vec<_>) =
                whole.into_iter().partition(|&index| !self.arena[index].expandable && age(self, index) >= average);
            if old.is_empty() {
                break;
            }
            for index in old {
                total_age -= age(self, index);
                released += self.arena[index].bytes;
                self.release_segment(index)?;
            }
            whole = young;
        }
        Ok(())
    }
}
