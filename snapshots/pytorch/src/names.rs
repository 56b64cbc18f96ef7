//! Interns strings into a string table.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};

use highwater_snapshots::ids::StringId;

/// Index from strings to rows of [`Tables::strings`](highwater_snapshots::tables::Tables).
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    rows: HashTable<u32>,
    hasher: DefaultHashBuilder,
}

impl Names {
    pub(crate) fn of(strings: &[String]) -> Self {
        let hasher = DefaultHashBuilder::default();
        let mut rows = HashTable::with_capacity(strings.len());
        for (row, text) in strings.iter().enumerate() {
            let hash = hasher.hash_one(text.as_str());
            let id = StringId::from_index(row).0;
            rows.insert_unique(hash, id, |&row: &u32| hasher.hash_one(strings[row as usize].as_str()));
        }
        Self { rows, hasher }
    }

    pub(crate) fn id(&mut self, strings: &mut Vec<String>, text: &str) -> StringId {
        let hash = self.hasher.hash_one(text);
        if let Some(&row) = self.rows.find(hash, |&row| strings[row as usize] == text) {
            return StringId(row);
        }
        let id = StringId::from_index(strings.len());
        strings.push(text.to_owned());
        let hasher = &self.hasher;
        self.rows.insert_unique(hash, id.0, |&row| hasher.hash_one(strings[row as usize].as_str()));
        id
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_that_are_there_keep_their_rows_and_new_ones_follow() {
        let mut strings = vec!["alloc".to_owned(), "free".to_owned()];
        let mut names = Names::of(&strings);
        let ids = ["free", "pool_id", "alloc", "pool_id"].map(|text| names.id(&mut strings, text).0);
        assert_eq!(ids, [1, 2, 0, 2]);
        assert_eq!(strings, ["alloc", "free", "pool_id"]);
    }
}
