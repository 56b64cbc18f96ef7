//! Computes the peak without the blocks of a group, for all groups in one pass over the events.
//!
//! Without a group, the total after each event is lower by the group's live bytes. Between two events that allocate or
//! free a block of the group, the group's live bytes are constant, so the largest remaining total of such a range is
//! its largest total minus that constant. A group therefore needs to be updated only when one of its blocks is
//! allocated or freed, and needs only the largest total since its last update. A monotonic stack of totals provides it
//! by binary search, so that the pass takes O(n log n) time for n events, independent of the number of groups.

use highwater_snapshots::format::Extreme;
use highwater_snapshots::ids::{BlockId, DeviceId, EventId};
use highwater_snapshots::trace::Trace;

use super::replay::{Effect, baseline_effects, effects};
use crate::metric::Metric;

/// The group index of a block that belongs to no group.
pub const NO_GROUP: u32 = u32::MAX;

/// The group of every row of the trace's blocks, or [`NO_GROUP`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grouped {
    /// The group of each block, by row. Rows past the end belong to no group.
    pub group_of: Vec<u32>,
    /// Number of groups.
    pub groups: usize,
}

impl Grouped {
    /// Creates a single group of the blocks for which `is_member` is true.
    pub(crate) fn one(trace: &Trace, is_member: impl Fn(BlockId) -> bool) -> Self {
        let of = |id| if is_member(id) { 0 } else { NO_GROUP };
        Self { group_of: trace.blocks.ids().map(of).collect(), groups: 1 }
    }
}

/// The peak without some blocks: the largest remaining total, and the first event after which it is reached; `None` for
/// the state before the first event.
pub type Counterfactual = Extreme<Option<EventId>>;

/// Computes the peak of `metric` on `device`, and the peaks without each group of each of `columns`. Blocks for which
/// `is_gone` is true are always excluded. If `metric` is not a sum over blocks, uses `active` instead.
pub(crate) fn peaks_without(
    trace: &Trace,
    device: DeviceId,
    metric: Metric,
    columns: &[&Grouped],
    is_gone: impl Fn(BlockId) -> bool,
) -> (Counterfactual, Vec<Vec<Counterfactual>>) {
    let mut pass = Pass {
        trace,
        metric,
        total: 0,
        columns: columns.iter().map(|grouped| Column::new(grouped)).collect(),
        unexceeded: Vec::new(),
        is_gone,
    };
    // State 0 precedes the first event; state i follows event i − 1.
    baseline_effects(trace, device, |effect| {
        pass.take(effect, 0);
    });
    pass.reach(0);
    for index in 0..trace.events.len() {
        if trace.events.device[index] != device {
            continue;
        }
        let (before, state) = (pass.total, index as u32 + 1);
        let mut is_touched = false;
        effects(trace, index, |effect| is_touched |= pass.take(effect, state));
        if is_touched || pass.total != before {
            pass.reach(state);
        }
    }
    pass.finish(trace.events.len() as u32 + 1)
}

struct Pass<'a, F> {
    trace: &'a Trace,
    metric: Metric,
    total: u64,
    columns: Vec<Column<'a>>,
    /// States with totals that no later state exceeds, ordered by event. Their totals never increase.
    unexceeded: Vec<(u32, u64)>,
    is_gone: F,
}

struct Column<'a> {
    group_of: &'a [u32],
    rows: Vec<Row>,
}

/// The running state of a group during the pass.
#[derive(Clone, Copy, Default)]
struct Row {
    /// Bytes of the group's live blocks.
    live: u64,
    /// The first state in which the group has these bytes.
    since: u32,
    /// The largest total without the group over all earlier states, and the first state that reaches it.
    best: Extreme,
}

impl<'a> Column<'a> {
    fn new(grouped: &'a Grouped) -> Self {
        Self { group_of: &grouped.group_of, rows: vec![Row::default(); grouped.groups] }
    }
}

impl Row {
    /// Accounts for the states from `since` up to but not including `state`.
    fn update(&mut self, unexceeded: &[(u32, u64)], state: u32) {
        if self.since >= state {
            return;
        }
        let first = unexceeded.partition_point(|(at, _)| *at < self.since);
        if let Some(&(at, total)) = unexceeded.get(first) {
            self.best.raise(total - self.live, at);
        }
        self.since = state;
    }
}

