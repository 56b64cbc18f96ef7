//! The live blocks of a device by key, optimized for blocks that are mostly short-lived and allocated in key order.

use hashbrown::HashMap;

use crate::builder::StartingBlock;
use crate::event::BlockKey;
use crate::stage::Outside;

/// A live block and its allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveBlock {
    /// The block, with its last category.
    pub block: StartingBlock,
    /// The allocation; `None` if the block was live before the recording.
    pub birth: Option<Outside>,
}

impl LiveBlock {
    fn key(&self) -> BlockKey {
        self.block.alloc.block
    }
}

/// Maximum number of keys that are found without hashing. A training step rarely has more short-lived blocks.
const RECENT: usize = 4096;

const NONE: u32 = u32::MAX;

/// Blocks by key. Rows of removed blocks are reused, starting with the last, so that short-lived blocks occupy few
/// rows.
#[derive(Clone, Debug, Default)]
pub(crate) struct LiveBlocks {
    rows: Vec<LiveBlock>,
    vacant: Vec<u32>,
    /// For each remainder of the key modulo [`RECENT`], the row of the key added last; empty at first.
    recent: Vec<u32>,
    /// The rows of all other keys.
    older: HashMap<BlockKey, u32>,
    /// The largest key that was ever in `older`.
    largest_older: BlockKey,
}

impl LiveBlocks {
    pub(crate) fn len(&self) -> usize {
        self.rows.len() - self.vacant.len()
    }

    #[inline]
    pub(crate) fn get(&self, key: BlockKey) -> Option<&LiveBlock> {
        self.row(key).map(|row| &self.rows[row as usize])
    }

    /// The key itself must not be changed.
    #[inline]
    pub(crate) fn get_mut(&mut self, key: BlockKey) -> Option<&mut LiveBlock> {
        self.row(key).map(|row| &mut self.rows[row as usize])
    }

    /// Adds a block. Returns the earlier block with the same key, if any.
    #[inline]
    pub(crate) fn insert(&mut self, live: &LiveBlock) -> Option<LiveBlock> {
        if let Some(former) = self.get_mut(live.key()) {
            return Some(std::mem::replace(former, *live));
        }
        let row = match self.vacant.pop() {
            Some(row) => {
                self.rows[row as usize] = *live;
                row
            }
            None => {
                self.rows.push(*live);
                (self.rows.len() - 1) as u32
            }
        };
        if self.recent.is_empty() {
            self.recent = vec![NONE; RECENT];
        }
        let former = std::mem::replace(&mut self.recent[place(live.key())], row);
        if former != NONE {
            let key = self.rows[former as usize].key();
            self.older.insert(key, former);
            self.largest_older = self.largest_older.max(key);
        }
        None
    }

    #[inline]
    pub(crate) fn remove(&mut self, key: BlockKey) -> Option<&LiveBlock> {
        let row = match self.recent_row(key) {
            Some(row) => {
                self.recent[place(key)] = NONE;
                row
            }
            None => self.older.remove(&key)?,
        };
        self.vacant.push(row);
        Some(&self.rows[row as usize])
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &LiveBlock> {
        let rows = self.recent.iter().filter(|row| **row != NONE).chain(self.older.values());
        rows.map(|row| &self.rows[*row as usize])
    }

    #[inline]
    fn row(&self, key: BlockKey) -> Option<u32> {
        self.recent_row(key).or_else(|| if key > self.largest_older { None } else { self.older.get(&key).copied() })
    }

    #[inline]
    fn recent_row(&self, key: BlockKey) -> Option<u32> {
        let row = *self.recent.get(place(key))?;
        self.rows.get(row as usize).is_some_and(|live| live.key() == key).then_some(row)
    }
}

#[inline]
fn place(key: BlockKey) -> usize {
    key as usize % RECENT
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::category::{Category, Pool};
    use crate::event::Alloc;
    use crate::ids::{OpId, ScopeId, StackId, StreamId};
    use proptest::prelude::*;

    fn live(key: BlockKey, bytes: u64) -> LiveBlock {
        let alloc = Alloc {
            block: key,
            address: 0,
            requested: bytes,
            allocated: bytes,
            stream: StreamId(0),
            pool: Pool::Small,
            category: Category::Unknown,
            op: OpId::NONE,
            scope: ScopeId::NONE,
        };
        LiveBlock { block: StartingBlock { alloc, stack: StackId::NONE, free_requested: false }, birth: None }
    }

    proptest! {
        /// Keys of few places, so that blocks push each other out of them.
        #[test]
        fn blocks_are_those_of_a_map(steps in prop::collection::vec((0..3_u64, 0..4_u64, any::<bool>()), 1..200)) {
            let (mut blocks, mut map) = (LiveBlocks::default(), HashMap::new());
            for ((low, high, is_new), bytes) in steps.into_iter().zip(0..) {
                let key = low + high * RECENT as u64;
                if is_new {
                    prop_assert_eq!(blocks.insert(&live(key, bytes)), map.insert(key, live(key, bytes)));
                } else {
                    prop_assert_eq!(blocks.remove(key).copied(), map.remove(&key));
                }
                prop_assert_eq!(blocks.get(key), map.get(&key));
                prop_assert_eq!(blocks.len(), map.len());
                let mut all: Vec<LiveBlock> = blocks.iter().copied().collect();
                all.sort_unstable_by_key(LiveBlock::key);
                let mut expected: Vec<LiveBlock> = map.values().copied().collect();
                expected.sort_unstable_by_key(LiveBlock::key);
                prop_assert_eq!(all, expected);
            }
        }
    }

    #[test]
    fn rows_of_removed_blocks_are_used_again() {
        let mut blocks = LiveBlocks::default();
        for key in 0..10_000 {
            blocks.insert(&live(key, 1));
            blocks.remove(key);
        }
        assert_eq!(blocks.rows.len(), 1);
    }
}
