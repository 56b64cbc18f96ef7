//! Checks every invariant of the heap from scratch, in time linear in the number of ranges, for tests and debugging.

use std::collections::{BTreeMap, BTreeSet};

use highwater_recorder::Pool;

use super::arena::{BlockIndex, Record, Use};
use super::heap::Heap;
use super::rounding::MIN_BLOCK;
use super::stats::StatArray;

/// Sums over the ranges, which the statistics must match.
#[derive(Default)]
struct Sums {
    allocation: [u64; 2],
    allocated: [u64; 2],
    active: [u64; 2],
    active_bytes: [u64; 2],
    requested: [u64; 2],
    reserved: [u64; 2],
    segments: [u64; 2],
    split: [u64; 2],
    split_bytes: [u64; 2],
}

impl Heap {
    /// Returns one sentence per violated invariant.
    pub(super) fn audit(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let mut sums = Sums::default();
        let mut waiting: BTreeMap<BlockIndex, u32> = BTreeMap::new();
        for index in self.events.blocks() {
            *waiting.entry(index).or_default() += 1;
        }
        for (index, record) in self.arena.iter() {
            sums.add(record);
            let mut complain = |what: &str| problems.push(format!("{index:?} {what}: {record:?}"));
            self.check_neighbours(index, record, &mut complain);
            if record.bytes == 0
                || !record.bytes.is_multiple_of(MIN_BLOCK)
                || !(record.address - record.base).is_multiple_of(MIN_BLOCK)
            {
                complain("is empty, or its size or its offset in the segment is not a multiple of 512 bytes");
            }
            let events = waiting.remove(&index).unwrap_or(0);
            if events > record.events || (record.used == Use::Waiting) != (record.events > 0) {
                complain(&format!("has {events} events in the queues"));
            }
            if record.used == Use::Unmapped && !record.expandable {
                complain("is unmapped outside an expandable segment");
            }
            if record.used == Use::Allocated && record.requested > record.bytes {
                complain("is smaller than requested");
            }
        }
        problems.extend(waiting.keys().map(|index| format!("{index:?} was removed, but events refer to it")));
        self.check_lists(&mut problems);
        self.check_overlaps(&mut problems);
        sums.compare(self, &mut problems);
        problems
    }

    fn check_neighbours(&self, index: BlockIndex, record: &Record, complain: &mut impl FnMut(&str)) {
        if record.previous.is_some() && self.arena[record.previous].next != index {
            complain("is not linked from its previous neighbour");
        }
        if !record.previous.is_some() && record.address != record.base {
            complain("is the first of its segment but not at its start");
        }
        if !record.next.is_some() {
            return;
        }
        let next = &self.arena[record.next];
        if next.previous != index || next.address != record.end() {
            complain("is not followed by its next neighbour");
        }
        let joinable = next.used == record.used && matches!(record.used, Use::Free | Use::Unmapped);
        if joinable {
            complain("should have been coalesced with its next neighbour");
        }
        let alike = |record: &Record| (record.stream, record.pool, record.base, record.registration, record.expandable);
        if alike(next) != alike(record) {
            complain("differs from its next neighbour in stream, pool or segment");
        }
    }

    /// Checks that the lists contain exactly the free and the unmapped ranges, each in its pool and under its own size.
    fn check_lists(&self, problems: &mut Vec<String>) {
        let mut listed = BTreeSet::new();
        for pool in [Pool::Small, Pool::Large] {
            let list = self.pool(pool);
            let entries = list.all().into_iter().map(|index| (index, Use::Free));
            for (index, used) in entries.chain(list.all_unmapped().map(|index| (index, Use::Unmapped))) {
                let record = &self.arena[index];
                if !listed.insert(index) || record.used != used || record.pool != pool || !list.contains(index, record)
                {
                    problems.push(format!("{index:?} is in the wrong list: {record:?}"));
                }
            }
        }
        let idle = |record: &Record| matches!(record.used, Use::Free | Use::Unmapped);
        let missing = self.arena.iter().filter(|(index, record)| idle(record) && !listed.contains(index));
        problems.extend(missing.map(|(index, record)| format!("{index:?} is in no list: {record:?}")));
    }

    fn check_overlaps(&self, problems: &mut Vec<String>) {
        let mut ranges: Vec<_> = self.arena.iter().map(|(_, record)| (record.address, record.end())).collect();
        ranges.sort_unstable();
        let overlaps = ranges.windows(2).filter(|pair| pair[0].1 > pair[1].0);
        problems.extend(overlaps.map(|pair| format!("ranges overlap: {pair:x?}")));
    }
}

impl Sums {
    fn add(&mut self, record: &Record) {
        let pool = record.pool as usize;
        if record.used != Use::Unmapped {
            self.reserved[pool] += record.bytes;
        }
        if !record.expandable && !record.previous.is_some() {
            self.segments[pool] += 1;
        }
        match record.used {
            Use::Vacant | Use::Unmapped => {}
            Use::Free if record.is_split() && !record.expandable => {
                self.split[pool] += 1;
                self.split_bytes[pool] += record.bytes;
            }
            Use::Free => {}
            Use::Allocated | Use::Waiting => {
                self.active[pool] += 1;
                self.active_bytes[pool] += record.bytes;
                self.requested[pool] += record.requested;
            }
        }
        if record.used == Use::Allocated {
            self.allocation[pool] += 1;
            self.allocated[pool] += record.bytes;
        }
    }

    fn compare(&self, heap: &Heap, problems: &mut Vec<String>) {
        let stats = &heap.stats;
        let rows: [(&str, &StatArray, [u64; 2]); 9] = [
            ("allocation", &stats.allocation, self.allocation),
            ("allocated_bytes", &stats.allocated_bytes, self.allocated),
            ("active", &stats.active, self.active),
            ("active_bytes", &stats.active_bytes, self.active_bytes),
            ("requested_bytes", &stats.requested_bytes, self.requested),
            ("reserved_bytes", &stats.reserved_bytes, self.reserved),
            ("segment", &stats.segment, self.segments),
            ("inactive_split", &stats.inactive_split, self.split),
            ("inactive_split_bytes", &stats.inactive_split_bytes, self.split_bytes),
        ];
        for (name, stat, [small, large]) in rows {
            let counted = [stat.small_pool.current, stat.large_pool.current, stat.all.current];
            if counted != [small, large, small + large] {
                problems.push(format!("{name} counts {counted:?}, the ranges sum to {small} and {large}"));
            }
            if stat.parts().iter().any(|(_, part)| part.peak < part.current) {
                problems.push(format!("{name} has a peak below its current value"));
            }
        }
    }
}
