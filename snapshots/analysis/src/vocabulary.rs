//! The values that occur in a recording for each key of the `--where` language, largest first.

use std::collections::HashMap;

use rayon::prelude::*;

use highwater_snapshots::Category;
use highwater_snapshots::ids::BlockId;
use highwater_snapshots::tables::Tables;
use highwater_snapshots::trace::Trace;

use super::filter::Key;
use super::lifetime::{Lifetime, step_of};
use super::origin::Origin;
use super::owners::LineOwner;
use super::pools::{BlockPool, Pools};

/// A value that occurs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Word {
    pub(super) text: String,
    /// The value in lower case.
    pub(super) small: String,
    /// Requested bytes of its blocks.
    pub(super) bytes: u64,
    pub(super) blocks: u64,
    /// Whether a block has exactly this value: a scope may have blocks only in its child scopes.
    pub(super) is_whole: bool,
}

/// The values that occur in one recording. Built once, in time proportional to its blocks and tables; queried at each
/// keystroke.
#[derive(Clone, Debug, Default)]
pub struct Vocabulary {
    words: HashMap<Key, Vec<Word>>,
}

/// Maximum number of distinct sizes, steps and streams that are kept; a recording may have as many as blocks.
const MAX_NUMBERS: usize = 1 << 16;

/// Blocks per parallel task.
const RUN: usize = 1 << 16;

/// Bytes and blocks.
type Sum = (u64, u64);

/// The sums of blocks by the code of each value.
#[derive(Default)]
struct Sums {
    fixed: [[Sum; 16]; 3],
    /// By the code of each pool, including private ones.
    pools: HashMap<u64, Sum>,
    tables: [HashMap<u32, Sum>; 3],
    numbers: [HashMap<u64, Sum>; 5],
}

const FIXED: [Key; 3] = [Key::Category, Key::Phase, Key::Lifetime];
const NUMBERS: [Key; 5] = [Key::Size, Key::Allocated, Key::Step, Key::Stream, Key::Device];

fn add(sum: &mut Sum, more: Sum) {
    *sum = (sum.0 + more.0, sum.1 + more.1);
}

fn add_number(sums: &mut HashMap<u64, Sum>, number: u64, more: Sum) {
    if sums.len() < MAX_NUMBERS || sums.contains_key(&number) {
        add(sums.entry(number).or_default(), more);
    }
}

impl Sums {
    fn of_rows(trace: &Trace, pools: &Pools, rows: std::ops::Range<usize>) -> Self {
        let mut sums = Self::default();
        for row in rows {
            let block = trace.blocks.get(BlockId(row as u32));
            let one = (block.requested, 1);
            let lifetime = Lifetime::of(trace, &block);
            let lifetime = Lifetime::ALL.iter().position(|known| *known == lifetime);
            let codes = [Some(block.category as usize), Some(Origin::of(trace, &block).code()), lifetime];
            for (sums, code) in sums.fixed.iter_mut().zip(codes) {
                if let Some(sum) = code.and_then(|code| sums.get_mut(code)) {
                    add(sum, one);
                }
            }
            for (sums, code) in sums.tables.iter_mut().zip([block.op.0, block.scope.0, block.stack.0]) {
                add(sums.entry(code).or_default(), one);
            }
            add_number(&mut sums.pools, pools.pool(trace, &block).code(), one);
            let step = step_of(trace, &block).map(u64::from);
            let numbers = [
                Some(block.requested),
                Some(block.allocated),
                step,
                Some(block.stream.0),
                Some(u64::from(block.device.0)),
            ];
            for (sums, number) in sums.numbers.iter_mut().zip(numbers) {
                if let Some(number) = number {
                    add_number(sums, number, one);
                }
            }
        }
        sums
    }

    fn and(mut self, other: Self) -> Self {
        for (mine, theirs) in self.fixed.iter_mut().flatten().zip(other.fixed.iter().flatten()) {
            add(mine, *theirs);
        }
        for (mine, theirs) in self.tables.iter_mut().zip(other.tables) {
            for (code, sum) in theirs {
                add(mine.entry(code).or_default(), sum);
            }
        }
        for (pool, sum) in other.pools {
            add_number(&mut self.pools, pool, sum);
        }
        for (mine, theirs) in self.numbers.iter_mut().zip(other.numbers) {
            for (number, sum) in theirs {
                add_number(mine, number, sum);
            }
        }
        self
    }
}

