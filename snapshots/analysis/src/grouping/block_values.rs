//! The value of a grouping key for each block of a recording, as a small integer. The app colours blocks by it.

use hashbrown::HashMap;
use rayon::prelude::*;

use highwater_snapshots::ids::{BlockId, ScopeId};
use highwater_snapshots::line_text::unique_suffixes;
use highwater_snapshots::trace::Trace;
use highwater_snapshots::yielding::tick;

use super::condition;
use super::dimension::{GroupKey, Lookups, NO_LABEL, NO_VALUE};
use super::key_encoder::{Code, KeyEncoder, code_beside, stack_of};
use crate::index::beside::Beside;
use crate::stacks::frames::short_stacks;

/// Number of blocks per parallel task.
const RUN: usize = 1 << 14;

/// The values of a key that occur in a recording, in the order of the key.
pub struct BlockValues<'a> {
    trace: &'a Trace,
    key: GroupKey,
    encoder: KeyEncoder<'a>,
    /// The code of each value.
    codes: Vec<Code>,
    /// The index of each block's value, by row.
    value_of: Vec<u32>,
}

/// The values of consecutive blocks, in order of first appearance.
#[derive(Default)]
struct RunValues {
    value_of: Vec<u32>,
    numbers: Vec<u64>,
}

impl RunValues {
    fn of(lookups: &mut Lookups<'_>, key: GroupKey, ids: &[BlockId]) -> Self {
        let mut numbers = Vec::with_capacity(ids.len());
        key.numbers(lookups, ids, &mut numbers);
        let mut run = Self { value_of: Vec::with_capacity(ids.len()), numbers: Vec::new() };
        let mut value_of: HashMap<u64, u32> = HashMap::new();
        let mut last = None;
        for number in numbers {
            tick();
            // Blocks that follow each other often have the same value.
            let value = match last {
                Some((same, value)) if same == number => value,
                _ => *value_of.entry(number).or_insert_with(|| {
                    run.numbers.push(number);
                    run.numbers.len() as u32 - 1
                }),
            };
            last = Some((number, value));
            run.value_of.push(value);
        }
        run
    }
}

impl<'a> BlockValues<'a> {
    /// Determines the value of `key` for every block, in parallel passes over the blocks and over their distinct
    /// values.
    pub fn of(trace: &'a Trace, key: GroupKey) -> Self {
        let rows: Vec<BlockId> = trace.blocks.ids().collect();
        let of_run = |lookups: &mut Lookups<'_>, ids: &[BlockId]| RunValues::of(lookups, key, ids);
        let mut runs: Vec<RunValues> = rows.par_chunks(RUN).map_init(|| Lookups::new(trace), of_run).collect();
        let mut numbers: Vec<u64> = runs.iter().flat_map(|run| &run.numbers).copied().collect();
        numbers.par_sort_unstable();
        numbers.dedup();
        let encoder = KeyEncoder::new(trace);
        let code = |number: &u64| encoder.code_of(key, Some(*number).filter(|number| *number != NO_VALUE));
        let code_of: Vec<Code> = numbers.par_iter().with_min_len(64).map(code).collect();
        let mut codes = code_of.clone();
        codes.par_sort_unstable();
        codes.dedup();
        let value_of_code = |code: &Code| codes.partition_point(|other| other < code) as u32;
        let value_of_number: Vec<u32> = code_of.par_iter().with_min_len(RUN).map(value_of_code).collect();
        runs.par_iter_mut().for_each(|run| {
            let value = |number: &u64| value_of_number[numbers.partition_point(|other| other < number)];
            let values: Vec<u32> = run.numbers.iter().map(value).collect();
            run.value_of.iter_mut().for_each(|number| *number = values[*number as usize]);
        });
        let value_of = runs.into_iter().flat_map(|run| run.value_of).collect();
        Self { trace, key, encoder, codes, value_of }
    }

    /// Returns the number of values.
    pub fn count(&self) -> usize {
        self.codes.len()
    }

    /// The value of the block in `row`.
    #[inline]
    pub fn value(&self, row: usize) -> usize {
        self.value_of[row] as usize
    }

    /// Returns the code of a value: its index in the order of all values, a size, or a row; `None` for a missing value.
    pub fn number(&self, value: usize) -> Option<u64> {
        u64::try_from(self.codes[value]).ok()
    }

    /// Returns a value as written in conditions; `None` for a missing value.
    pub fn word(&self, value: usize) -> Option<String> {
        let word = (self.key.dimension().word)(&self.trace.tables, self.number(value)?).into_owned();
        Some(word).filter(|word| !word.is_empty())
    }

    /// Returns the label of a value, which is also the label of the group of blocks with this value.
    pub fn label(&self, value: usize) -> String {
        self.encoder.label(self.key, self.codes[value])
    }

    /// Returns short labels of `values` that remain distinct; labels of numbers include the name of the key.
    pub fn names(&self, values: &[usize]) -> Vec<String> {
        let labels = values.iter().map(|value| self.label(*value));
        match self.key {
            GroupKey::Stack => {
                let stack = |value: &usize| (&self.trace.tables, stack_of(&[self.key], &[self.codes[*value]]));
                let short = short_stacks(&values.iter().map(stack).collect::<Vec<_>>());
                let name = |(label, lines): (String, Vec<String>)| match label.as_str() {
                    NO_LABEL => label,
                    _ => lines.join(" < "),
                };
                labels.zip(short).map(name).collect()
            }
            GroupKey::Frame => unique_suffixes(&labels.collect::<Vec<_>>()),
            key => labels.map(|label| key.with_name(label)).collect(),
        }
    }

    /// Returns the condition for the blocks of a value, if any. A source line matches every stack that contains it.
    pub fn condition(&self, value: usize) -> Option<String> {
        let (label, tables) = (self.label(value), &self.trace.tables);
        let depth = match self.key {
            GroupKey::ScopeTo(depth) if label != NO_LABEL => usize::from(depth),
            GroupKey::ScopeTo(_) => return condition::of_group(&[GroupKey::Scope], &[label], &[]),
            key => return condition::of_group(&[key], &[label], &[]),
        };
        let mut scopes = vec![false; tables.scopes.len()];
        for scope in self.trace.blocks.scope.iter().filter_map(|scope| scope.index()) {
            scopes.get_mut(scope).into_iter().for_each(|is_met| *is_met = true);
        }
        let met = scopes.iter().enumerate().filter(|(_, is_met)| **is_met).map(|(row, _)| ScopeId(row as u32));
        let is_own = |scope: &ScopeId| {
            let cut = u64::from(tables.scope_to_depth(*scope, depth).0);
            self.encoder.code_of(self.key, Some(cut)) == self.codes[value]
        };
        let (own, others): (Vec<ScopeId>, Vec<ScopeId>) = met.partition(is_own);
        let paths = |scopes: Vec<ScopeId>| scopes.into_iter().map(|scope| tables.scope_path(scope)).collect::<Vec<_>>();
        condition::of_paths(paths(own), &paths(others))
    }
}

/// The label of the group for bytes outside of blocks.
pub fn label_beside(trace: &Trace, key: GroupKey, beside: Beside) -> String {
    KeyEncoder::new(trace).label(key, code_beside(beside, key))
}
