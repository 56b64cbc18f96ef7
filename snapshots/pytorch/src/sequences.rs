//! Interned lists of ids, each distinct list stored once; used for stacks, which are lists of frames.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};

/// Distinct lists of integers, in order of first appearance after the empty one.
#[derive(Clone)]
pub struct Sequences {
    items: Vec<u32>,
    ends: Vec<usize>,
    index: HashTable<u32>,
    hasher: DefaultHashBuilder,
}

impl Default for Sequences {
    fn default() -> Self {
        Self { items: Vec::new(), ends: vec![0], index: HashTable::new(), hasher: DefaultHashBuilder::default() }
    }
}

impl std::fmt::Debug for Sequences {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries((0..self.ends.len()).map(|row| slice(&self.items, &self.ends, row))).finish()
    }
}

impl Sequences {
    /// Index of the empty list.
    pub const NONE: u32 = 0;

    /// Returns the index of `list`, adding the list if it is new.
    ///
    /// # Panics
    /// Panics if there are 2^32 distinct lists.
    pub fn intern(&mut self, list: &[u32]) -> u32 {
        if list.is_empty() {
            return Self::NONE;
        }
        let Self { items, ends, index, hasher } = self;
        let hash = hasher.hash_one(list);
        let list_of = |row: u32| slice(items, ends, row as usize);
        if let Some(&row) = index.find(hash, |&row| list_of(row) == list) {
            return row;
        }
        let row = u32::try_from(ends.len()).expect("more than 2^32 lists");
        items.extend_from_slice(list);
        ends.push(items.len());
        index.insert_unique(hash, row, |&row| hasher.hash_one(slice(items, ends, row as usize)));
        row
    }

    /// Returns the list at index `row`.
    ///
    /// # Panics
    /// Panics if there is no such list.
    pub fn get(&self, row: u32) -> &[u32] {
        slice(&self.items, &self.ends, row as usize)
    }

    /// Returns the number of lists, with the empty one.
    pub fn count(&self) -> usize {
        self.ends.len()
    }
}

fn slice<'a>(items: &'a [u32], ends: &[usize], row: usize) -> &'a [u32] {
    let first = row.checked_sub(1).map_or(0, |before| ends[before]);
    &items[first..ends[row]]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_lists_share_a_number_and_the_empty_list_is_number_0() {
        let mut lists = Sequences::default();
        let rows: Vec<u32> = [&[1, 2][..], &[1], &[1, 2], &[], &[2, 1]].iter().map(|list| lists.intern(list)).collect();
        assert_eq!(rows, [1, 2, 1, Sequences::NONE, 3]);
        assert_eq!(lists.get(3), [2, 1]);
        assert_eq!(lists.get(Sequences::NONE), [0; 0]);
        assert_eq!(lists.count(), 4);
    }
}
