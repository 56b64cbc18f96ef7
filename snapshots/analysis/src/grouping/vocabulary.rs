//! The values that occur in a recording for each key of the `--where` language, largest first.

use std::collections::HashMap;

use rayon::prelude::*;

use highwater_snapshots::ids::{BlockId, FrameId, ScopeId};
use highwater_snapshots::tables::Tables;
use highwater_snapshots::trace::Trace;
use highwater_snapshots::yielding::tick;

use super::dimension::{Dimension, GroupKey, Lookups, Values, conditions};
use crate::stacks::owners::LineOwner;

/// A value of a grouping key that occurs in the recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Word {
    pub(crate) text: String,
    /// The value in lower case.
    pub(crate) small: String,
    /// Requested bytes of its blocks.
    pub(crate) bytes: u64,
    pub(crate) blocks: u64,
    /// Whether a block has exactly this value. A scope may have blocks only in its child scopes.
    pub(crate) is_whole: bool,
}

/// The values that occur in a recording. Built once, in time linear in the number of blocks and table rows, and queried
/// on each keystroke.
#[derive(Clone, Debug, Default)]
pub struct Vocabulary {
    /// The values of each key, by the key's name.
    words: HashMap<&'static str, Vec<Word>>,
}

/// Maximum number of distinct sizes, steps and streams that are listed; a recording may have one per block.
const MAX_NUMBERS: usize = 1 << 16;

/// Number of blocks per parallel task.
const RUN: usize = 1 << 16;

/// Bytes and number of blocks.
type Sum = (u64, u64);

/// The sums of blocks by value, with values as numbers.
type Sums = hashbrown::HashMap<u64, Sum>;

fn add(sum: &mut Sum, more: Sum) {
    *sum = (sum.0.saturating_add(more.0), sum.1.saturating_add(more.1));
}

/// Adds to the sum of a value, unless there are too many values.
fn add_number(dimension: &Dimension, sums: &mut Sums, number: u64, more: Sum) {
    let is_open = sums.len() < MAX_NUMBERS || !dimension.values.are_numbers();
    match sums.get_mut(&number) {
        Some(sum) => add(sum, more),
        None if is_open => drop(sums.insert(number, more)),
        None => {}
    }
}

fn sums_of_rows(lookups: &mut Lookups<'_>, dimension: &Dimension, rows: std::ops::Range<usize>) -> Sums {
    let mut sums = Sums::new();
    for row in rows {
        tick();
        if let Some(number) = (dimension.number.of)(lookups, BlockId(row as u32)) {
            add_number(dimension, &mut sums, number, (lookups.trace.blocks.requested[row], 1));
        }
    }
    sums
}

impl Vocabulary {
    /// Builds the vocabulary of `trace`.
    pub fn of(trace: &Trace) -> Self {
        let mut dimensions = conditions();
        // Of stacks, only lines are offered.
        dimensions.retain(|dimension| !matches!(dimension.values, Values::Stack));
        let rows = trace.blocks.len();
        let of_run = |lookups: &mut Lookups<'_>, run: usize| -> Vec<Sums> {
            let rows = run * RUN..rows.min((run + 1) * RUN);
            dimensions.iter().map(|dimension| sums_of_rows(lookups, dimension, rows.clone())).collect()
        };
        let and = |mut all: Vec<Sums>, more: Vec<Sums>| {
            for ((dimension, sums), more) in dimensions.iter().zip(&mut all).zip(more) {
                more.into_iter().for_each(|(number, sum)| add_number(dimension, sums, number, sum));
            }
            all
        };
        let runs = (0..rows.div_ceil(RUN)).into_par_iter().map_init(|| Lookups::new(trace), of_run);
        let sums = runs.reduce(|| vec![Sums::new(); dimensions.len()], and);
        let words = |(dimension, sums): (&&Dimension, &Sums)| (dimension.name, words(&trace.tables, dimension, sums));
        Self { words: dimensions.iter().zip(&sums).map(words).collect() }
    }

    /// Returns the values of a key, largest first. For stacks, returns the frames.
    pub(crate) fn words(&self, dimension: &Dimension) -> &[Word] {
        let is_stack = matches!(dimension.values, Values::Stack);
        let name = if is_stack { GroupKey::Frame.name() } else { dimension.name };
        self.words.get(name).map_or(&[], Vec::as_slice)
    }
}

