//! Interns values, storing each distinct value once, with an index in order of first appearance.

use std::collections::HashMap;
use std::hash::Hash;

/// Distinct values in order of first appearance, with a map from value to index.
#[derive(Clone, Debug)]
pub struct Interner<T> {
    rows: Vec<T>,
    index: HashMap<T, u32>,
}

impl<T> Default for Interner<T> {
    fn default() -> Self {
        Self { rows: Vec::new(), index: HashMap::new() }
    }
}

impl<T: Clone + Eq + Hash> Interner<T> {
    /// Returns the index of `value`. Appends the value if it is new.
    pub fn intern(&mut self, value: T) -> u32 {
        if let Some(&position) = self.index.get(&value) {
            return position;
        }
        let position = u32::try_from(self.rows.len()).expect("an interner holds more than 2^32 values");
        self.rows.push(value.clone());
        self.index.insert(value, position);
        position
    }

    /// Returns the index of `value`; `None` if the value was not interned.
    pub fn position<Q>(&self, value: &Q) -> Option<u32>
    where
        T: std::borrow::Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        self.index.get(value).copied()
    }

    /// The values, in order of first appearance.
    pub fn rows(&self) -> &[T] {
        &self.rows
    }

    /// Returns the values and drops the map.
    pub fn into_rows(self) -> Vec<T> {
        self.rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_share_one_position() {
        let mut interner = Interner::default();
        let positions: Vec<u32> =
            ["a", "b", "a", "c", "b"].iter().map(|text| interner.intern(text.to_string())).collect();
        assert_eq!(positions, [0, 1, 0, 2, 1]);
        assert_eq!(interner.rows(), ["a", "b", "c"]);
        assert_eq!(interner.position("c"), Some(2));
        assert_eq!(interner.position("d"), None);
    }
}
