//! The state of an allocator behind its lock: lists, coalesces and counts its free ranges.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use highwater_recorder::context::Context;
use highwater_recorder::snapshots::event::Range;
use highwater_recorder::{DeviceId, Pool, Throttle, api};

use super::arena::{Arena, BlockIndex, Record, Use};
use super::block::Block;
use super::config::AllocConfig;
use super::driver::{Driver, DriverKind};
use super::event_queue::EventQueues;
use super::free_list::FreeList;
use super::stats::AllocStats;
use super::tie_break::TieBreak;

pub(super) struct Heap {
    /// Unique among the heaps of this process.
    pub(super) number: u64,
    pub(super) device: DeviceId,
    pub(super) driver: Arc<dyn Driver>,
    pub(super) config: AllocConfig,
    /// The fraction of the device memory that may be reserved; 1 means no limit.
    pub(super) memory_fraction: f64,
    pub(super) tie_break: TieBreak,
    pub(super) arena: Arena,
    pub(super) pools: [FreeList; 2],
    pub(super) events: EventQueues,
    pub(super) stats: AllocStats,
    pub(super) next_key: u64,
    pub(super) next_registration: u64,
    sampling: Throttle,
}

impl Heap {
    pub(super) fn new(driver: Arc<dyn Driver>, device: DeviceId, config: AllocConfig) -> Self {
        static HEAPS: AtomicU64 = AtomicU64::new(1);
        Self {
            number: HEAPS.fetch_add(1, Ordering::Relaxed),
            device,
            driver,
            memory_fraction: config.memory_fraction(),
            tie_break: TieBreak::default(),
            arena: Arena::new(),
            pools: Default::default(),
            events: EventQueues::default(),
            stats: AllocStats { max_split_size: config.max_split_bytes(), ..AllocStats::default() },
            config,
            next_key: 0,
            next_registration: 0,
            sampling: Throttle::new(),
        }
    }

    #[inline]
    pub(super) fn pool(&self, pool: Pool) -> &FreeList {
        &self.pools[pool as usize]
    }

    #[inline]
    pub(super) fn pool_mut(&mut self, pool: Pool) -> &mut FreeList {
        &mut self.pools[pool as usize]
    }

    /// Checks that a block belongs to this heap. A handle is not `Clone`, so it can be freed only once, but it may be
    /// passed to the wrong allocator.
    #[inline]
    pub(super) fn check_owner(&self, block: &Block) {
        assert!(block.owner == self.number, "this block belongs to another allocator: {block:?}");
        debug_assert!(
            self.arena.get(block.index).is_some_and(|record| (record.used, record.key) == (Use::Allocated, block.key)),
            "the block is not in use: {block:?}"
        );
    }

    /// Returns whether the age of cached segments is tracked for garbage collection.
    #[inline]
    pub(super) fn collects_garbage(&self) -> bool {
        self.memory_fraction < 1.0 && self.config.garbage_collection_threshold().is_some()
    }

    /// Records the memory in use on the whole CUDA device, including other processes, if a recording is running. Called
    /// whenever this heap's reserved memory has changed, and at phase boundaries, where it is skipped soon after
    /// another sample unless it `is_due`.
    pub(super) fn sample(&self, is_due: bool) {
        if self.driver.kind() != DriverKind::Cuda || !api::is_recording() {
            return;
        }
        // If the driver fails here, it fails again at the next request, which reports the error.
        if let Some(capacity) = self.sampling.run(is_due, || self.driver.capacity().ok()) {
            api::device_used(self.device, capacity.total.saturating_sub(capacity.free));
        }
    }

    /// Adds a segment or reservation that was just reserved from the driver, without listing it.
    pub(super) fn register(&mut self, range: Range, used: Use) -> BlockIndex {
        let registration = match self.tie_break {
            TieBreak::OldestSegment => self.next_registration,
            TieBreak::LowestAddress => 0,
        };
        self.next_registration += 1;
        self.arena.insert(Record {
            address: range.address,
            bytes: range.bytes,
            base: range.address,
            requested: 0,
            key: 0,
            registration,
            listed_at: 0,
            stream: range.stream,
            pool: range.pool,
            used,
            expandable: used == Use::Unmapped,
            events: 0,
            previous: BlockIndex::NONE,
            next: BlockIndex::NONE,
            context: Context::NOTHING,
            other_streams: None,
        })
    }

