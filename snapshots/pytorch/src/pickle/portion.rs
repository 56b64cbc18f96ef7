//! Part of a list of events, decoded without the values before it. References to those values remain to be looked up.

use std::hash::BuildHasher;
use std::ops::Range;

use hashbrown::{DefaultHashBuilder, HashMap, HashTable};
use highwater_snapshots::ids::StringId;

use crate::raw::Action;

/// An event with a stack and rare fields that have not been looked up yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub(super) address: u64,
    pub(super) size: u64,
    pub(super) time_us: u64,
    pub(super) stream: u64,
    pub(super) stack: StackOf,
    /// Row of [`Chunk::extras`], or [`NO_EXTRAS`].
    pub(super) extras: u32,
    /// Offset of the event in the portion.
    pub(super) start: u32,
    pub(super) action: Action,
    /// Number of values that the event stores in the memo.
    pub(super) stored: u8,
}

/// The event has no rare fields.
pub(super) const NO_EXTRAS: u32 = u32::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StackOf {
    MemoSnapshot(u32),
    /// The stack of a run of memo lookups, as a row of [`Chunk::runs`].
    Run(u32),
    /// The stack of the list with this memo index.
    Memo(u32),
}

/// A value that an event stores in the memo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stored {
    /// The event itself.
    Event,
    /// The list of frames.
    Stack(StackOf),
    /// Row of the portion's strings.
    Text(u32),
    /// Row of [`Chunk::pairs`].
    Pair(u32),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum TextOf {
    #[default]
    None,
    MemoSnapshot(StringId),
    /// Row of the portion's strings.
    New(u32),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct ExtrasOf {
    pub(super) pool_id: (u64, u64),
    pub(super) compile_context: TextOf,
    pub(super) user_metadata: TextOf,
    pub(super) internal_metadata: TextOf,
    pub(super) category: TextOf,
}

/// Consecutive instructions of a portion.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub(super) kind: StepKind,
    /// Offset of their end in the file.
    pub(super) end: usize,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum StepKind {
    /// A number of rows. `number` is the memo index of their first value, if the file states it.
    Events { count: u32, number: Option<usize> },
    /// A batch of items ends and the next begins.
    Batch,
    /// Instructions to be executed one by one.
    Other,
}

/// A decoded part of the file. Its buffers are reused for one part after the other.
#[derive(Clone, Debug, Default)]
pub(super) struct Chunk {
    /// The part of the file. The decoded steps may end earlier.
    pub(super) range: Range<usize>,
    pub(super) steps: Vec<Step>,
    pub(super) rows: Vec<Row>,
    pub(super) stored: Vec<Stored>,
    pub(super) pairs: Vec<(u64, u64)>,
    pub(super) extras: Vec<ExtrasOf>,
    extras_index: HashMap<ExtrasOf, u32>,
    /// Distinct runs of memo lookups that are not known to be stacks yet.
    runs: Texts,
    texts: Texts,
}

#[derive(Clone, Debug, Default)]
struct Texts {
    bytes: Vec<u8>,
    ends: Vec<u32>,
    index: HashTable<u32>,
    hasher: DefaultHashBuilder,
    /// Row of the last string looked up.
    last: u32,
}

impl Chunk {
    pub(super) fn begin(&mut self, range: Range<usize>) {
        self.range = range;
        self.steps.clear();
        self.rows.clear();
        self.stored.clear();
        self.pairs.clear();
        self.extras.clear();
        self.extras_index.clear();
        self.runs.clear();
        self.texts.clear();
    }

    #[inline]
    pub(super) fn extras_row(&mut self, extras: ExtrasOf) -> u32 {
        if self.extras.last() == Some(&extras) {
            return self.extras.len() as u32 - 1;
        }
        let rows = &mut self.extras;
        *self.extras_index.entry(extras).or_insert_with(|| {
            rows.push(extras);
            rows.len() as u32 - 1
        })
    }

    /// Returns the row of a pair, which is added unless it equals the last one.
    #[inline]
    pub(super) fn pair_row(&mut self, pair: (u64, u64)) -> u32 {
        if self.pairs.last() != Some(&pair) {
            self.pairs.push(pair);
        }
        self.pairs.len() as u32 - 1
    }

    #[inline]
    pub(super) fn run_row(&mut self, run: &[u8]) -> u32 {
        self.runs.row(run)
    }

    pub(super) fn run(&self, row: u32) -> &[u8] {
        self.runs.get(row)
    }

    pub(super) fn run_count(&self) -> usize {
        self.runs.ends.len()
    }

    #[inline]
    pub(super) fn text_row(&mut self, text: &str) -> u32 {
        self.texts.row(text.as_bytes())
    }

    pub(super) fn text(&self, row: u32) -> &str {
        std::str::from_utf8(self.texts.get(row)).unwrap_or_default()
    }

    pub(super) fn text_count(&self) -> usize {
        self.texts.ends.len()
    }
}

impl Texts {
    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
        self.index.clear();
        self.last = 0;
    }

    #[inline]
    fn get(&self, row: u32) -> &[u8] {
        text(&self.bytes, &self.ends, row)
    }

    #[inline]
    fn row(&mut self, wanted: &[u8]) -> u32 {
        if !self.ends.is_empty() && self.get(self.last) == wanted {
            return self.last;
        }
        let Self { bytes, ends, index, hasher, last } = self;
        let hash = hasher.hash_one(wanted);
        if let Some(&row) = index.find(hash, |&row| text(bytes, ends, row) == wanted) {
            *last = row;
            return row;
        }
        let row = ends.len() as u32;
        bytes.extend_from_slice(wanted);
        ends.push(bytes.len() as u32);
        index.insert_unique(hash, row, |&row| hasher.hash_one(text(bytes, ends, row)));
        *last = row;
        row
    }
}

fn text<'a>(bytes: &'a [u8], ends: &[u32], row: u32) -> &'a [u8] {
    let row = row as usize;
    let first = row.checked_sub(1).and_then(|before| ends.get(before)).map_or(0, |end| *end as usize);
    ends.get(row).and_then(|end| bytes.get(first..*end as usize)).unwrap_or_default()
}
