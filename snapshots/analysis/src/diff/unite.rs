//! Encodes key values as numbers that are the same on both sides of a comparison.

use std::collections::{HashMap, HashSet};

use highwater_snapshots::ids::{BlockId, StackId};
use highwater_snapshots::intern::Interner;
use highwater_snapshots::trace::Trace;

use super::Likeness;
use super::function::bare_name;
use super::pairs::pair_stacks;
use crate::coder::Coder;
use crate::frames::user_line;
use crate::group_key::GroupKey;

/// A program line on one side: its line number, the side's code for it, and its text.
type OwnLine = (u32, u64, String);

/// The values of one key on both sides.
struct Values {
    key: GroupKey,
    /// By side: the shared number for the side's code.
    of: [HashMap<u64, u64>; 2],
    /// By shared number: the texts of both sides, and their likeness.
    rows: Vec<Value>,
    /// The shared numbers of texts.
    texts: HashMap<String, u64>,
}

#[derive(Clone, Default)]
struct Value {
    texts: [Option<String>; 2],
    likeness: Likeness,
}

/// Shared codes of two recordings.
pub(super) struct Unite<'a> {
    traces: [&'a Trace; 2],
    coders: [Coder<'a>; 2],
    values: Vec<Values>,
}

impl<'a> Unite<'a> {
    /// Prepares the codes for these blocks of two recordings.
    pub(super) fn of(traces: [&'a Trace; 2], blocks: [&[BlockId]; 2], keys: &[GroupKey]) -> Self {
        let coders = traces.map(Coder::new);
        let values = keys.iter().map(|&key| Values::new(key)).collect();
        let mut unite = Self { traces, coders, values };
        for row in 0..unite.values.len() {
            match unite.values[row].key {
                GroupKey::Stack => unite.unite_stacks(row, blocks),
                GroupKey::Frame => unite.unite_frames(row, blocks),
                _ => {}
            }
        }
        unite
    }

    /// Writes the shared number of each key's value for a block into `code`.
    pub(super) fn code(&mut self, side: usize, id: BlockId, code: &mut Vec<u64>) {
        code.clear();
        let block = self.traces[side].blocks.get(id);
        for values in &mut self.values {
            let coder = &mut self.coders[side];
            let key = values.key;
            let own = coder.code(&block, key);
            code.push(values.number(side, own, || coder.label(key, own)));
        }
    }

    /// The key values of a group in B, or in A if B has none; those in A, if both sides have blocks and the values
    /// differ; and the likeness of the sides.
    pub(super) fn names(&self, code: &[u64], blocks: [u64; 2]) -> (Vec<String>, Option<Vec<String>>, Likeness) {
        let is_in_both = blocks.iter().all(|blocks| *blocks > 0);
        let mut likeness = Likeness::Equal;
        let (mut names, mut former) = (Vec::with_capacity(code.len()), Vec::with_capacity(code.len()));
        for (values, &number) in self.values.iter().zip(code) {
            let value = &values.rows[number as usize];
            if is_in_both {
                likeness = likeness.max(value.likeness);
            }
            let [a, b] = &value.texts;
            let (first, second) = if blocks[1] > 0 { (b, a) } else { (a, b) };
            names.push(first.as_ref().or(second.as_ref()).cloned().unwrap_or_default());
            former.push(a.as_ref().or(b.as_ref()).cloned().unwrap_or_default());
        }
        let differs = is_in_both && former != names;
        (names, differs.then_some(former), likeness)
    }

    fn unite_stacks(&mut self, row: usize, blocks: [&[BlockId]; 2]) {
        let stacks = [0, 1].map(|side| -> HashSet<StackId> {
            let columns = &self.traces[side].blocks;
            blocks[side].iter().map(|id| columns.stack[id.0 as usize]).filter(|stack| stack.is_some()).collect()
        });
        let tables = self.traces.map(|trace| &trace.tables);
        let mut pairs: Vec<_> = pair_stacks(tables, [&stacks[0], &stacks[1]]).into_iter().collect();
        pairs.sort_unstable_by_key(|(stack, _)| *stack);
        for (a, (b, likeness)) in pairs {
            let text = |side: usize, stack: StackId| Some(self.coders[side].label(GroupKey::Stack, u64::from(stack.0)));
            let value = Value { texts: [text(0, a), text(1, b)], likeness };
            self.values[row].unite([u64::from(a.0), u64::from(b.0)], value);
        }
    }

    /// Matches program lines: equal lines, or else, in the order of their line numbers, lines in functions of the same
    /// name.
    fn unite_frames(&mut self, row: usize, blocks: [&[BlockId]; 2]) {
        let mut names = Interner::default();
        // By function: line number, own code and text of each line that occurs.
        let mut lines: [HashMap<u32, Vec<OwnLine>>; 2] = [HashMap::new(), HashMap::new()];
        for side in [0, 1] {
            let tables = &self.traces[side].tables;
            let mut seen = HashSet::new();
            for &id in blocks[side] {
                let block = self.traces[side].blocks.get(id);
                let own = self.coders[side].code(&block, GroupKey::Frame);
                if !seen.insert(own) {
                    continue;
                }
                if let Some(line) = user_line(tables, block.stack) {
                    let function = names.intern(bare_name(tables.string(line.function)));
                    let text = self.coders[side].label(GroupKey::Frame, own);
                    lines[side].entry(function).or_default().push((line.line, own, text));
                }
            }
        }
        let [of_a, mut of_b] = lines;
        for (function, mut a) in of_a {
            let Some(mut b) = of_b.remove(&function) else { continue };
            a.sort_unstable();
            b.sort_unstable();
            let equal = |(_, _, text): &OwnLine, others: &[OwnLine]| others.iter().any(|(_, _, other)| other == text);
            let (same_a, left_a): (Vec<_>, Vec<_>) = a.iter().cloned().partition(|line| equal(line, &b));
            let (mut same_b, left_b): (Vec<_>, Vec<_>) = b.into_iter().partition(|line| equal(line, &a));
            same_b.sort_by(|x, y| x.2.cmp(&y.2));
            let mut same_a = same_a;
            same_a.sort_by(|x, y| x.2.cmp(&y.2));
            let equal = same_a.into_iter().zip(same_b).map(|pair| (pair, Likeness::Equal));
            let moved = left_a.into_iter().zip(left_b).map(|pair| (pair, Likeness::Moved));
            for (((_, a, text_a), (_, b, text_b)), likeness) in equal.chain(moved) {
                let value = Value { texts: [Some(text_a), Some(text_b)], likeness };
                self.values[row].unite([a, b], value);
            }
        }
    }
}

impl Values {
    fn new(key: GroupKey) -> Self {
        Self { key, of: [HashMap::new(), HashMap::new()], rows: Vec::new(), texts: HashMap::new() }
    }

    /// Maps the codes of both sides to the same new number.
    fn unite(&mut self, own: [u64; 2], value: Value) {
        let number = self.rows.len() as u64;
        self.rows.push(value);
        for (of, own) in self.of.iter_mut().zip(own) {
            of.insert(own, number);
        }
    }

    /// The shared number for a side's code. Values that were not matched are equal if their texts are, except for
    /// stacks and lines, which would have been matched.
    fn number(&mut self, side: usize, own: u64, text: impl FnOnce() -> String) -> u64 {
        if let Some(&number) = self.of[side].get(&own) {
            return number;
        }
        let text = text();
        let by_side = if matches!(self.key, GroupKey::Stack | GroupKey::Frame) && text != "(none)" {
            format!("{side} {own}")
        } else {
            text.clone()
        };
        let next = self.rows.len() as u64;
        let number = *self.texts.entry(by_side).or_insert(next);
        if number == next {
            self.rows.push(Value::default());
        }
        self.rows[number as usize].texts[side] = Some(text);
        self.of[side].insert(own, number);
        number
    }
}