    pub(super) fn range(&self, index: BlockIndex) -> Range {
        let record = &self.arena[index];
        Range { address: record.address, bytes: record.bytes, stream: record.stream, pool: record.pool }
    }

    #[inline]
    pub(super) fn list(&mut self, index: BlockIndex) {
        let record = &mut self.arena[index];
        let pool = &mut self.pools[record.pool as usize];
        if record.used == Use::Unmapped {
            pool.insert_unmapped(index, record);
        } else {
            record.listed_at = pool.searches;
            pool.insert(index, record);
        }
    }

    #[inline]
    pub(super) fn unlist(&mut self, index: BlockIndex) {
        let record = &self.arena[index];
        let pool = &mut self.pools[record.pool as usize];
        if record.used == Use::Unmapped {
            pool.remove_unmapped(index, record);
        } else {
            pool.remove(index, record);
        }
    }

    /// Coalesces a range that is in no list with a neighbour, if both are free or both unmapped. Returns the
    /// neighbour's bytes, or 0.
    #[inline]
    pub(super) fn join(&mut self, index: BlockIndex, neighbour: BlockIndex) -> u64 {
        if !neighbour.is_some() || self.arena[neighbour].used != self.arena[index].used {
            return 0;
        }
        self.unlist(neighbour);
        let (address, bytes) = self.arena.remove(neighbour);
        let record = &mut self.arena[index];
        record.address = record.address.min(address);
        record.bytes += bytes;
        bytes
    }

    pub(super) fn join_neighbours(&mut self, index: BlockIndex) {
        self.join(index, self.arena[index].previous);
        self.join(index, self.arena[index].next);
    }

    /// Makes a freed block available once it waits for no stream any more, and records that.
    pub(super) fn complete_free(&mut self, index: BlockIndex) {
        api::free_completed(self.device, self.arena[index].key);
        self.make_available(index);
    }

    pub(super) fn make_available(&mut self, index: BlockIndex) {
        let record = &mut self.arena[index];
        let (pool, expandable) = (record.pool, record.expandable);
        let (bytes, requested) = (record.bytes, record.requested);
        record.used = Use::Free;

        let (previous, next) = (record.previous, record.next);
        let joined = [self.join(index, previous), self.join(index, next)];
        self.list(index);
        if !expandable {
            self.count_split_parts(index, joined);
        }
        self.stats.active.decrease(pool, 1);
        self.stats.active_bytes.decrease(pool, bytes);
        self.stats.requested_bytes.decrease(pool, requested);
    }

    /// Updates the `inactive_split` statistics after a block was freed. The changes of one block are summed before they
    /// are counted, as in PyTorch, so that the accumulated totals match.
    fn count_split_parts(&mut self, index: BlockIndex, joined: [u64; 2]) {
        let record = &self.arena[index];
        let pool = record.pool;
        let gone_ranges = joined.iter().filter(|&&bytes| bytes > 0).count() as u64;
        let gone_bytes: u64 = joined.iter().sum();
        let (new_ranges, new_bytes) = if record.is_split() { (1, record.bytes) } else { (0, 0) };
        if new_ranges > gone_ranges {
            self.stats.inactive_split.increase(pool, new_ranges - gone_ranges);
        } else if gone_ranges > new_ranges {
            self.stats.inactive_split.decrease(pool, gone_ranges - new_ranges);
        }
        if new_bytes > gone_bytes {
            self.stats.inactive_split_bytes.increase(pool, new_bytes - gone_bytes);
        } else if gone_bytes > new_bytes {
            self.stats.inactive_split_bytes.decrease(pool, gone_bytes - new_bytes);
        }
    }
}
