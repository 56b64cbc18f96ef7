//! Finds allocator pools or streams whose blocks are never in use at the same time and could therefore share memory.

use std::collections::{BTreeMap, BTreeSet};

use highwater_snapshots::ids::{BlockId, DeviceId};
use highwater_snapshots::trace::Trace;

use super::pools::{BlockPool, Pools};
use super::replay::{Effect, baseline_effects, effects};
use crate::metric::Metric;

/// The pools or streams of a recording, or of part of it, that were in use at the same time. Identified by codes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Together {
    /// The maximum active bytes of each pool or stream over the recording.
    most: BTreeMap<u64, u64>,
    /// The pairs of codes, the smaller one first, whose blocks were in use at the same time.
    pairs: BTreeSet<(u64, u64)>,
}

/// Pools or streams that are never in use at the same time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Apart {
    /// The codes of these pools or streams, in order.
    pub numbers: Vec<u64>,
    /// The largest of their maximum active bytes over the recording. This amount would suffice if they shared memory
    /// without fragmentation.
    pub most: u64,
}

impl Together {
    /// Determines which pools of `device` are in use at the same time, by [`BlockPool::code`].
    pub fn of_pools(trace: &Trace, device: DeviceId) -> Self {
        let pools = Pools::of(trace);
        Self::of(trace, device, |id| pools.pool(trace, &trace.blocks.get(id)).code())
    }

    /// Determines which streams of `device` are in use at the same time.
    pub(crate) fn of_streams(trace: &Trace, device: DeviceId) -> Self {
        Self::of(trace, device, |id| trace.blocks.stream[id.0 as usize].0)
    }

    /// Determines the groups of blocks that are in use at the same time. `number_of` returns the code of a block's
    /// group. A block is in use until its free is completed.
    fn of(trace: &Trace, device: DeviceId, number_of: impl Fn(BlockId) -> u64) -> Self {
        let mut together = Self::default();
        let mut in_use: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
        let mut take = |effect: Effect| {
            let Some((row, begins)) = effect.of_block(Metric::Active) else { return };
            let bytes = trace.blocks.allocated[row];
            if bytes == 0 {
                return;
            }
            let number = number_of(BlockId(row as u32));
            if begins {
                if !in_use.contains_key(&number) {
                    let others = in_use.keys().map(|other| (number.min(*other), number.max(*other)));
                    together.pairs.extend(others);
                }
                let (blocks, sum) = in_use.entry(number).or_default();
                (*blocks, *sum) = (*blocks + 1, *sum + bytes);
                let most = together.most.entry(number).or_default();
                *most = (*most).max(*sum);
            } else if let Some((blocks, sum)) = in_use.get_mut(&number) {
                (*blocks, *sum) = (*blocks - 1, *sum - bytes);
                if *blocks == 0 {
                    in_use.remove(&number);
                }
            }
        };
        baseline_effects(trace, device, &mut take);
        for index in (0..trace.events.len()).filter(|index| trace.events.device[*index] == device) {
            effects(trace, index, &mut take);
        }
        together
    }

    /// Adds another part of the same recording.
    pub fn append(&mut self, part: Self) {
        for (number, bytes) in part.most {
            let most = self.most.entry(number).or_default();
            *most = (*most).max(bytes);
        }
        self.pairs.extend(part.pairs);
    }

    /// Returns whether two pools or streams were never in use at the same time.
    pub fn are_apart(&self, a: u64, b: u64) -> bool {
        a != b && !self.pairs.contains(&(a.min(b), a.max(b)))
    }

    /// Returns the maximum active bytes of a pool or stream over the recording.
    pub fn most(&self, number: u64) -> u64 {
        self.most.get(&number).copied().unwrap_or(0)
    }

    /// Divides `numbers` into sets of at least two codes that are never in use at the same time.
    pub fn apart(&self, numbers: impl IntoIterator<Item = u64>) -> Vec<Apart> {
        let mut sets: Vec<Apart> = Vec::new();
        for number in numbers.into_iter().collect::<BTreeSet<u64>>() {
            let fits = |set: &&mut Apart| set.numbers.iter().all(|other| self.are_apart(number, *other));
            match sets.iter_mut().find(fits) {
                Some(set) => set.numbers.push(number),
                None => sets.push(Apart { numbers: vec![number], most: 0 }),
            }
        }
        sets.retain(|set| set.numbers.len() > 1);
        for set in &mut sets {
            set.most = set.numbers.iter().map(|number| self.most(*number)).max().unwrap_or(0);
        }
        sets
    }

    /// Divides the private pools among `pools` like [`Self::apart`].
    pub fn private_apart(&self, pools: impl IntoIterator<Item = BlockPool>) -> Vec<(Vec<BlockPool>, u64)> {
        let private = pools.into_iter().filter(|pool| pool.is_private()).map(BlockPool::code);
        let named = |apart: Apart| (apart.numbers.into_iter().map(BlockPool::from_code).collect(), apart.most);
        self.apart(private).into_iter().map(named).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwater_notation::trace_from_text;

    #[test]
    fn pools_and_streams_that_are_never_in_use_at_the_same_time_are_found() {
        let text = "
            baseline w 64
            alloc a 500/512 stream=1
            alloc a2 512 stream=1
            free_requested a
            alloc b 2048 stream=2
            free_completed a
            free a2
            alloc c 1024 stream=3
            free b
            free c
            alloc d 1 stream=3
        ";
        let trace = trace_from_text(text).unwrap();
        let together = Together::of_streams(&trace, DeviceId(0));
        assert!(!together.are_apart(1, 2), "a waits for another stream");
        assert!(!together.are_apart(2, 3) && !together.are_apart(0, 3) && together.are_apart(1, 3));
        assert!(!together.are_apart(1, 1));
        assert_eq!(together.apart([3, 2, 1]), [Apart { numbers: vec![1, 3], most: 1024 }]);
        assert_eq!((together.most(1), together.most(9)), (1024, 0));
    }

    #[test]
    fn parts_of_a_recording_add_up() {
        let pools = |text: &str| Together::of_pools(&trace_from_text(text).unwrap(), DeviceId(0));
        let alloc =
            |name: &str, pool: u32, size: u32| format!("alloc {name} {size}\nattribute pool_id \"(0, {pool})\"\n");
        let mut all = pools(&format!("{}free a\n{}free b\n", alloc("a", 1, 10), alloc("b", 2, 20)));
        let pool = |number| BlockPool::Private(0, number);
        let apart =
            |all: &Together| all.private_apart([pool(1), pool(2), BlockPool::Shared(highwater_snapshots::Pool::Large)]);
        assert_eq!(apart(&all), [(vec![pool(1), pool(2)], 20)]);
        all.append(pools(&format!("{}{}", alloc("a", 1, 30), alloc("b", 2, 5))));
        assert_eq!((apart(&all), all.most(pool(1).code())), (Vec::new(), 30));
    }
}
