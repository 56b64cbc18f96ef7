//! The handles of a replay's live blocks, by the blocks' keys in the recording.

use std::collections::HashMap;

use crate::Block;

/// Marks a key that has no live block.
const NOWHERE: u32 = u32::MAX;

/// Blocks by key, each with the index of its allocator. Takes four bytes for each key below the number of rows in the
/// trace, plus the handles of the live blocks.
#[derive(Debug)]
pub(super) struct Handles {
    places: Vec<u32>,
    /// The slots of other keys.
    others: HashMap<u64, u32>,
    live: Vec<Option<(Block, usize)>>,
    vacant: Vec<u32>,
}

impl Handles {
    pub(super) fn new(rows: usize) -> Self {
        Self { places: vec![NOWHERE; rows], others: HashMap::new(), live: Vec::new(), vacant: Vec::new() }
    }

    pub(super) fn put(&mut self, key: u64, block: Block, pool: usize) {
        let place = self.vacant.pop().unwrap_or_else(|| {
            self.live.push(None);
            self.live.len() as u32 - 1
        });
        self.live[place as usize] = Some((block, pool));
        match self.places.get_mut(key as usize) {
            Some(at) => *at = place,
            None => drop(self.others.insert(key, place)),
        }
    }

    pub(super) fn has(&self, key: u64) -> bool {
        match self.places.get(key as usize) {
            Some(place) => *place != NOWHERE,
            None => self.others.contains_key(&key),
        }
    }

    pub(super) fn take(&mut self, key: u64) -> Option<(Block, usize)> {
        let place = match self.places.get_mut(key as usize) {
            Some(place) => std::mem::replace(place, NOWHERE),
            None => self.others.remove(&key)?,
        };
        let taken = self.live.get_mut(place as usize)?.take()?;
        self.vacant.push(place);
        Some(taken)
    }
}
