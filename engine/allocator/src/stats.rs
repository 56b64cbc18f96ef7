//! Allocator statistics, under the names of PyTorch's `memory_stats`.

use highwater_recorder::Pool;

/// A quantity that can increase and decrease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// The current value.
    pub current: u64,
    /// The maximum since the allocator was created or [`reset_peak_stats`](super::CachingAllocator::reset_peak_stats).
    pub peak: u64,
    /// The sum of all increases since the allocator was created or
    /// [`reset_accumulated_stats`](super::CachingAllocator::reset_accumulated_stats).
    pub allocated: u64,
    /// The sum of all decreases over the same time.
    pub freed: u64,
}

impl Stat {
    #[inline]
    pub(super) fn increase(&mut self, amount: u64) {
        self.current += amount;
        self.peak = self.peak.max(self.current);
        self.allocated += amount;
    }

    #[inline]
    pub(super) fn decrease(&mut self, amount: u64) {
        debug_assert!(amount <= self.current, "a statistic fell below zero");
        self.current -= amount;
        self.freed += amount;
    }

    fn values(&self) -> [(&'static str, u64); 4] {
        [("current", self.current), ("peak", self.peak), ("allocated", self.allocated), ("freed", self.freed)]
    }
}

/// A quantity of the whole allocator and of each pool. The pools need not peak at the same time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatArray {
    /// The sum of both pools.
    pub all: Stat,
    /// Requests above 1 MiB.
    pub large_pool: Stat,
    /// Requests of at most 1 MiB.
    pub small_pool: Stat,
}

impl StatArray {
    #[inline]
    fn pool_mut(&mut self, pool: Pool) -> &mut Stat {
        match pool {
            Pool::Small => &mut self.small_pool,
            Pool::Large => &mut self.large_pool,
        }
    }

    #[inline]
    pub(super) fn increase(&mut self, pool: Pool, amount: u64) {
        self.all.increase(amount);
        self.pool_mut(pool).increase(amount);
    }

    #[inline]
    pub(super) fn decrease(&mut self, pool: Pool, amount: u64) {
        self.all.decrease(amount);
        self.pool_mut(pool).decrease(amount);
    }

    /// Returns the statistics of both pools together, then those of each pool, with their names.
    pub fn parts(&self) -> [(&'static str, &Stat); 3] {
        [("all", &self.all), ("large_pool", &self.large_pool), ("small_pool", &self.small_pool)]
    }
}

/// Declares the statistics with their names: first those of each pool, then those of the whole allocator, then the
/// counters.
macro_rules! statistics {
    (
        arrays { $($(#[$adoc:meta])* $array:ident,)+ }
        stats { $($(#[$sdoc:meta])* $stat:ident,)+ }
        counters { $($(#[$cdoc:meta])* $counter:ident,)+ }
    ) => {
        /// Statistics of an allocator.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct AllocStats {
            $($(#[$adoc])* pub $array: StatArray,)+
            $($(#[$sdoc])* pub $stat: Stat,)+
            $($(#[$cdoc])* pub $counter: u64,)+
            /// Blocks of this size or more are never split; `None`: all blocks may be split.
            pub max_split_size: Option<u64>,
        }

        impl AllocStats {
            fn arrays(&self) -> impl Iterator<Item = (&'static str, &StatArray)> {
                [$((stringify!($array), &self.$array),)+].into_iter()
            }

            fn stats(&self) -> impl Iterator<Item = (&'static str, &Stat)> {
                [$((stringify!($stat), &self.$stat),)+].into_iter()
            }

            fn counters(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($counter), self.$counter),)+].into_iter()
            }

            fn each_stat_mut(&mut self, mut change: impl FnMut(&mut Stat)) {
                for array in [$(&mut self.$array,)+] {
                    change(&mut array.all);
                    change(&mut array.large_pool);
                    change(&mut array.small_pool);
                }
                for stat in [$(&mut self.$stat,)+] {
                    change(stat);
                }
            }

            /// Sets every peak to the current value.
            pub(super) fn reset_peaks(&mut self) {
                self.each_stat_mut(|stat| stat.peak = stat.current);
            }

            /// Sets every accumulated total and counter to 0.
            pub(super) fn reset_accumulated(&mut self) {
                self.each_stat_mut(|stat| (stat.allocated, stat.freed) = (0, 0));
                $(self.$counter = 0;)+
            }
        }
    };
}

statistics! {
    arrays {
        /// Allocated blocks.
        allocation,
        /// Reserved segments. Does not count expandable segments, which grow and shrink by pages.
        segment,
        /// Blocks that are allocated, or freed and waiting for another stream.
        active,
        /// Free ranges that cannot be released to the driver because a neighbour is in use. Does not count ranges of
        /// expandable segments, whose whole pages can always be released.
        inactive_split,
        /// Bytes of allocated blocks, after rounding.
        allocated_bytes,
        /// Bytes reserved from the driver: segments and mapped pages.
        reserved_bytes,
        /// Bytes of blocks that are allocated, or freed and waiting for another stream.
        active_bytes,
        /// Bytes of the ranges that `inactive_split` counts.
        inactive_split_bytes,
        /// Requested bytes of the blocks that `active` counts. Decreases not when a block is freed, but when it becomes
        /// available for reuse.
        requested_bytes,
    }
    stats {
        /// Allocated blocks that are too large to be split.
        oversize_allocations,
        /// Segments that are too large to be split.
        oversize_segments,
    }
    counters {
        /// Requests that succeeded or failed only after all cached memory was released to the driver.
        num_alloc_retries,
        /// Requests that failed with out of memory.
        num_ooms,
        /// Times that all streams were synchronized.
        num_sync_all_streams,
        /// Segments reserved from the driver, plus times that pages were mapped.
        num_device_alloc,
        /// Segments released to the driver, plus times that pages were unmapped.
        num_device_free,
    }
}

impl AllocStats {
    /// Returns every statistic with its full name, such as `allocated_bytes.all.current`; `max_split_size` is -1 if
    /// there is no limit.
    pub fn iter(&self) -> impl Iterator<Item = (String, i64)> {
        let arrays = self.arrays().flat_map(|(array, stats)| {
            stats.parts().into_iter().flat_map(move |(part, stat)| {
                stat.values().into_iter().map(move |(metric, value)| (format!("{array}.{part}.{metric}"), value))
            })
        });
        let stats = self.stats().flat_map(|(name, stat)| {
            stat.values().into_iter().map(move |(metric, value)| (format!("{name}.{metric}"), value))
        });
        let counters = self.counters().map(|(name, value)| (name.to_owned(), value));
        let limit = self.max_split_size.map_or(-1, to_signed);
        let limit = std::iter::once(("max_split_size".to_owned(), limit));
        arrays.chain(stats).chain(counters).map(|(name, value)| (name, to_signed(value))).chain(limit)
    }
}

fn to_signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
