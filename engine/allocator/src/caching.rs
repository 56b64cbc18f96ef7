//! Serves requests from the cache, from the driver, or after releasing cached memory.

use highwater_recorder::snapshots::event::Range;
use highwater_recorder::{Pool, StreamId, api, context};

use super::arena::{BlockIndex, Use};
use super::block::Block;
use super::config::MAX_REQUEST;
use super::driver::DriverError;
use super::error::AllocError;
use super::free_list::FreeKey;
use super::heap::Heap;
use super::request::Request;
use super::rounding::{MIN_BLOCK, Rounded, SMALL_REQUEST};

impl Heap {
    /// Serves a request of at least one byte.
    #[inline]
    pub(super) fn malloc(&mut self, requested: u64, stream: StreamId) -> Result<Block, AllocError> {
        if !self.events.is_empty() {
            self.process_events()?;
        }
        if requested > MAX_REQUEST {
            return Err(AllocError::TooLarge { requested });
        }
        let request = Request { requested, rounded: Rounded::new(requested, &self.config), stream };
        let found = match self.find(&request) {
            Some(index) => index,
            None => self.reserve_with_retries(&request)?,
        };
        Ok(self.allocate_from(found, &request))
    }

    /// Takes the best fit out of the cache. Considers only one candidate, and returns `None` if it may not be used.
    #[inline]
    pub(super) fn find(&mut self, request: &Request) -> Option<BlockIndex> {
        if self.collects_garbage() {
            self.pool_mut(request.rounded.pool).searches += 1;
        }
        let index = self.candidate(request)?;
        self.unlist(index);
        Some(index)
    }

    /// Returns the cached range that the request would get; `None` if it gets none.
    #[inline]
    pub(super) fn candidate(&self, request: &Request) -> Option<BlockIndex> {
        let bytes = request.rounded.block;
        let index = self.best_fit(request)?;
        if let Some(limit) = self.config.max_split_bytes() {
            let candidate = self.arena[index].bytes;
            let too_good = bytes < limit && candidate >= limit;
            let too_large = bytes >= limit && candidate - bytes >= self.config.max_non_split_rounding_bytes();
            if too_good || too_large {
                return None;
            }
        }
        Some(index)
    }

    #[inline]
    fn best_fit(&self, request: &Request) -> Option<BlockIndex> {
        let key = self.pool(request.rounded.pool).best_fit(request.stream, request.rounded.block)?;
        if self.config.expandable_segments() { Some(self.least_room(key, request)) } else { Some(key.index) }
    }

    /// Selects a free range in an expandable segment, where the unmapped range after a free range counts towards its
    /// size. Starts from the smallest range that fits, and continues with the next larger one while that one has less
    /// room.
    fn least_room(&self, first: FreeKey, request: &Request) -> BlockIndex {
        let room = |key: FreeKey| {
            let record = &self.arena[key.index];
            let next = record.next;
            let can_grow = next.is_some() && self.arena[next].used == Use::Unmapped;
            record.bytes + if can_grow { self.arena[next].bytes } else { 0 }
        };
        let mut best = first;
        while let Some(next) = self.pool(request.rounded.pool).after(request.stream, best)
            && room(next) < room(best)
        {
            best = next;
        }
        best.index
    }

    /// Reserves memory that the cache does not have, step by step: after garbage collection, from the driver; after
    /// releasing segments that are too large to be split; after synchronizing all streams and releasing the whole
    /// cache; and finally from the cache again, where blocks that waited for another stream may have become free.
    /// PyTorch lacks the last step and fails there (pytorch/pytorch issue 189504); every request that it can serve is
    /// served in the same way here.
    #[cold]
    fn reserve_with_retries(&mut self, request: &Request) -> Result<BlockIndex, AllocError> {
        let Rounded { block: bytes, pool, .. } = request.rounded;
        self.config.check_driver(&*self.driver)?;
        if let Some(limit) = self.limit()?
            && self.collects_garbage()
        {
            self.collect_garbage(limit)?;
        }
        if let Some(index) = self.reserve(request)? {
            return Ok(index);
        }
        if self.release_oversize(request.stream, pool, bytes)?
            && let Some(index) = self.reserve(request)?
        {
            return Ok(index);
        }
        let released = self.release_cached()?;
        self.stats.num_alloc_retries += 1;
        if let Some(index) = self.reserve(request)? {
            return Ok(index);
        }
        if let Some(index) = self.find(request) {
            return Ok(index);
        }
        self.stats.num_ooms += 1;
        Err(AllocError::OutOfMemory(Box::new(self.report(request, released)?)))
    }

