//! Maps a recording's block keys to rows of the block table.

use hashbrown::HashMap;

use crate::event::BlockKey;
use crate::ids::BlockId;

/// Maps the block keys of one device to rows: an array if the keys are dense, as from a counter, otherwise a hash map.
#[derive(Clone, Debug, Default)]
pub(crate) struct BlockIndex {
    first: BlockKey,
    dense: Vec<BlockId>,
    sparse: HashMap<BlockKey, BlockId>,
    inserted: u64,
}

/// The array has at most 64 entries plus this many per key, so that a file cannot cause arbitrary allocations.
const PLACES_A_KEY: u64 = 8;

impl BlockIndex {
    /// Returns the row last inserted for `key`; [`BlockId::NONE`] if there is none.
    #[inline]
    pub(crate) fn get(&self, key: BlockKey) -> BlockId {
        let dense = key.checked_sub(self.first).and_then(|slot| self.dense.get(usize::try_from(slot).ok()?));
        match dense {
            Some(&block) if block.is_some() => block,
            _ if self.sparse.is_empty() => BlockId::NONE,
            _ => self.sparse.get(&key).copied().unwrap_or(BlockId::NONE),
        }
    }

    /// Maps `key` to row `block`, which was live when the recording began. Such keys may be far below later keys.
    pub(crate) fn insert_starting(&mut self, key: BlockKey, block: BlockId) {
        let slot = key.checked_sub(self.first).and_then(|slot| self.dense.get_mut(usize::try_from(slot).ok()?));
        match slot.filter(|former| former.is_some()) {
            Some(former) => *former = block,
            None => drop(self.sparse.insert(key, block)),
        }
    }

    /// Maps `key` to row `block`, replacing an earlier row.
    #[inline]
    pub(crate) fn insert(&mut self, key: BlockKey, block: BlockId) {
        if self.dense.is_empty() {
            self.first = key;
        }
        self.inserted += 1;
        let places = 64 + PLACES_A_KEY * self.inserted;
        match key.checked_sub(self.first) {
            Some(slot) if slot < self.dense.len() as u64 => self.dense[slot as usize] = block,
            Some(slot) if slot < places => {
                self.dense.resize(slot as usize, BlockId::NONE);
                self.dense.push(block);
            }
            _ => {
                self.sparse.insert(key, block);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dense_sparse_and_falling_keys_are_all_found_again() {
        let mut keys = BlockIndex::default();
        let named = [5, 6, 7, 1 << 40, 9, u64::MAX - 1, 0, 7];
        for (row, key) in named.into_iter().enumerate() {
            keys.insert(key, BlockId::from_index(row));
        }
        let found: Vec<u32> = named.iter().map(|&key| keys.get(key).0).collect();
        assert_eq!(found, [0, 1, 7, 3, 4, 5, 6, 7], "key 7 names the row that was inserted last");
        assert_eq!(keys.get(8), BlockId::NONE);
    }

    #[test]
    fn keys_far_beyond_those_at_the_start_are_dense() {
        let mut keys = BlockIndex::default();
        (0..100).for_each(|key| keys.insert_starting(key, BlockId(key as u32)));
        (0..1000).for_each(|row| keys.insert((1 << 40) + row, BlockId(100 + row as u32)));
        assert_eq!(keys.sparse.len(), 100);
        assert_eq!([keys.get(99), keys.get((1 << 40) + 999)], [BlockId(99), BlockId(1099)]);
        keys.insert(99, BlockId(5000));
        assert_eq!(keys.get(99), BlockId(5000), "a key that is used again names its last row");
    }

    #[test]
    fn keys_that_jump_do_not_make_the_array_grow_beyond_its_share() {
        let mut keys = BlockIndex::default();
        for row in 0..1000_u64 {
            keys.insert(row * 1_000_000, BlockId(row as u32));
        }
        assert!(keys.dense.len() as u64 <= 64 + PLACES_A_KEY * 1000, "{}", keys.dense.len());
        assert!((0..1000_u64).all(|row| keys.get(row * 1_000_000) == BlockId(row as u32)));
    }
}
