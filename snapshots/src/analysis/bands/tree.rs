//! SumTree: bytes by slot, with the sum of any run of slots and the slot at any offset a few steps away.

use std::ops::Range;

/// Children of a node: two cache lines of sums.
const FAN_OUT: usize = 16;

/// A tree of sums over a fixed number of slots, each level one array, from the slots up to a single root.
///
/// A change or a question visits at most 16 numbers on each of log₁₆(slots) levels. Memory is one number a slot and a
/// fifteenth; the system hands it out zeroed, so slots that are never touched cost nothing.
#[derive(Clone, Debug)]
pub struct SumTree {
    levels: Vec<Vec<u64>>,
    visits: u64,
}

/// A slot and the bytes that it covers, counted from the first slot up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Its position.
    pub index: usize,
    /// Its bytes: from the sum of all slots before it to that sum and its own.
    pub bytes: Range<u64>,
}

impl SumTree {
    /// A tree of `slots` slots, all zero.
    pub fn new(slots: usize) -> Self {
        let mut levels = vec![vec![0; slots.max(1)]];
        while let Some(last) = levels.last().map(Vec::len).filter(|len| *len > 1) {
            levels.push(vec![0; last.div_ceil(FAN_OUT)]);
        }
        Self { levels, visits: 0 }
    }

    /// The sum of all slots.
    pub fn total(&self) -> u64 {
        self.levels.last().map_or(0, |root| root[0])
    }

    /// How many numbers have been read or written so far: what the tree has cost.
    pub fn visits(&self) -> u64 {
        self.visits
    }

    /// Adds `bytes` to a slot.
    pub fn add(&mut self, slot: usize, bytes: u64) {
        self.visits += self.levels.len() as u64;
        let mut node = slot;
        for level in &mut self.levels {
            level[node] += bytes;
            node /= FAN_OUT;
        }
    }

    /// Takes `bytes` from a slot, which must hold as many.
    pub fn take(&mut self, slot: usize, bytes: u64) {
        self.visits += self.levels.len() as u64;
        let mut node = slot;
        for level in &mut self.levels {
            level[node] -= bytes;
            node /= FAN_OUT;
        }
    }

    /// The slot that covers byte `offset`; `None` from the total on. An empty slot covers no byte.
    pub fn slot_at(&mut self, offset: u64) -> Option<Slot> {
        if offset >= self.total() {
            return None;
        }
        let mut node = 0;
        let mut start = 0;
        for level in self.levels.iter().rev().skip(1) {
            node *= FAN_OUT;
            while start + level[node] <= offset {
                start += level[node];
                node += 1;
                self.visits += 1;
            }
            self.visits += 1;
        }
        Some(Slot { index: node, bytes: start..start + self.levels[0][node] })
    }

    /// The bytes that `slot` covers; an empty range where it is empty.
    pub fn bytes_of(&mut self, slot: usize) -> Range<u64> {
        let (mut node, mut start) = (slot, 0);
        for level in &self.levels {
            let first = node / FAN_OUT * FAN_OUT;
            start += level[first..node].iter().sum::<u64>();
            self.visits += (node - first) as u64 + 1;
            node /= FAN_OUT;
        }
        start..start + self.levels[0][slot]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_found_in_its_slot_and_every_slot_knows_its_bytes() {
        let sizes: Vec<u64> = (0..600).map(|slot| (slot * 7 % 5) as u64).collect();
        let mut tree = SumTree::new(sizes.len());
        for (slot, &size) in sizes.iter().enumerate() {
            tree.add(slot, size + 3);
            tree.take(slot, 3);
        }
        let mut start = 0;
        for (index, &size) in sizes.iter().enumerate() {
            assert_eq!(tree.bytes_of(index), start..start + size);
            for offset in start..start + size {
                assert_eq!(tree.slot_at(offset), Some(Slot { index, bytes: start..start + size }));
            }
            start += size;
        }
        assert_eq!((tree.total(), tree.slot_at(start)), (start, None));
    }

    #[test]
    fn a_tree_of_no_or_one_slot_works() {
        assert_eq!(SumTree::new(0).slot_at(0), None);
        let mut tree = SumTree::new(1);
        tree.add(0, 5);
        assert_eq!(tree.slot_at(4), Some(Slot { index: 0, bytes: 0..5 }));
        assert_eq!(tree.slot_at(5), None);
    }
}
