//! Finds the source lines whose allocations stay live in every step, by call stack, whatever the category.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::grouping::breakdown::{Breakdown, Grouping};
use crate::grouping::filter::Filter;
use crate::grouping::lifetime::{Lifetime, step_of};
use crate::grouping::matches::Matches;
use crate::grouping::siblings::Siblings;
use crate::index::device_spans::ActiveSpan;
use crate::index::live::LiveIndex;
use crate::metric::Metric;
use crate::question::between::{Question, Sum, blocks_between, bytes_of};
use crate::question::peak::{Moment, Query};
use crate::question::phases::StageRow;
use crate::question::source::Source;
use crate::stacks::frames::{leading_frame, stack_lines};
use highwater_snapshots::Result;
use highwater_snapshots::ids::{BlockId, DeviceId, ScopeId, StackId, StringId};
use highwater_snapshots::line_text::unique_suffixes;
use highwater_snapshots::trace::Trace;
use highwater_snapshots::units::{count_of, format_bytes};

use super::ends::Ends;
use super::steps::Steps;
use super::window::{Between, StepRange, StepWindow};

/// A source line that leaks: some of its blocks survive from every step of a window of at least two steps, and the
/// bytes of these survivors exceed those of its older blocks that are freed in the window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leak {
    /// The source line that represents the stacks. If several lines alternate, the line that calls them. Without
    /// stacks, the module or the operation.
    pub line: String,
    /// The stack with the most surviving bytes; [`StackId::NONE`] if the blocks have no stacks.
    pub stack: StackId,
    /// Blocks allocated in the window and live at its end, without the blocks that replace freed blocks of the same
    /// stack. An output that is live until the next step replaces it is not a leak.
    pub kept: Sum,
    /// Number of steps with such blocks.
    pub steps: usize,
    /// Average bytes of these blocks in a step that has any of them, rounded up.
    pub bytes_per_step: u64,
}

/// The leaks of a window of steps.
#[derive(Clone, Debug, Default)]
pub struct Leaks {
    /// The source lines that leak, the largest leak first.
    pub lines: Vec<Leak>,
    /// The blocks that these lines leak.
    pub blocks: HashSet<BlockId>,
    /// The origins of the leaked blocks.
    places: HashSet<Place>,
    /// The last whole step; `None` between idle moments.
    last_step: Option<u32>,
}

/// The origin of blocks: their stack, or without one their module and operation.
type Place = (StackId, ScopeId, StringId);

#[derive(Default)]
struct Tally {
    blocks: Vec<Survivor>,
    kept: Sum,
    /// The sizes of older blocks that are freed, and their sum.
    freed: Vec<u64>,
    freed_bytes: u64,
    steps: HashSet<u32>,
}

#[derive(Clone, Copy)]
struct Survivor {
    id: BlockId,
    bytes: u64,
    /// The step that allocated the block; `None` outside of the steps of the window.
    step: Option<u32>,
}

impl Tally {
    /// Returns the survivors without those that replace freed blocks. For each freed block, the last survivor of the
    /// nearest size is removed.
    fn added(&self) -> impl Iterator<Item = &Survivor> {
        let mut by_size: BTreeMap<u64, Vec<&Survivor>> = BTreeMap::new();
        for survivor in &self.blocks {
            by_size.entry(survivor.bytes).or_default().push(survivor);
        }
        let mut freed = self.freed.clone();
        freed.sort_unstable_by_key(|bytes| std::cmp::Reverse(*bytes));
        for bytes in freed {
            let near = [by_size.range(..bytes).next_back(), by_size.range(bytes..).next()];
            let nearest = near.into_iter().flatten().map(|(size, _)| *size).min_by_key(|size| size.abs_diff(bytes));
            let Some(nearest) = nearest else { break };
            if let Some(survivors) = by_size.get_mut(&nearest)
                && survivors.pop().is_some()
                && survivors.is_empty()
            {
                by_size.remove(&nearest);
            }
        }
        by_size.into_values().flatten()
    }

    /// Returns whether more bytes survive than are freed. If each step replaces the memory of the previous one, both
    /// are equal.
    fn grows(&self) -> bool {
        self.kept.bytes > self.freed_bytes
    }

