//! A value that stays the same from frame to frame, until what it depends on changes.

/// The value for the last key.
#[derive(Clone, Debug)]
pub struct Memo<K, V>(Option<(K, V)>);

impl<K, V> Default for Memo<K, V> {
    fn default() -> Self {
        Self(None)
    }
}

impl<K: PartialEq, V> Memo<K, V> {
    /// The value for `key`, which `make` computes if the last key was another.
    pub fn get(&mut self, key: K, make: impl FnOnce(&K) -> V) -> &V {
        let known = self.0.take().filter(|(known, _)| *known == key);
        let (_, value) = self.0.insert(known.unwrap_or_else(|| {
            let value = make(&key);
            (key, value)
        }));
        value
    }

    /// The value that was last computed, for whatever key.
    pub fn last(&self) -> Option<&V> {
        self.0.as_ref().map(|(_, value)| value)
    }
}