impl<F: Fn(BlockId) -> bool> Pass<'_, F> {
    /// Applies the effect that leads to `state`. Returns whether a counted block was allocated or freed.
    fn take(&mut self, effect: Effect, state: u32) -> bool {
        let Some((row, comes)) = effect.of_block(self.metric) else { return false };
        if (self.is_gone)(BlockId(row as u32)) {
            return false;
        }
        let bytes = self.trace.blocks.sizes(self.metric)[row];
        let change = |bytes_before: u64| if comes { bytes_before + bytes } else { bytes_before - bytes };
        for column in &mut self.columns {
            if let Some(group) = column.group_of.get(row).and_then(|group| column.rows.get_mut(*group as usize)) {
                group.update(&self.unexceeded, state);
                group.live = change(group.live);
            }
        }
        self.total = change(self.total);
        true
    }

    fn reach(&mut self, state: u32) {
        while self.unexceeded.last().is_some_and(|(_, total)| *total < self.total) {
            self.unexceeded.pop();
        }
        self.unexceeded.push((state, self.total));
    }

    fn finish(mut self, end: u32) -> (Counterfactual, Vec<Vec<Counterfactual>>) {
        let at = |bytes: u64, state: u32| Counterfactual { bytes, after: state.checked_sub(1).map(EventId) };
        let of = |row: &mut Row| {
            row.update(&self.unexceeded, end);
            at(row.best.bytes, row.best.after)
        };
        let without = self.columns.iter_mut().map(|column| column.rows.iter_mut().map(of).collect()).collect();
        // The first of these states has the largest total, and is the first that reaches it.
        (self.unexceeded.first().map_or_else(Counterfactual::default, |(state, total)| at(*total, *state)), without)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Series;
    use highwater_notation::trace_from_text;

    /// The largest total without the blocks of a group, computed state by state from the definition.
    fn by_definition(trace: &Trace, metric: Metric, is_left_out: impl Fn(BlockId) -> bool) -> Counterfactual {
        let ends = if matches!(metric, Metric::Requested | Metric::Allocated) {
            &trace.blocks.free_requested
        } else {
            &trace.blocks.free_completed
        };
        let sizes = trace.blocks.sizes(metric);
        let total = |state: usize| -> u64 {
            let lives = |id: &BlockId| {
                let row = id.0 as usize;
                let is_born = trace.blocks.alloc[row].index().is_none_or(|event| event < state);
                let has_ended = ends[row].index().is_some_and(|event| event < state);
                let waited = trace.was_waiting_at_start(*id) && metric != Metric::Active;
                trace.blocks.device[row] == DeviceId(0) && is_born && !has_ended && !waited && !is_left_out(*id)
            };
            trace.blocks.ids().filter(lives).map(|id| sizes[id.0 as usize]).sum()
        };
        let mut most = Counterfactual { bytes: total(0), after: None };
        for state in 1..=trace.events.len() {
            if total(state) > most.bytes {
                most = Counterfactual { bytes: total(state), after: Some(EventId(state as u32 - 1)) };
            }
        }
        most
    }

    const STEPS: &str = "
        baseline w 1000/1024 parameter
        baseline v 30/512 temporary waiting
        alloc a 100/512 activation
        alloc x 700 activation device=1
        alloc b 900/1024 activation
        free_requested a
        free_completed v
        alloc g 400/512 gradient
        free b
        alloc t 800/1024 temporary
        free_completed a
        free t
        alloc t 850/1024 temporary
        free t
        alloc g 50/512 gradient
        free w
        alloc z 1300/1536 activation
    ";

    #[test]
    fn every_absence_is_that_of_the_definition() {
        let trace = trace_from_text(STEPS).unwrap();
        let by_category =
            Grouped { group_of: trace.blocks.category.iter().map(|&category| category as u32).collect(), groups: 12 };
        let by_block = Grouped { group_of: (0..trace.blocks.len() as u32).collect(), groups: trace.blocks.len() };
        for metric in Metric::OF_BLOCKS {
            for gone in [None, Some(BlockId(0)), Some(BlockId(4))] {
                let is_gone = |id: BlockId| Some(id) == gone;
                let columns = [&by_category, &by_block];
                let (peak, found) = peaks_without(&trace, DeviceId(0), metric, &columns, is_gone);
                assert_eq!(peak, by_definition(&trace, metric, is_gone), "{metric}");
                for (category, absence) in found[0].iter().enumerate() {
                    let is_left_out =
                        |id: BlockId| is_gone(id) || trace.blocks.category[id.0 as usize] as usize == category;
                    assert_eq!(*absence, by_definition(&trace, metric, is_left_out), "{metric} without {category}");
                }
                for (block, absence) in found[1].iter().enumerate() {
                    let is_left_out = |id: BlockId| is_gone(id) || id.0 as usize == block;
                    assert_eq!(*absence, by_definition(&trace, metric, is_left_out), "{metric} without block {block}");
                }
            }
        }
    }

    #[test]
    fn the_peak_moves_to_where_the_rest_is_largest() {
        let trace = trace_from_text(
            "
            baseline w 1000
            alloc a 2400 activation
            free a
            alloc g 1000 gradient
            alloc t 2000 temporary
            free t
            free g
            ",
        )
        .unwrap();
        let series = Series::build(&trace, DeviceId(0));
        assert_eq!(series.peak(&trace, Metric::Requested).0, 4000);
        let temporary = |id: BlockId| trace.blocks.category[id.0 as usize] == highwater_snapshots::Category::Temporary;
        let grouped = Grouped::one(&trace, temporary);
        let (_, found) = peaks_without(&trace, DeviceId(0), Metric::Requested, &[&grouped], |_| false);
        // 2000 bytes fewer, yet the peak falls by only 600: it moves to the activation.
        assert_eq!(found, [[Counterfactual { bytes: 3400, after: Some(EventId(0)) }]]);
    }

    #[test]
    fn a_recording_without_events_has_what_was_there_before() {
        let trace = trace_from_text("baseline w 1000\nbaseline v 10").unwrap();
        let grouped = Grouped::one(&trace, |id| id == BlockId(0));
        let found = peaks_without(&trace, DeviceId(0), Metric::Requested, &[&grouped], |_| false);
        let at_start = |bytes| Counterfactual { bytes, after: None };
        assert_eq!(found, (at_start(1010), vec![vec![at_start(10)]]));
    }
}
