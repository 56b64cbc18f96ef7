//! Heap: all that one allocator knows, behind its lock; and how free ranges are listed, joined and counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use highwater_recorder::context::Context;
use highwater_recorder::snapshots::event::Range;
use highwater_recorder::{DeviceId, Pool, api};

use super::arena::{Arena, BlockIndex, Record, Use};
use super::block::Block;
use super::config::AllocConfig;
use super::driver::{Driver, DriverKind};
use super::event_queue::EventQueues;
use super::free_list::FreeList;
use super::stats::AllocStats;
use super::tie_break::TieBreak;

/// The state of one allocator.
pub(super) struct Heap {
    /// No other heap of this program has it.
    pub(super) number: u64,
    pub(super) device: DeviceId,
    pub(super) driver: Arc<dyn Driver>,
    pub(super) config: AllocConfig,
    /// The share of the device that may be reserved; 1 means no limit.
    pub(super) memory_fraction: f64,
    pub(super) tie_break: TieBreak,
    pub(super) arena: Arena,
    pub(super) pools: [FreeList; 2],
    pub(super) events: EventQueues,
    pub(super) stats: AllocStats,
    pub(super) next_key: u64,
    pub(super) next_registration: u64,
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

    /// A block can be given back once, since its handle is not `Clone`; but perhaps to the wrong allocator.
    #[inline]
    pub(super) fn check_owner(&self, block: &Block) {
        assert!(block.owner == self.number, "this block belongs to another allocator: {block:?}");
        debug_assert!(
            self.arena.get(block.index).is_some_and(|record| (record.used, record.key) == (Use::Allocated, block.key)),
            "a block that was handed out is in use: {block:?}"
        );
    }

    /// Whether cached segments age, for garbage collection.
    #[inline]
    pub(super) fn collects_garbage(&self) -> bool {
        self.memory_fraction < 1.0 && self.config.garbage_collection_threshold().is_some()
    }

    /// Tells a running recording what is in use on the whole device, if others use it as well. Called where what this heap
    /// holds has changed, and at boundaries of phases.
    pub(super) fn sample(&self) {
        if self.driver.kind() != DriverKind::Cuda || !api::is_recording() {
            return;
        }
        // A driver that fails here fails again at the next request, which is where the program learns of it.
        if let Ok(capacity) = self.driver.capacity() {
            api::device_used(self.device, capacity.total.saturating_sub(capacity.free));
        }
    }

    /// Enters a segment or a reservation that the driver just gave. It is in no list yet.
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

    /// Enters a free or unmapped range into its pool's list.
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

    /// Takes a free or unmapped range out of its pool's list.
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

    /// Joins a neighbour to a range in no list, if both are free or both unmapped. Gives the neighbour's bytes, or 0.
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

    /// Joins both neighbours, if they may be joined.
    pub(super) fn join_neighbours(&mut self, index: BlockIndex) {
        self.join(index, self.arena[index].previous);
        self.join(index, self.arena[index].next);
    }

    /// Makes a block available for which no stream is waited any more.
    pub(super) fn complete_free(&mut self, index: BlockIndex) {
        api::free_completed(self.device, self.arena[index].key);
        self.make_available(index);
    }

    /// Makes a block that nobody uses any more available again.
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

    /// Counts what freeing changed about ranges that are stuck between blocks in use. Changes of one block are
    /// summed up before they are counted, as PyTorch does, so that its running totals come out the same.
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