    /// Returns the maximum number of bytes that may be reserved, if there is a limit.
    pub(super) fn limit(&self) -> Result<Option<u64>, DriverError> {
        if self.memory_fraction >= 1.0 {
            return Ok(None);
        }
        let total = self.driver.capacity()?.total;
        Ok(Some((self.memory_fraction * total as f64).round() as u64))
    }

    /// Reserves a new range for the request from the driver. Returns `None` if the limit or the device does not allow
    /// it.
    fn reserve(&mut self, request: &Request) -> Result<Option<BlockIndex>, DriverError> {
        let Rounded { segment, pool, block } = request.rounded;
        let reserved = self.stats.reserved_bytes.all.current;
        if self.limit()?.is_some_and(|limit| reserved.saturating_add(segment) > limit) {
            return Ok(None);
        }
        if self.config.expandable_segments() {
            return self.grow(request.stream, pool, block);
        }
        let address = match self.driver.reserve(segment) {
            Ok(address) => address,
            Err(DriverError::OutOfMemory) => return Ok(None),
            Err(error) => return Err(error),
        };
        let range = Range { address, bytes: segment, stream: request.stream, pool };
        let index = self.register(range, Use::Free);
        self.stats.num_device_alloc += 1;
        self.stats.segment.increase(pool, 1);
        self.stats.reserved_bytes.increase(pool, segment);
        if !self.config.splits_freely(segment) {
            self.stats.oversize_segments.increase(1);
        }
        api::reserve(self.device, range);
        self.sample(true);
        Ok(Some(index))
    }

    /// Returns whether the rest of a range after the request is worth splitting off.
    #[inline]
    fn splits(&self, rest: u64, request: &Request) -> bool {
        if request.rounded.pool == Pool::Small || self.config.expandable_segments() {
            rest >= MIN_BLOCK
        } else {
            self.config.splits_freely(request.rounded.block) && rest > SMALL_REQUEST
        }
    }

    /// Allocates a free range that is in no list, and splits off and lists the rest.
    #[inline]
    fn allocate_from(&mut self, found: BlockIndex, request: &Request) -> Block {
        let Rounded { block: bytes, pool, .. } = request.rounded;
        let record = &self.arena[found];
        let (was_split, counts_split, rest) = (record.is_split(), !record.expandable, record.bytes - bytes);
        let mut index = found;
        if self.splits(rest, request) {
            index = self.arena.cut_front(found, bytes);
            self.list(found);
            if counts_split && was_split {
                self.stats.inactive_split_bytes.decrease(pool, bytes);
            } else if counts_split {
                self.stats.inactive_split_bytes.increase(pool, rest);
                self.stats.inactive_split.increase(pool, 1);
            }
        } else if counts_split && was_split {
            self.stats.inactive_split_bytes.decrease(pool, bytes + rest);
            self.stats.inactive_split.decrease(pool, 1);
        }
        let key = self.next_key;
        self.next_key += 1;
        let record = &mut self.arena[index];
        record.used = Use::Allocated;
        record.requested = request.requested;
        record.key = key;
        record.context = context::current();
        let block = Block {
            index,
            owner: self.number,
            key,
            address: record.address,
            requested: request.requested,
            allocated: record.bytes,
            stream: request.stream,
            pool,
        };
        self.count_alloc(&block);
        block
    }

    #[inline]
    pub(super) fn count_alloc(&mut self, block: &Block) {
        let Block { address, requested, allocated, stream, pool, .. } = *block;
        let stats = &mut self.stats;
        stats.allocation.increase(pool, 1);
        stats.allocated_bytes.increase(pool, allocated);
        stats.active.increase(pool, 1);
        stats.active_bytes.increase(pool, allocated);
        stats.requested_bytes.increase(pool, requested);
        if !self.config.splits_freely(allocated) {
            stats.oversize_allocations.increase(1);
        }
        api::alloc(self.device, &api::NewBlock { block: block.key, address, requested, allocated, stream, pool });
    }
}
