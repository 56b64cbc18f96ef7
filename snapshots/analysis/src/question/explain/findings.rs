//! Collects figures over a whole recording for the parts of a peak that are large enough for advice.

use std::collections::HashSet;
use std::ops::Range;

use hashbrown::HashMap;

use super::recorded::Recorded;
use super::segment_churn::SegmentChurn;
use super::selection::{PeaksWithout, Selection, is_kept_gradient};
use crate::grouping::lifetime::step_of;
use crate::metric::Totals;
use crate::question::between::bytes_of;
use crate::question::growth::Leaks;
use crate::question::peak::Moment;
use highwater_snapshots::ids::{BlockId, ScopeId};
use highwater_snapshots::trace::Trace;
use highwater_snapshots::{Category, Phase, Result};

/// Minimum share of the peak, in percent, that is worth advice.
pub(super) const MIN_PERCENT: u64 = 5;
/// Minimum share for activations and optimizer state, in percent, which is higher since every training step has some.
pub(super) const MIN_PERCENT_OF_STATE: u64 = 10;

/// Returns whether `bytes` are at least `percent` percent of `peak`, and not 0.
pub(super) fn is_at_least(bytes: u64, peak: u64, percent: u64) -> bool {
    bytes > 0 && u128::from(bytes) * 100 >= u128::from(peak) * u128::from(percent)
}

pub(super) struct LeakAtPeak {
    pub(super) leaks: Leaks,
    /// Bytes of leaked blocks that are live at the peak: all of them, and those from earlier steps.
    pub(super) bytes: u64,
    pub(super) earlier_bytes: u64,
    /// The first and the last of the earlier steps.
    pub(super) steps: (u32, u32),
    /// The peak without the blocks that earlier steps leaked. Blocks leaked in the step of the peak are included, since
    /// the step may still use them.
    pub(super) without: Moment,
}

/// Figures over the whole recording that the explanation of a peak and the advice need.
pub(super) struct Findings {
    /// The peaks without each group of the query.
    pub(super) of_groups: PeaksWithout,
    /// The peaks without the blocks of each category and phase.
    pub(super) of_causes: PeaksWithout,
    /// The peak without the blocks that pass the query's filter; `None` without a filter.
    pub(super) of_matching: Option<Moment>,
    /// The peaks without the gradients that outlive their phase, without the optimizer state, and without the
    /// activations of each line. `None` if the share of the peak is too small.
    pub(super) of_kept_gradients: Option<Moment>,
    pub(super) of_state: Option<Moment>,
    pub(super) of_activation_lines: Option<PeaksWithout>,
    /// The leaks; `None` if nothing leaks, or too little of the leaked memory is live at the peak.
    pub(super) leak: Option<LeakAtPeak>,
    pub(super) churn: SegmentChurn,
    pub(super) at_active_peak: Totals,
    pub(super) has_backward: bool,
    /// Whether the optimizer could update each parameter during backward, but does not.
    pub(super) could_step_in_backward: bool,
    /// The events of an incomplete optimizer phase at the end of the recording.
    pub(super) unfinished_optimizer: Option<Range<u64>>,
    /// Number of operations by module; empty if activations are few.
    pub(super) operations: HashMap<ScopeId, u64>,
}

impl Findings {
    /// Computes the peaks without `groups`, without the blocks of `matching`, and without the parts of the peak that
    /// are large enough for advice. `trace` contains the blocks live at the peak.
    pub(super) fn gather<'a>(
        recorded: &mut Recorded<'_, '_>,
        (groups, matching): (Selection<'a>, Option<Selection<'a>>),
        (trace, peak, at_peak): (&Trace, &Moment, &[BlockId]),
    ) -> Result<Self> {
        let bytes = |is_one: &dyn Fn(BlockId) -> bool| -> u64 {
            at_peak.iter().filter(|id| is_one(**id)).map(|id| bytes_of(trace, peak.metric, *id)).sum()
        };
        let is_of = |category: Category| move |id: BlockId| trace.blocks.category[id.0 as usize] == category;
        let enough = |bytes: u64, percent: u64| is_at_least(bytes, peak.bytes, percent);
        let has_activations = enough(bytes(&is_of(Category::Activation)), MIN_PERCENT_OF_STATE);
        let has_state = enough(bytes(&is_of(Category::OptimizerState)), MIN_PERCENT_OF_STATE);
        let has_gradients = enough(bytes(&|id| is_kept_gradient(trace, id)), MIN_PERCENT);

        let mut selections = vec![groups, Selection::Causes];
        let mut ask = |selection: Option<Selection<'a>>| {
            selection.map(|selection| {
                selections.push(selection);
                selections.len() - 1
            })
        };
        let matching = ask(matching);
        let gradients = ask(has_gradients.then_some(Selection::KeptGradients));
        let state = ask(has_state.then_some(Selection::Category(Category::OptimizerState)));
        let lines = ask(has_activations.then_some(Selection::ActivationLines));
        let mut found = recorded.without(&selections)?;
        let one = |number: Option<usize>| number.map(|number| *found[number].without_all());
        let (of_matching, of_kept_gradients, of_state) = (one(matching), one(gradients), one(state));
        // Removed from the back, so that the indexes of the others stay valid.
        let of_activation_lines = lines.map(|number| found.remove(number));
        let (of_causes, of_groups) = (found.remove(1), found.remove(0));
        Ok(Self {
            of_groups,
            of_causes,
            of_matching,
            of_kept_gradients,
            of_state,
            of_activation_lines,
            leak: find_leak(recorded, (trace, peak, at_peak))?,
            churn: recorded.churn()?,
            at_active_peak: recorded.at_active_peak()?,
            has_backward: recorded.has_phase(Phase::Backward),
            could_step_in_backward: recorded.could_step_in_backward(),
            unfinished_optimizer: recorded.unfinished_optimizer()?,
            operations: if has_activations { recorded.source.count_operations()? } else { HashMap::new() },
        })
    }
}

/// Returns the leaks of the recording; `None` without a complete step, or if too little of the memory that leaked in
/// earlier steps is live at the peak.
fn find_leak(
    recorded: &mut Recorded<'_, '_>,
    (trace, peak, at_peak): (&Trace, &Moment, &[BlockId]),
) -> Result<Option<LeakAtPeak>> {
    let Some(leaks) = recorded.leaks()? else { return Ok(None) };
    let mut kept = leaks.among(trace, at_peak);
    let step = |id: &BlockId| step_of(trace, &trace.blocks.get(*id));
    let sum = |blocks: &[BlockId]| blocks.iter().map(|id| bytes_of(trace, peak.metric, *id)).sum();
    let bytes = sum(&kept);
    kept.retain(|id| step(id).is_some_and(|at| Some(at) != peak.step));
    let earlier_bytes = sum(&kept);
    if !is_at_least(earlier_bytes, peak.bytes, MIN_PERCENT) {
        return Ok(None);
    }
    let steps = kept.iter().filter_map(step);
    let steps = steps.fold((u32::MAX, 0), |(first, last), step| (first.min(step), last.max(step)));
    let events: HashSet<u64> = kept.iter().filter_map(|id| trace.alloc_number(*id)).collect();
    let without = *recorded.without(&[Selection::Allocated(events)])?[0].without_all();
    Ok(Some(LeakAtPeak { leaks, bytes, earlier_bytes, steps, without }))
}