    /// Returns whether blocks survive from every step, and exceed the freed blocks.
    fn leaks(&self, window: &StepWindow) -> bool {
        window.is_every(&self.steps) && self.grows()
    }
}

/// The sum of tallies, without their lists of blocks.
fn whole<'a>(tallies: impl Iterator<Item = &'a Tally>) -> Tally {
    let mut whole = Tally::default();
    for tally in tallies {
        whole.kept = whole.kept.plus(tally.kept);
        whole.freed_bytes = whole.freed_bytes.saturating_add(tally.freed_bytes);
        whole.steps.extend(&tally.steps);
    }
    whole
}

/// Whether tallies leak together: the growing ones have blocks from every step, and the sum of all tallies grows.
fn leak_together<'a>(tallies: impl Iterator<Item = &'a Tally> + Clone, window: &StepWindow) -> bool {
    whole(tallies.clone().filter(|tally| tally.grows())).leaks(window) && whole(tallies).grows()
}

/// A line of user code that occurs in the stacks of several origins.
struct Caller {
    line: String,
    /// Number of lines of user code between this line and the outermost frame.
    depth: usize,
    /// The origins with the line in their stacks, as indices into the searched list.
    rows: Vec<usize>,
}

impl Leaks {
    /// The leaks of requested memory of `device` over the steps for which growth is measured by default; `None` without
    /// complete steps, or if reading fails.
    pub fn of_all_steps(source: &Source<'_>, device: DeviceId) -> Option<Self> {
        let window = StepWindow::of(source, device, StepRange::default()).ok()?.ok().filter(StepWindow::is_whole)?;
        Self::of(source, (device, Metric::Requested), &window, &Filter::default()).ok()
    }

    /// The leaks of `device` among the blocks that pass `filter`, over the steps of `window`.
    ///
    /// # Errors
    /// Fails if a window of the recording cannot be read.
    pub fn of(
        source: &Source<'_>,
        (device, metric): (DeviceId, Metric),
        window: &StepWindow,
        filter: &Filter,
    ) -> Result<Self> {
        let Ends { before, freed, after, born, .. } = Ends::of(source, (device, metric), filter, &window.events())?;
        Ok(Self::of_survivors(metric, window, [(&after.trace, &born), (&before.trace, &freed)]))
    }

    /// Returns the leaks on the device of `live` among `matches`. `trace` must contain the whole window.
    pub fn in_trace(trace: &Trace, live: &LiveIndex, metric: Metric, window: &StepWindow, matches: &Matches) -> Self {
        let position = |event: u64| event.saturating_sub(trace.start.events) as usize;
        let events = position(window.events().start)..position(window.events().end);
        let chosen = |question| {
            let mut blocks = blocks_between(trace, live, metric, events.clone(), question);
            blocks.retain(|id| matches.contains(*id));
            blocks
        };
        Self::of_survivors(metric, window, [(trace, &chosen(Question::Born)), (trace, &chosen(Question::Freed))])
    }

    /// Returns the leaks among the survivors of a window, given the older blocks freed in it. Each has the trace that
    /// contains its blocks. A window of fewer than two steps has no leaks.
    pub(crate) fn of_survivors(
        metric: Metric,
        window: &StepWindow,
        [(trace, survivors), (trace_of_freed, freed)]: [(&Trace, &[BlockId]); 2],
    ) -> Self {
        if window.steps.len() < 2 {
            return Self::default();
        }
        let numbers: HashSet<u32> = window.steps.iter().map(|(step, _)| *step).collect();
        let mut by_place: HashMap<Place, Tally> = HashMap::new();
        for &id in survivors {
            let tally = by_place.entry(place(trace, id)).or_default();
            let bytes = bytes_of(trace, metric, id);
            let step = window.step_of(trace, id).filter(|step| numbers.contains(step));
            tally.blocks.push(Survivor { id, bytes, step });
            tally.kept.add(bytes);
            tally.steps.extend(step);
        }
        for &id in freed {
            if let Some(tally) = by_place.get_mut(&place(trace_of_freed, id)) {
                let bytes = bytes_of(trace_of_freed, metric, id);
                tally.freed.push(bytes);
                tally.freed_bytes = tally.freed_bytes.saturating_add(bytes);
            }
        }
        // Several stacks of one line are one leak, even if they alternate.
        let mut by_line: HashMap<String, Vec<(Place, Tally)>> = HashMap::new();
        for (place, tally) in by_place {
            by_line.entry(name_of(trace, place)).or_default().push((place, tally));
        }
        let last_step = (window.between == Between::Steps).then(|| window.to());
        let mut leaks = Self { last_step, ..Self::default() };
        let mut others = Vec::new();
        for (line, mut tallies) in by_line {
            if tallies.iter().any(|(_, tally)| tally.leaks(window)) {
                tallies.retain(|(_, tally)| tally.leaks(window));
            } else if leak_together(tallies.iter().map(|(_, tally)| tally), window) {
                tallies.retain(|(_, tally)| tally.grows());
            } else {
                others.extend(tallies);
                continue;
            }
            leaks.push(line, &tallies);
        }
        leaks.push_callers(trace, window, others);
        leaks.lines.sort_by(|a, b| b.kept.bytes.cmp(&a.kept.bytes).then_with(|| a.line.cmp(&b.line)));
        leaks
    }