fn words(tables: &Tables, dimension: &Dimension, sums: &Sums) -> Vec<Word> {
    match dimension.values {
        Values::Path => return scope_words(tables, sums),
        Values::Line => return frame_words(tables, sums),
        _ => {}
    }
    // Several rows may have one text.
    let mut by_text: HashMap<_, Sum> = HashMap::new();
    sums.iter().for_each(|(number, sum)| add(by_text.entry((dimension.word)(tables, *number)).or_default(), *sum));
    let occur = by_text.into_iter().filter(|(text, _)| !text.is_empty());
    let mut words: Vec<Word> = occur.map(|(text, (bytes, blocks))| word(text.into(), bytes, blocks, true)).collect();
    sort(&mut words);
    words
}

fn word(text: String, bytes: u64, blocks: u64, is_whole: bool) -> Word {
    let small = text.to_lowercase();
    Word { text, small, bytes, blocks, is_whole }
}

fn sort(words: &mut [Word]) {
    words.par_sort_by(|a, b| (b.bytes, b.blocks, &a.text).cmp(&(a.bytes, a.blocks, &b.text)));
}

/// Scopes, including the blocks of their child scopes. Parents precede their children.
fn scope_words(tables: &Tables, sums: &Sums) -> Vec<Word> {
    let own = |row: usize| sums.get(&(row as u64)).copied().unwrap_or_default();
    let mut whole: Vec<Sum> = (0..tables.scopes.len()).map(own).collect();
    for row in (0..whole.len()).rev() {
        let sum = whole[row];
        if let Some(parent) = tables.scopes[row].parent.index().filter(|parent| *parent < row) {
            add(&mut whole[parent], sum);
        }
    }
    // A damaged file may have a path twice.
    let mut by_path: HashMap<String, (Sum, bool)> = HashMap::new();
    for (row, sum) in whole.into_iter().enumerate().filter(|(_, (_, blocks))| *blocks > 0) {
        let entry = by_path.entry(tables.scope_path(ScopeId(row as u32))).or_default();
        add(&mut entry.0, sum);
        entry.1 |= own(row).1 > 0;
    }
    let scopes = by_path.into_iter().filter(|(path, _)| !path.is_empty());
    let mut words: Vec<Word> = scopes.map(|(path, ((bytes, blocks), is))| word(path, bytes, blocks, is)).collect();
    sort(&mut words);
    words
}

/// Returns the source lines of all frames, those of the program before those of libraries. A recursive function counts
/// once per call, so its sum is used only to order the list.
fn frame_words(tables: &Tables, sums: &Sums) -> Vec<Word> {
    let own = |row: usize| sums.get(&(row as u64)).copied().unwrap_or_default();
    let mut whole: Vec<Sum> = (0..tables.stacks.len()).map(own).collect();
    let mut frames: HashMap<u32, Sum> = HashMap::new();
    for row in (0..whole.len()).rev() {
        let (sum, stack) = (whole[row], tables.stacks[row]);
        if sum.1 == 0 {
            continue;
        }
        let entry = frames.entry(stack.frame.0).or_default();
        *entry = (entry.0.saturating_add(sum.0), entry.1.saturating_add(sum.1));
        if let Some(parent) = stack.parent.index().filter(|parent| *parent < row) {
            add(&mut whole[parent], sum);
        }
    }
    let mut lines: HashMap<String, (Sum, LineOwner)> = HashMap::new();
    for (frame, sum) in frames {
        for line in tables.frame_lines(FrameId(frame)) {
            let entry = lines.entry(tables.line_text(line)).or_insert(((0, 0), LineOwner::of(tables, line)));
            entry.0 = (entry.0.0.saturating_add(sum.0), entry.0.1.saturating_add(sum.1));
        }
    }
    let mut owners: HashMap<String, LineOwner> = HashMap::new();
    let mut words: Vec<Word> = Vec::with_capacity(lines.len());
    for (text, ((bytes, blocks), owner)) in lines {
        owners.insert(text.clone(), owner);
        words.push(word(text, bytes, blocks, true));
    }
    sort(&mut words);
    words.sort_by_key(|word| owners.get(&word.text).copied());
    words
}
