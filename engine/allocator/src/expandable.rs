//! Expandable segments, each a large range of addresses that is reserved once and into which memory is mapped page by
//! page.

use highwater_recorder::snapshots::event::Range;
use highwater_recorder::{Pool, StreamId, api};

use super::arena::{BlockIndex, Use};
use super::config::MAX_REQUEST;
use super::driver::DriverError;
use super::heap::Heap;
use super::rounding::SMALL_SEGMENT;

impl Heap {
    pub(super) fn page_bytes(&self, pool: Pool) -> u64 {
        match pool {
            Pool::Small => SMALL_SEGMENT,
            Pool::Large => self.config.large_segment_bytes(),
        }
    }

    /// Maps pages until there is a free range of `bytes`, and removes it from the free list. Returns `None` if there is
    /// not enough memory or address space. Pages mapped before a failure stay mapped.
    pub(super) fn grow(&mut self, stream: StreamId, pool: Pool, bytes: u64) -> Result<Option<BlockIndex>, DriverError> {
        let Some(mut candidate) = self.find_growable(stream, pool, bytes)? else {
            return Ok(None);
        };
        if self.arena[candidate].used == Use::Unmapped {
            let wanted = bytes.min(self.arena[candidate].bytes);
            if !self.map_front(candidate, wanted)? {
                return Ok(None);
            }
        }
        while self.arena[candidate].bytes < bytes {
            // The candidate is free and its neighbour unmapped: mapping coalesces the two.
            let missing = bytes - self.arena[candidate].bytes;
            let next = self.arena[candidate].next;
            if !self.map_front(next, missing.min(self.arena[next].bytes))? {
                return Ok(None);
            }
            candidate = next;
        }
        self.unlist(candidate);
        Ok(Some(candidate))
    }

    /// Returns the first range of the lowest contiguous free and unmapped ranges with at least `bytes` bytes in total.
    /// If there are none, makes a new reservation; returns `None` if even that would be too small, or if the driver has
    /// no addresses left.
    fn find_growable(&mut self, stream: StreamId, pool: Pool, bytes: u64) -> Result<Option<BlockIndex>, DriverError> {
        for unmapped in self.pool(pool).unmapped(stream) {
            let previous = self.arena[unmapped].previous;
            let starts_free = previous.is_some() && self.arena[previous].used == Use::Free;
            let start = if starts_free { previous } else { unmapped };
            if self.has_run(start, bytes) {
                return Ok(Some(start));
            }
        }
        let total = self.driver.capacity()?.total;
        let reserved = total.saturating_add(total / 8).min(MAX_REQUEST).next_multiple_of(self.page_bytes(pool));
        if reserved < bytes {
            return Ok(None);
        }
        let address = match self.driver.reserve_addresses(reserved) {
            Ok(address) => address,
            Err(DriverError::OutOfMemory) => return Ok(None),
            Err(error) => return Err(error),
        };
        let index = self.register(Range { address, bytes: reserved, stream, pool }, Use::Unmapped);
        self.list(index);
        Ok(Some(index))
    }

    /// Returns whether at least `bytes` bytes from the range `start` on are free or unmapped.
    fn has_run(&self, start: BlockIndex, bytes: u64) -> bool {
        let (mut index, mut found) = (start, 0);
        while found < bytes && index.is_some() && matches!(self.arena[index].used, Use::Free | Use::Unmapped) {
            found += self.arena[index].bytes;
            index = self.arena[index].next;
        }
        found >= bytes
    }

    /// Maps the first `bytes` of an unmapped range, rounded up to whole pages. Coalesces them with free neighbours, and
    /// lists the result under the index of the range. Returns false if the device does not have enough memory.
    fn map_front(&mut self, index: BlockIndex, bytes: u64) -> Result<bool, DriverError> {
        let pool = self.arena[index].pool;
        let page = self.page_bytes(pool);
        let bytes = bytes.next_multiple_of(page);
        let range = Range { bytes, ..self.range(index) };
        match self.driver.map(range.address, bytes, page) {
            Ok(()) => {}
            Err(DriverError::OutOfMemory) => return Ok(false),
            Err(error) => return Err(error),
        }
        self.unlist(index);
        if bytes < self.arena[index].bytes {
            let rest = self.arena.cut_back(index, bytes);
            self.list(rest);
        }
        self.arena[index].used = Use::Free;
        self.join_neighbours(index);
        self.list(index);
        self.stats.reserved_bytes.increase(pool, bytes);
        self.stats.num_device_alloc += 1;
        api::map(self.device, range);
        self.sample(true);
        Ok(true)
    }

    /// Unmaps the whole pages of a free range; the remainders at both ends stay free. Releases the reservation if no
    /// page of it is mapped any more.
    pub(super) fn unmap(&mut self, index: BlockIndex) -> Result<(), DriverError> {
        let range = self.range(index);
        let page = self.page_bytes(range.pool);
        let base = self.arena[index].base;
        let start = base + (range.address - base).next_multiple_of(page);
        let end = base + (self.arena[index].end() - base) / page * page;
        if start >= end {
            return Ok(());
        }
        self.unlist(index);
        if range.address < start {
            let front = self.arena.cut_front(index, start - range.address);
            self.list(front);
        }
        if end < self.arena[index].end() {
            let back = self.arena.cut_back(index, end - start);
            self.list(back);
        }
        self.arena[index].used = Use::Unmapped;
        self.join_neighbours(index);
        self.list(index);
        let bytes = end - start;
        self.stats.reserved_bytes.decrease(range.pool, bytes);
        self.stats.num_device_free += 1;
        api::unmap(self.device, Range { address: start, bytes, ..range });
        self.driver.synchronize(range.stream)?;
        self.driver.unmap(start, bytes)?;
        self.sample(true);
        if !self.arena[index].is_split() {
            self.unlist(index);
            let (address, bytes) = self.arena.remove(index);
            self.driver.release_addresses(address, bytes)?;
        }
        Ok(())
    }
}
