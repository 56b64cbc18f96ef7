//! Measures growth per step: blocks allocated in a window of steps and live at its end, minus older blocks freed in it.
//! The difference is exactly the change of the total.

mod steps;
mod window;
mod idle;
mod ends;
mod leaks;
mod reserved;
mod history;

use std::collections::HashMap;

use highwater_snapshots::ids::{BlockId, StackId};
use highwater_snapshots::trace::Trace;

use super::between::{Balance, Sum, bytes_of};
use super::peak::Moment;
use crate::grouping::breakdown::{Breakdown, Group, Grouping};
use crate::grouping::dimension::GroupKey;
use crate::grouping::filter::Filter;
use crate::grouping::key_encoder::{Code, KeyEncoder, stack_of};
use crate::grouping::siblings::Siblings;
use crate::index::beside::SegmentValues;
use crate::metric::Metric;

pub(crate) use history::History;
pub use history::{OfDevices, growth, steps_or_bursts};
pub use leaks::{Leak, Leaks};
pub use reserved::{Kept, KeptBecause};
pub(crate) use steps::Steps;
pub use steps::{Cut, how_to_mark_steps};
pub use window::{Between, Bound, FirstStep, LastStep, NoWindow, StepRange, StepWindow};

/// Maximum number of survivors' stacks that are listed.
const STACKS: usize = 3;

/// A query for growth: the total, the counted blocks, and their grouping.
#[derive(Clone, Copy, Debug)]
pub struct GrowthQuery<'a> {
    /// The total to measure, which is a sum over blocks or reserved memory. For the latter, segments are counted
    /// instead of blocks, without a filter.
    pub metric: Metric,
    /// The keys to group by.
    pub keys: &'a [GroupKey],
    /// Number of groups to list.
    pub top: usize,
    /// The blocks to count.
    pub filter: &'a Filter,
}

/// Blocks that have the same values of all keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrownGroup {
    /// The values of the grouping keys, in order.
    pub key: Vec<String>,
    /// The call stack, if the blocks are grouped by stack.
    pub stack: StackId,
    /// Blocks allocated in the window and live at its end.
    pub survivors: Sum,
    /// Blocks that were live before the window and are freed in it.
    pub freed: Sum,
    /// Number of steps that have survivors.
    pub steps: usize,
    /// The minimum, over the steps, of the bytes that survive from a step.
    pub least_bytes: u64,
    /// Whether the window has at least two steps, each with survivors.
    pub is_recurring: bool,
}

impl GrownGroup {
    /// Returns the group's growth in bytes; negative if it shrinks.
    pub(crate) fn net(&self) -> i128 {
        i128::from(self.survivors.bytes) - i128::from(self.freed.bytes)
    }
}

/// One step of the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepGrowth {
    /// The step number; `None` for blocks allocated between the steps.
    pub step: Option<u32>,
    /// Bytes of the counted blocks live after the step.
    pub end_bytes: u64,
    /// Blocks allocated in the step and live at the window's end.
    pub survivors: Sum,
}

/// Growth over a window of steps. All sizes are in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Growth {
    /// The steps over which growth is measured.
    pub window: StepWindow,
    /// The state before the first step of the window, counting all blocks.
    pub start: Moment,
    /// The state after the last step.
    pub end: Moment,
    /// The point with the largest total in the last step.
    pub last_peak: Moment,
    /// The counted blocks by class. Those live at the start, minus the freed, plus the born, are live at the end.
    pub balance: Balance,
    /// The steps, followed by a row for survivors allocated between steps, if there are any.
    pub steps: Vec<StepGrowth>,
    /// The groups that grew most. Growing groups with survivors from every step come first.
    pub groups: Vec<GrownGroup>,
    /// Survivors in groups that are not listed.
    pub rest_survivors: Sum,
    /// Freed blocks in groups that are not listed.
    pub rest_freed: Sum,
    /// Number of groups that are not listed.
    pub rest_groups: u64,
    /// The source lines whose allocations survive from every step, by stack. Independent of the grouping keys.
    pub leaks: Vec<Leak>,
    /// For reserved memory, the change by the reason memory stays reserved, largest first. These changes sum to the
    /// growth.
    pub causes: Vec<Kept>,
    /// The sum of the survivors of [`Self::leaks`].
    pub recurring: Sum,
    /// The stacks with the most survivors: among the leaks, or among the groups that grew if there are no leaks; for
    /// reserved memory, among all segments.
    pub stacks: Vec<Group>,
}

/// The points between which growth is measured, and the sums of the counted blocks.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    /// See [`Growth::start`].
    pub start: Moment,
    /// See [`Growth::end`].
    pub end: Moment,
    /// See [`Growth::last_peak`].
    pub last_peak: Moment,
    /// See [`Growth::balance`].
    pub balance: Balance,
    /// Live bytes after each step of the window.
    pub end_bytes: Vec<u64>,
}

