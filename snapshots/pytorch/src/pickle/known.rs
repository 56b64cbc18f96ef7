//! A copy of the memo at one moment, for threads that decode events while the memo grows.

use hashbrown::HashMap;
use highwater_snapshots::ids::StringId;

use super::memo::{Memo, Memos};
use super::runs::Runs;
use crate::objects::{Key, Keys, Store, Value};

/// A string or pair that fields of an event refer to.
#[derive(Clone, Copy, Debug)]
enum Fact {
    Text(StringId),
    Pair(u64, u64),
}

/// Strings and pairs by their memo index, and stacks by the lookups of their frames. The copy stays valid, because no
/// memo index was used twice.
#[derive(Clone, Debug)]
pub(super) struct MemoSnapshot {
    keys: Keys,
    memos: Memos,
    pairs: Vec<(u64, u64)>,
    /// The values stored under indices above those of `memos`.
    later: HashMap<usize, Fact>,
    pub(super) runs: Runs,
}

/// The values added since the [`MemoSnapshot`] was made or last updated.
#[derive(Clone, Debug, Default)]
pub(super) struct MemoDelta {
    facts: Vec<(usize, Fact)>,
    /// Concatenated bytes of runs of memo lookups, with the end of each run and its stack.
    bytes: Vec<u8>,
    runs: Vec<(usize, u32)>,
}

impl MemoSnapshot {
    pub(super) fn new(memos: &Memos, store: &Store) -> Self {
        Self {
            keys: store.keys,
            memos: memos.clone(),
            pairs: store.pairs.clone(),
            later: HashMap::new(),
            runs: Runs::default(),
        }
    }

    #[inline(always)]
    pub(super) fn text(&self, number: usize) -> Option<StringId> {
        match self.memos.get(number) {
            Some(Memo::Value(Value::Text(id))) => Some(id),
            Some(_) => None,
            None => self.later_text(number),
        }
    }

    #[cold]
    fn later_text(&self, number: usize) -> Option<StringId> {
        match self.later.get(&number) {
            Some(&Fact::Text(id)) => Some(id),
            _ => None,
        }
    }

    #[inline]
    pub(super) fn key(&self, number: usize) -> Option<Key> {
        self.keys.of(Value::Text(self.text(number)?))
    }

    #[inline]
    pub(super) fn pair(&self, number: usize) -> Option<(u64, u64)> {
        match self.memos.get(number) {
            Some(Memo::Value(Value::Pair(row))) => self.pairs.get(row as usize).copied(),
            Some(_) => None,
            None => match self.later.get(&number) {
                Some(&Fact::Pair(first, second)) => Some((first, second)),
                _ => None,
            },
        }
    }

    /// Adds the values in `news`, and empties it.
    pub(super) fn update(&mut self, news: &mut MemoDelta) {
        self.later.extend(news.facts.drain(..));
        let mut first = 0;
        for (end, stack) in news.runs.drain(..) {
            if let Some(run) = news.bytes.get(first..end)
                && self.runs.get(run).is_none()
            {
                self.runs.insert(run, stack);
            }
            first = end;
        }
        news.bytes.clear();
    }
}

impl MemoDelta {
    /// Adds the values stored under indices from `first` on.
    pub(super) fn take_memos(&mut self, first: usize, memos: &Memos, store: &Store) {
        for number in first..memos.len() {
            match memos.get(number) {
                Some(Memo::Value(Value::Text(id))) => self.facts.push((number, Fact::Text(id))),
                Some(Memo::Value(Value::Pair(row))) => {
                    let pair = store.pairs.get(row as usize);
                    self.facts.extend(pair.map(|&(first, second)| (number, Fact::Pair(first, second))));
                }
                _ => {}
            }
        }
    }

    pub(super) fn take_run(&mut self, run: &[u8], stack: u32) {
        self.bytes.extend_from_slice(run);
        self.runs.push((self.bytes.len(), stack));
    }
}