    /// Finds source lines among `others` that alternate, none of which leaks on its own. Adds the innermost line of
    /// user code that calls all of them.
    fn push_callers(&mut self, trace: &Trace, window: &StepWindow, others: Vec<(Place, Tally)>) {
        if !whole(others.iter().map(|(_, tally)| tally).filter(|tally| tally.grows())).leaks(window) {
            return;
        }
        let mut callers: Vec<Caller> = Vec::new();
        let mut numbers: HashMap<(Option<usize>, String), usize> = HashMap::new();
        for (row, ((stack, ..), _)) in others.iter().enumerate() {
            let lines = stack_lines(&trace.tables, *stack);
            let mut above = None;
            for line in lines.into_iter().rev().filter(|line| line.is_program) {
                let depth = above.map_or(0, |above: usize| callers[above].depth + 1);
                let number = *numbers.entry((above, line.text.clone())).or_insert(callers.len());
                if number == callers.len() {
                    callers.push(Caller { line: line.text, depth, rows: Vec::new() });
                }
                callers[number].rows.push(row);
                above = Some(number);
            }
        }
        callers.sort_by(|a, b| b.depth.cmp(&a.depth).then_with(|| a.line.cmp(&b.line)));
        let mut others: Vec<Option<(Place, Tally)>> = others.into_iter().map(Some).collect();
        for Caller { line, rows, .. } in callers {
            let left = rows.iter().filter_map(|row| others[*row].as_ref().map(|(_, tally)| tally));
            if leak_together(left, window) {
                let tallies = rows.iter().filter_map(|row| others[*row].take());
                let tallies: Vec<_> = tallies.filter(|(_, tally)| tally.grows()).collect();
                self.push(line, &tallies);
            }
        }
    }

    /// The leaks on `device` over the steps for which growth is measured; `None` if no step is complete. `spans`
    /// contains all spans of the recording.
    pub(crate) fn of_spans(
        source: &Source<'_>,
        device: DeviceId,
        metric: Metric,
        spans: &[ActiveSpan],
    ) -> Result<Option<Self>> {
        let window = StepWindow::among(Steps::of(source, device, spans)?, StepRange::default());
        let window = window.ok().filter(StepWindow::is_whole);
        window.map(|window| Self::of(source, (device, metric), &window, &Filter::default())).transpose()
    }

    /// Returns the leaks on `device` over the steps for which growth is measured; `None` if no step is complete. `rows`
    /// must be all rows of the recording.
    ///
    /// # Errors
    /// Fails if a window of the recording cannot be read.
    pub fn of_recording(
        source: &Source<'_>,
        device: DeviceId,
        metric: Metric,
        rows: &[StageRow],
    ) -> Result<Option<Self>> {
        let spans: Vec<ActiveSpan> = rows.iter().map(StageRow::span).collect();
        Self::of_spans(source, device, metric, &spans)
    }

    /// A name for these leaks, such as `leak at train.py:12 step`, or the number of lines that leak.
    pub fn name(&self) -> String {
        match self.lines.as_slice() {
            [leak] => format!("leak at {}", unique_suffixes(&[&leak.line]).join(" ")),
            lines => format!("leaks of {}", count_of(lines.len() as u64, "line")),
        }
    }

