//! The handles of a replay's live blocks, by their rows in the recording.

use crate::Block;

/// Marks a row without a live block.
const NOWHERE: u32 = u32::MAX;

/// Blocks by row, each with the number of its allocator. Takes four bytes per block of the recording, plus the handles
/// of the live ones.
#[derive(Debug)]
pub(super) struct Handles {
    places: Vec<u32>,
    live: Vec<Option<(Block, usize)>>,
    vacant: Vec<u32>,
}

impl Handles {
    pub(super) fn new(rows: usize) -> Self {
        Self { places: vec![NOWHERE; rows], live: Vec::new(), vacant: Vec::new() }
    }

    pub(super) fn put(&mut self, row: u32, block: Block, pool: usize) {
        let place = self.vacant.pop().unwrap_or_else(|| {
            self.live.push(None);
            self.live.len() as u32 - 1
        });
        self.live[place as usize] = Some((block, pool));
        if let Some(at) = self.places.get_mut(row as usize) {
            *at = place;
        }
    }

    pub(super) fn has(&self, row: u32) -> bool {
        self.places.get(row as usize).is_some_and(|place| *place != NOWHERE)
    }

    pub(super) fn take(&mut self, row: u32) -> Option<(Block, usize)> {
        let place = std::mem::replace(self.places.get_mut(row as usize)?, NOWHERE);
        let taken = self.live.get_mut(place as usize)?.take()?;
        self.vacant.push(place);
        Some(taken)
    }
}