impl Growth {
    /// Measures growth as a difference of two sets of blocks: allocated in the window and live at its end, and live
    /// before the window and freed in it. Each set has the trace that contains it.
    pub(crate) fn of_blocks(
        [born, gone]: [(&Trace, &[BlockId]); 2],
        measured: Measured,
        window: StepWindow,
        query: &GrowthQuery<'_>,
    ) -> Self {
        let metric = query.metric;
        let ((trace, survivors), (trace_of_freed, freed)) = (born, gone);
        let mut sums = Sums::new([trace, trace_of_freed], query.keys, window);
        let mut number_of: HashMap<BlockId, usize> = HashMap::with_capacity(survivors.len());
        for &id in survivors {
            let code = query.keys.iter().map(|&key| sums.coder.code(id, key)).collect();
            let step = sums.window.step_of(trace, id);
            number_of.insert(id, sums.add_survivor(code, step, bytes_of(trace, metric, id)));
        }
        for &id in freed {
            let coder = sums.coder_of_freed.as_mut().unwrap_or(&mut sums.coder);
            let code = query.keys.iter().map(|&key| coder.code(id, key)).collect();
            sums.add_freed(code, bytes_of(trace_of_freed, metric, id));
        }
        let Leaks { lines: leaks, blocks: leaked, .. } = Leaks::of_survivors(metric, &sums.window, [born, gone]);
        let grew = |id: &BlockId| sums.rows[number_of[id]].grew();
        let is_listed = |id: &BlockId| if leaked.is_empty() { grew(id) } else { leaked.contains(id) };
        let listed: Vec<BlockId> = survivors.iter().copied().filter(is_listed).collect();
        let grouping = Grouping { keys: &[GroupKey::Stack], beside: &[], top: STACKS, siblings: Siblings::Each };
        let stacks = Breakdown::of(trace, metric, &listed, &grouping).groups;
        sums.growth(measured, query.top).with(leaks, stacks)
    }

    fn with(self, leaks: Vec<Leak>, mut stacks: Vec<Group>) -> Self {
        stacks.retain(|group| group.stack.is_some());
        Self { recurring: total(leaks.iter().map(|leak| leak.kept)), leaks, stacks, ..self }
    }

    /// Returns the growth of the counted blocks over the window, in bytes.
    pub fn net(&self) -> i128 {
        i128::from(self.balance.born.bytes) - i128::from(self.balance.freed.bytes)
    }

    /// Number of steps in the window.
    pub fn step_count(&self) -> usize {
        self.window.steps.len()
    }

    /// Returns the growth that is expected to continue: the growth of the window, or of its leaks if they grow more.
    /// The last step may lack inputs that the other steps allocated for their next step.
    fn lasting(&self) -> u128 {
        let leaked = if self.causes.is_empty() { self.recurring.bytes } else { 0 };
        u128::try_from(self.net()).unwrap_or(0).max(u128::from(leaked))
    }

    /// Average growth per step, rounded up; 0 if nothing grew.
    pub fn bytes_per_step(&self) -> u64 {
        self.per_step(u128::try_from(self.net()).unwrap_or(0))
    }

    /// Returns [`Self::lasting`] per step, rounded up.
    pub(crate) fn lasting_bytes_per_step(&self) -> u64 {
        self.per_step(self.lasting())
    }

    fn per_step(&self, bytes: u128) -> u64 {
        u64::try_from(bytes.div_ceil(self.step_count().max(1) as u128)).unwrap_or(u64::MAX)
    }

    /// Returns the number of further steps until a step's peak exceeds `capacity` bytes, extrapolated from the average
    /// growth that continues. `None` if nothing grew, the window has fewer than two steps, or `capacity` is 0.
    pub fn steps_until(&self, capacity: u64) -> Option<u64> {
        let growth = Some(self.lasting()).filter(|growth| *growth > 0 && capacity > 0)?;
        let left = u128::from(capacity.saturating_sub(self.last_peak.bytes));
        // A single step may contain one-time allocations.
        if self.step_count() < 2 {
            return None;
        }
        u64::try_from(left * self.step_count() as u128 / growth + 1).ok()
    }
}

fn total(sums: impl Iterator<Item = Sum>) -> Sum {
    sums.fold(Sum::default(), Sum::plus)
}

struct Sums<'a> {
    keys: &'a [GroupKey],
    window: StepWindow,
    coder: KeyEncoder<'a>,
    /// The encoder for freed blocks, if they are in a different trace than survivors.
    coder_of_freed: Option<KeyEncoder<'a>>,
    row_of_step: HashMap<u32, usize>,
    numbers: HashMap<Vec<Code>, usize>,
    rows: Vec<Row>,
    /// One sum per step of the window; the last one is for blocks allocated between steps.
    by_step: Vec<Sum>,
}

#[derive(Default)]
struct Row {
    code: Vec<Code>,
    survivors: Sum,
    freed: Sum,
    /// Survivors' bytes by step, as an index into the window's steps.
    by_step: HashMap<usize, u64>,
}

