//! Encodes key values as numbers that are the same on both sides of a comparison.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};

use highwater_snapshots::ids::{BlockId, StackId};
use highwater_snapshots::trace::Trace;

use super::MatchKind;
use super::function::comparable_name;
use super::pairs::pair_stacks;
use crate::grouping::dimension::GroupKey;
use crate::grouping::key_encoder::{Code, KeyEncoder, code_beside};
use crate::index::beside::Beside;
use crate::stacks::frames::leading_frame;

/// A line of user code on one side.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct OwnLine {
    function: String,
    file: String,
    folder: String,
    line: u32,
    /// The code of the line on this side.
    own: Code,
    text: String,
}

/// Returns the texts that must be equal for two lines to match.
type Identity = fn(&OwnLine) -> Vec<&str>;

impl OwnLine {
    fn place(&self) -> [String; 2] {
        [self.function.clone(), self.file.clone()]
    }
}

struct Values {
    key: GroupKey,
    /// For each side, the shared id of each code.
    of: [HashMap<Code, u64>; 2],
    /// By shared id: the texts of both sides, and the kind of match between them.
    rows: Vec<Value>,
    /// The shared ids of values that were not matched in advance, by the identity passed to `number_of_text`.
    texts: HashMap<String, u64>,
}

#[derive(Clone, Default)]
struct Value {
    texts: [Option<String>; 2],
    match_kind: MatchKind,
}