impl Vocabulary {
    /// Builds the vocabulary of `trace`.
    pub fn of(trace: &Trace) -> Self {
        let rows = trace.blocks.len();
        let pools = Pools::of(trace);
        let runs = (0..rows.div_ceil(RUN)).into_par_iter();
        let sums = runs
            .map(|run| Sums::of_rows(trace, &pools, run * RUN..rows.min((run + 1) * RUN)))
            .reduce(Sums::default, Sums::and);
        let mut words = HashMap::new();
        for (key, sums) in FIXED.into_iter().zip(&sums.fixed) {
            words.insert(key, sorted(fixed_names(key).iter().copied().zip(sums.iter().copied())));
        }
        for (key, sums) in NUMBERS.into_iter().zip(sums.numbers) {
            words.insert(key, sorted(sums.into_iter().map(|(number, sum)| (number.to_string(), sum))));
        }
        let pools = sums.pools.into_iter().map(|(code, sum)| (BlockPool::from_code(code).to_string(), sum));
        words.insert(Key::Pool, sorted(pools));
        let [ops, scopes, stacks] = &sums.tables;
        words.insert(Key::Op, op_words(&trace.tables, ops));
        words.insert(Key::Scope, scope_words(&trace.tables, scopes));
        words.insert(Key::Frame, frame_words(&trace.tables, stacks));
        Self { words }
    }

    /// The values of `key`, largest first; for stacks, their frames.
    pub(super) fn words(&self, key: Key) -> &[Word] {
        let key = if key == Key::Stack { Key::Frame } else { key };
        self.words.get(&key).map_or(&[], Vec::as_slice)
    }
}

fn fixed_names(key: Key) -> Vec<&'static str> {
    match key {
        Key::Category => Category::ALL.iter().map(|value| value.name()).collect(),
        Key::Phase => Origin::all().map(Origin::word).collect(),
        _ => Lifetime::ALL.iter().map(|value| value.word()).collect(),
    }
}

/// Words that occur in blocks, largest first.
fn sorted<T: Into<String>>(sums: impl Iterator<Item = (T, Sum)>) -> Vec<Word> {
    let occur = sums.filter(|(_, (_, blocks))| *blocks > 0);
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

/// Operations by name: several may share one.
fn op_words(tables: &Tables, sums: &HashMap<u32, Sum>) -> Vec<Word> {
    let mut by_name: HashMap<&str, Sum> = HashMap::new();
    for (&op, &sum) in sums {
        match tables.op_name(highwater_snapshots::OpId(op)) {
            "" => {}
            name => add(by_name.entry(name).or_default(), sum),
        }
    }
    sorted(by_name.into_iter())
}

/// Scopes, including the blocks of their child scopes. Parents precede their children.
fn scope_words(tables: &Tables, sums: &HashMap<u32, Sum>) -> Vec<Word> {
    let own = |row: usize| sums.get(&(row as u32)).copied().unwrap_or_default();
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
        let entry = by_path.entry(tables.scope_path(highwater_snapshots::ScopeId(row as u32))).or_default();
        add(&mut entry.0, sum);
        entry.1 |= own(row).1 > 0;
    }
    let scopes = by_path.into_iter().filter(|(path, _)| !path.is_empty());
    let mut words: Vec<Word> = scopes.map(|(path, ((bytes, blocks), is))| word(path, bytes, blocks, is)).collect();
    sort(&mut words);
    words
}

/// The source lines of all frames, the program's before those of libraries. A recursive frame counts once per call, so
/// its sums only determine its position in the list.
fn frame_words(tables: &Tables, sums: &HashMap<u32, Sum>) -> Vec<Word> {
    let own = |row: usize| sums.get(&(row as u32)).copied().unwrap_or_default();
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
        for line in tables.frame_lines(highwater_snapshots::FrameId(frame)) {
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