impl Row {
    fn grew(&self) -> bool {
        self.survivors.bytes > self.freed.bytes
    }
}

impl<'a> Sums<'a> {
    /// Prepares the sums of survivors and of freed blocks, which may be in different traces.
    fn new([trace, of_freed]: [&'a Trace; 2], keys: &'a [GroupKey], window: StepWindow) -> Self {
        Self {
            keys,
            coder: KeyEncoder::new(trace),
            coder_of_freed: (!std::ptr::eq(trace, of_freed)).then(|| KeyEncoder::new(of_freed)),
            row_of_step: window.steps.iter().enumerate().map(|(row, (step, _))| (*step, row)).collect(),
            numbers: HashMap::new(),
            rows: Vec::new(),
            by_step: vec![Sum::default(); window.steps.len() + 1],
            window,
        }
    }

    fn number(&mut self, code: Vec<Code>) -> usize {
        if let Some(&number) = self.numbers.get(&code) {
            return number;
        }
        self.numbers.insert(code.clone(), self.rows.len());
        self.rows.push(Row { code, ..Row::default() });
        self.rows.len() - 1
    }

    fn code_of_segment(&mut self, values: &SegmentValues) -> Vec<Code> {
        self.keys.iter().map(|&key| self.coder.code_of_segment(values, key)).collect()
    }

    /// Adds a survivor allocated in `step`. Returns the index of its group.
    fn add_survivor(&mut self, code: Vec<Code>, step: Option<u32>, bytes: u64) -> usize {
        let number = self.number(code);
        let step = step.and_then(|step| self.row_of_step.get(&step).copied());
        let row = &mut self.rows[number];
        row.survivors.add(bytes);
        if let Some(step) = step {
            *row.by_step.entry(step).or_default() += bytes;
        }
        self.by_step[step.unwrap_or(self.window.steps.len())].add(bytes);
        number
    }

    fn add_freed(&mut self, code: Vec<Code>, bytes: u64) {
        let number = self.number(code);
        self.rows[number].freed.add(bytes);
    }

    fn is_recurring(&self, row: &Row) -> bool {
        self.window.steps.len() > 1 && row.by_step.len() == self.window.steps.len()
    }

    /// Returns the growth without leaks, causes and stacks. Lists the `top` groups that grew most.
    fn growth(self, measured: Measured, top: usize) -> Growth {
        let Measured { start, end, last_peak, balance, end_bytes } = measured;
        let mut numbers = self.ranked();
        let rest = numbers.split_off(top.min(numbers.len()));
        Growth {
            start,
            end,
            last_peak,
            balance,
            steps: self.steps(end_bytes),
            groups: numbers.into_iter().map(|number| self.group(number)).collect(),
            rest_survivors: total(rest.iter().map(|&row| self.rows[row].survivors)),
            rest_freed: total(rest.iter().map(|&row| self.rows[row].freed)),
            rest_groups: rest.len() as u64,
            leaks: Vec::new(),
            causes: Vec::new(),
            recurring: Sum::default(),
            stacks: Vec::new(),
            window: self.window,
        }
    }

    fn steps(&self, ends: Vec<u64>) -> Vec<StepGrowth> {
        let last_end = ends.last().copied().unwrap_or(0);
        let mut steps = Vec::with_capacity(self.by_step.len());
        for (((step, _), end_bytes), survivors) in self.window.steps.iter().zip(ends).zip(&self.by_step) {
            steps.push(StepGrowth { step: Some(*step), end_bytes, survivors: *survivors });
        }
        let between = self.by_step[self.window.steps.len()];
        if between.blocks > 0 {
            steps.push(StepGrowth { step: None, end_bytes: last_end, survivors: between });
        }
        steps
    }

    /// Returns the indices of all groups: growing ones with survivors from every step first, then the others by growth.
    fn ranked(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.rows.len()).collect();
        let net = |row: &Row| i128::from(row.survivors.bytes) - i128::from(row.freed.bytes);
        let rank = |row: &Row| (self.is_recurring(row) && net(row) > 0, net(row), row.survivors.bytes);
        order.sort_by(|&a, &b| {
            let (a, b) = (&self.rows[a], &self.rows[b]);
            rank(b).cmp(&rank(a)).then_with(|| a.code.cmp(&b.code))
        });
        order
    }

    fn group(&self, number: usize) -> GrownGroup {
        let row = &self.rows[number];
        let is_of_all_steps = row.by_step.len() == self.window.steps.len();
        let least = row.by_step.values().min().copied().filter(|_| is_of_all_steps);
        GrownGroup {
            // Names are built only for listed groups: a recording may have a million stacks.
            key: self.keys.iter().zip(&row.code).map(|(&key, &code)| self.coder.label(key, code)).collect(),
            stack: stack_of(self.keys, &row.code),
            survivors: row.survivors,
            freed: row.freed,
            steps: row.by_step.len(),
            least_bytes: least.unwrap_or(0),
            is_recurring: self.is_recurring(row),
        }
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod reserved_tests;