/// Assigns codes that two recordings share.
pub(super) struct KeyAligner<'a> {
    traces: [&'a Trace; 2],
    coders: [KeyEncoder<'a>; 2],
    values: Vec<Values>,
}

impl<'a> KeyAligner<'a> {
    /// Prepares the shared codes for these blocks of two recordings.
    pub(super) fn of(traces: [&'a Trace; 2], blocks: [&[BlockId]; 2], keys: &[GroupKey]) -> Self {
        let coders = traces.map(KeyEncoder::new);
        let values = keys.iter().map(|&key| Values::new(key)).collect();
        let mut combine = Self { traces, coders, values };
        for row in 0..combine.values.len() {
            match combine.values[row].key {
                GroupKey::Stack => combine.combine_stacks(row, blocks),
                GroupKey::Frame => combine.combine_frames(row, blocks),
                _ => {}
            }
        }
        combine
    }

    /// Writes to `code` the shared id of each key's value for a block.
    pub(super) fn code(&mut self, side: usize, id: BlockId, code: &mut Vec<u64>) {
        code.clear();
        for values in &mut self.values {
            let coder = &mut self.coders[side];
            let key = values.key;
            let own = coder.code(id, key);
            code.push(values.number(side, own, || coder.label(key, own)));
        }
    }

    /// Writes to `code` the shared id of each key's value for bytes outside of blocks.
    pub(super) fn code_beside(&mut self, side: usize, beside: Beside, code: &mut Vec<u64>) {
        code.clear();
        for values in &mut self.values {
            let own = code_beside(beside, values.key);
            let label = self.coders[side].label(values.key, own);
            code.push(values.number_of_text(side, own, label.clone(), label));
        }
    }

    /// Returns the key values of a group in B, or in A if B has no such blocks. The second value is the key values in
    /// A, if both sides have blocks and the values differ. The third is the kind of match between the sides.
    pub(super) fn names(&self, code: &[u64], blocks: [u64; 2]) -> (Vec<String>, Option<Vec<String>>, MatchKind) {
        let is_in_both = blocks.iter().all(|blocks| *blocks > 0);
        let mut match_kind = MatchKind::Equal;
        let (mut names, mut former) = (Vec::with_capacity(code.len()), Vec::with_capacity(code.len()));
        for (values, &number) in self.values.iter().zip(code) {
            let value = &values.rows[number as usize];
            if is_in_both {
                match_kind = match_kind.max(value.match_kind);
            }
            let [a, b] = &value.texts;
            let (first, second) = if blocks[1] > 0 { (b, a) } else { (a, b) };
            names.push(first.as_ref().or(second.as_ref()).cloned().unwrap_or_default());
            former.push(a.as_ref().or(b.as_ref()).cloned().unwrap_or_default());
        }
        let differs = is_in_both && former != names;
        (names, differs.then_some(former), match_kind)
    }

    fn combine_stacks(&mut self, row: usize, blocks: [&[BlockId]; 2]) {
        // The code of a block's stack is the same for all stacks with the same text.
        let mut stacks_of = |side: usize| -> HashSet<StackId> {
            let coder = &mut self.coders[side];
            let stacks = blocks[side].iter().map(|id| StackId(coder.code(*id, GroupKey::Stack) as u32));
            stacks.filter(|stack| stack.is_some()).collect()
        };
        let stacks = [stacks_of(0), stacks_of(1)];
        let tables = self.traces.map(|trace| &trace.tables);
        let mut pairs: Vec<_> = pair_stacks(tables, [&stacks[0], &stacks[1]]).into_iter().collect();
        pairs.sort_unstable_by_key(|(stack, _)| *stack);
        for (a, (b, match_kind)) in pairs {
            let text =
                |side: usize, stack: StackId| Some(self.coders[side].label(GroupKey::Stack, Code::from(stack.0)));
            let value = Value { texts: [text(0, a), text(1, b)], match_kind };
            self.values[row].combine([Code::from(a.0), Code::from(b.0)], value);
        }
    }

    /// Matches lines of user code: equal lines first, then lines of the same function in the order of their line
    /// numbers. Functions in different folders match only if at least half of all functions occur on both sides, so
    /// that a
    /// copy of a program in another folder is matched, but not another program with a function of the same name.
    fn combine_frames(&mut self, row: usize, blocks: [&[BlockId]; 2]) {
        let [mut left_a, mut left_b] = [0, 1].map(|side| self.own_lines(side, blocks[side]));
        let are_alike = has_mostly_the_same(left_a.iter().map(OwnLine::place), left_b.iter().map(OwnLine::place));
        let passes: [(Identity, bool, MatchKind); 4] = [
            (|line| vec![&line.text], true, MatchKind::Equal),
            (|line| vec![&line.function, &line.file, &line.folder], true, MatchKind::Moved),
            (|line| vec![&line.function, &line.file], are_alike, MatchKind::Moved),
            (|line| vec![&line.function], are_alike, MatchKind::Moved),
        ];
        for (identity, _, match_kind) in passes.into_iter().filter(|(_, applies, _)| *applies) {
            for [a, b] in take_pairs(&mut left_a, &mut left_b, identity) {
                let value = Value { texts: [Some(a.text), Some(b.text)], match_kind };
                self.values[row].combine([a.own, b.own], value);
            }
        }
    }

    /// The distinct lines of user code in the stacks of one side's blocks, ordered by function, file, folder and line
    /// number.
    fn own_lines(&mut self, side: usize, blocks: &[BlockId]) -> Vec<OwnLine> {
        let tables = &self.traces[side].tables;
        let mut lines: BTreeMap<Code, OwnLine> = BTreeMap::new();
        for &id in blocks {
            let block = self.traces[side].blocks.get(id);
            let own = self.coders[side].code(id, GroupKey::Frame);
            if lines.contains_key(&own) {
                continue;
            }
            if let Some(frame) = leading_frame(tables, block.stack) {
                let text = self.coders[side].label(GroupKey::Frame, own);
                // An address is known by its text alone: it means nothing in another build.
                let Some(line) = frame.line() else {
                    let (function, file, folder) = (text.clone(), String::new(), String::new());
                    lines.insert(own, OwnLine { function, file, folder, line: 0, own, text });
                    continue;
                };
                let path = tables.string(line.file).replace('\\', "/");
                let mut parts = path.rsplit('/').map(str::to_owned);
                let (file, folder) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
                let function = comparable_name(tables.string(line.function));
                lines.insert(own, OwnLine { function, file, folder, line: line.line, own, text });
            }
        }
        let mut lines: Vec<OwnLine> = lines.into_values().collect();
        lines.sort_unstable();
        lines
    }
}

/// Removes and returns the pairs of lines with equal identities, in order.
fn take_pairs(
    a: &mut Vec<OwnLine>,
    b: &mut Vec<OwnLine>,
    identity: impl Fn(&OwnLine) -> Vec<&str>,
) -> Vec<[OwnLine; 2]> {
    let mut of_b: HashMap<Vec<String>, VecDeque<OwnLine>> = HashMap::new();
    let key = |line: &OwnLine| identity(line).into_iter().map(str::to_owned).collect::<Vec<String>>();
    b.drain(..).for_each(|line| of_b.entry(key(&line)).or_default().push_back(line));
    let (mut pairs, mut left) = (Vec::new(), Vec::new());
    for line in a.drain(..) {
        match of_b.get_mut(&key(&line)).and_then(VecDeque::pop_front) {
            Some(partner) => pairs.push([line, partner]),
            None => left.push(line),
        }
    }
    *a = left;
    b.extend(of_b.into_values().flatten());
    b.sort_unstable();
    pairs
}

/// Whether at least half of the distinct values of both sides together occur on both.
fn has_mostly_the_same<T: Ord>(a: impl Iterator<Item = T>, b: impl Iterator<Item = T>) -> bool {
    let (a, b): (BTreeSet<T>, BTreeSet<T>) = (a.collect(), b.collect());
    a.intersection(&b).count() * 2 >= a.union(&b).count()
}

impl Values {
    fn new(key: GroupKey) -> Self {
        Self { key, of: [HashMap::new(), HashMap::new()], rows: Vec::new(), texts: HashMap::new() }
    }

    /// Maps a code of each side to the same new id.
    fn combine(&mut self, own: [Code; 2], value: Value) {
        let number = self.rows.len() as u64;
        self.rows.push(value);
        for (of, own) in self.of.iter_mut().zip(own) {
            of.insert(own, number);
        }
    }

    /// Returns the shared id for a code of one side. Values that were not matched are equal if their texts are, except
    /// for stacks and lines other than `(none)`, which would have been matched.
    fn number(&mut self, side: usize, own: Code, text: impl FnOnce() -> String) -> u64 {
        if let Some(&number) = self.of[side].get(&own) {
            return number;
        }
        let text = text();
        let identity = if matches!(self.key, GroupKey::Stack | GroupKey::Frame) && text != "(none)" {
            format!("{side} {own}")
        } else {
            text.clone()
        };
        self.number_of_text(side, own, identity, text)
    }

    /// Returns the shared id for a code of one side; values with the same `identity` share an id.
    fn number_of_text(&mut self, side: usize, own: Code, identity: String, text: String) -> u64 {
        let next = self.rows.len() as u64;
        let number = *self.texts.entry(identity).or_insert(next);
        if number == next {
            self.rows.push(Value::default());
        }
        self.rows[number as usize].texts[side] = Some(text);
        self.of[side].insert(own, number);
        number
    }
}