    /// The sum of the average growth by each line, such as `48 MiB a step`.
    pub fn rate(&self) -> String {
        let unit = self.last_step.map_or(Between::Idle, |_| Between::Steps).unit();
        format!("{} a {unit}", format_bytes(self.lines.iter().map(|leak| leak.bytes_per_step).sum()))
    }

    /// Returns whether block `id` leaks: it has the origin of a leak, and outlives the step that allocated it, even if
    /// that step is outside the window. A block that is never freed leaks only if no step after the window allocated
    /// it.
    pub fn has(&self, trace: &Trace, id: BlockId) -> bool {
        let block = trace.blocks.get(id);
        let outlives = || match Lifetime::of(trace, &block) {
            Lifetime::Steps => true,
            Lifetime::Kept => self.last_step.is_none_or(|last| step_of(trace, &block).is_none_or(|step| step <= last)),
            _ => false,
        };
        !self.lines.is_empty() && self.places.contains(&place(trace, id)) && outlives()
    }

    /// Returns the blocks of `blocks` that leak.
    pub fn among(&self, trace: &Trace, blocks: &[BlockId]) -> Vec<BlockId> {
        blocks.iter().copied().filter(|id| self.has(trace, *id)).collect()
    }

    /// Returns the bytes of leaks among `blocks`, which are live at `peak`. `None` if this is at most a hundredth of
    /// the
    /// peak, or if the total is not a sum over blocks.
    pub fn bytes_at(&self, trace: &Trace, peak: &Moment, blocks: &[BlockId]) -> Option<u64> {
        let leaking = if peak.metric.is_of_blocks() { self.among(trace, blocks) } else { Vec::new() };
        let bytes = leaking.iter().map(|id| bytes_of(trace, peak.metric, *id)).sum();
        (bytes > peak.bytes / 100).then_some(bytes)
    }

    /// Groups the leaks that are live at `moment` by the keys of `query`. Lists all groups. Does not combine modules.
    pub fn breakdown(&self, trace: &Trace, live: &LiveIndex, moment: &Moment, query: &Query<'_>) -> Breakdown {
        let mut leaking = self.among(trace, &live.before_position(trace, moment.metric, moment.position()));
        let mut filter = query.filter.on(trace);
        leaking.retain(|&id| filter.matches(id));
        let grouping = Grouping { keys: query.keys, beside: &[], top: usize::MAX, siblings: Siblings::Each };
        Breakdown::of(trace, moment.metric, &leaking, &grouping)
    }

    fn push(&mut self, line: String, tallies: &[(Place, Tally)]) {
        let mut kept = Sum::default();
        let mut steps: HashSet<u32> = HashSet::new();
        let mut largest = None;
        for (place, tally) in tallies {
            self.places.insert(*place);
            let mut of_place = 0;
            for Survivor { id, bytes, step } in tally.added() {
                steps.extend(step);
                kept.add(*bytes);
                self.blocks.insert(*id);
                of_place += bytes;
            }
            largest = largest.max(Some((of_place, std::cmp::Reverse(place.0))));
        }
        let stack = largest.map_or(StackId::NONE, |(_, stack)| stack.0);
        let bytes_per_step = kept.bytes.div_ceil(steps.len().max(1) as u64);
        self.lines.push(Leak { line, stack, kept, steps: steps.len(), bytes_per_step });
    }
}

fn place(trace: &Trace, id: BlockId) -> Place {
    let block = trace.blocks.get(id);
    match block.stack {
        StackId::NONE => {
            let op = trace.tables.op(block.op).map_or(StringId::NONE, |op| op.name);
            (StackId::NONE, block.scope, op)
        }
        stack => (stack, ScopeId::NONE, StringId::NONE),
    }
}

fn name_of(trace: &Trace, (stack, scope, op): Place) -> String {
    let tables = &trace.tables;
    match leading_frame(tables, stack) {
        Some(frame) => frame.text(tables),
        None if scope.is_some() => tables.scope_path(scope),
        None if op.is_some() => tables.string(op).to_owned(),
        None => "(no stack recorded)".to_owned(),
    }
}
