//! Explains a peak: what uses the memory, the peak without each part, and advice to lower it.

mod layers;
mod composition;
mod parts;
mod idle;
mod state;
mod remedy;
mod peak_context;
mod temporaries;
mod leak;
mod buffers;
mod advice;

use highwater_snapshots::ids::{BlockId, StackId};
use highwater_snapshots::trace::Trace;

use super::between::bytes_of;
use super::coder::Groups;
use super::counterfactual::{Counterfactual, Grouped, absences};
use super::filter::Filter;
use super::final_oom::{final_oom, final_oom_on};
use super::group_key::GroupKey;
use super::live::LiveIndex;
use super::matches::Matches;
use super::metric::Metric;
use super::peak::Moment;
use super::series::Series;

pub use composition::{Composition, PeakPiece};
pub use idle::Idle;
pub use layers::Layers;
pub use parts::{Cause, Removal};
pub use remedy::{Advice, Remedy};

use parts::Parts;

/// The parameters of an explanation.
#[derive(Clone, Copy, Debug)]
pub struct ExplainQuery<'a> {
    /// The total whose peak is explained: one that is a sum over blocks.
    pub metric: Metric,
    /// The keys to group by.
    pub keys: &'a [GroupKey],
    /// Number of groups to list.
    pub top: usize,
    /// The blocks to group.
    pub filter: &'a Filter,
}

/// Blocks of the peak that share all key values, and the peak without all such blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExplainedGroup {
    /// The key values.
    pub key: Vec<String>,
    /// The call stack, if it is one of the keys.
    pub stack: StackId,
    /// Bytes at the peak.
    pub bytes_at_peak: u64,
    /// Number of blocks at the peak.
    pub blocks_at_peak: u64,
    /// The peak without these blocks.
    pub without: Moment,
}

impl ExplainedGroup {
    /// The reduction of the peak, in bytes.
    pub fn saved_bytes(&self, peak: &Moment) -> u64 {
        peak.bytes - self.without.bytes
    }
}

/// The explanation of a peak. Sizes are bytes of the metric unless noted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// The moment and the value of the peak.
    pub peak: Moment,
    /// The five totals at that moment; `None` if the recording contradicts itself.
    pub layers: Option<Layers>,
    /// The groups of blocks at the peak, largest first.
    pub groups: Vec<ExplainedGroup>,
    /// Bytes of the groups that are not listed.
    pub rest_bytes: u64,
    /// Number of groups that are not listed.
    pub rest_groups: u64,
    /// All blocks that pass the filter as one group, if there is a filter.
    pub filtered: Option<ExplainedGroup>,
    /// The parts of the peak to remove, one after another, and the peak left after each.
    pub removals: Vec<Removal>,
    /// Blocks live at the peak and not used again; `None` if the recording has no uses of blocks.
    pub idle: Option<Idle>,
    /// Advice to lower the peak, most effective first.
    pub advice: Vec<Advice>,
}

impl Explanation {
    /// Explains the peak on the device of `series`.
    ///
    /// # Panics
    /// If the metric is not a sum over blocks.
    pub fn of(trace: &Trace, series: &Series, live: &LiveIndex, query: &ExplainQuery<'_>) -> Self {
        assert!(query.metric.is_of_blocks(), "only a metric that is a sum over blocks can be explained");
        let peak = Moment::peak(trace, series, query.metric);
        let at_peak = live.before_position(trace, query.metric, peak.position());
        let matches = (!query.filter.is_empty()).then(|| Matches::of(trace, query.filter));
        let is_counted = |id: BlockId| matches.as_ref().is_none_or(|matches| matches.contains(id));
        let groups = Groups::of(trace, series.device(), query.keys, is_counted);
        let parts = Parts::of(trace, series.device());
        let matching = Grouped::one(trace, is_counted);
        let columns = [&groups.grouped, parts.grouped(), &matching];
        let found = absences(trace, series.device(), query.metric, &columns, |_| false);
        let [of_groups, of_parts, of_matching] = &found[..] else { unreachable!("as many answers as columns") };

        let sums = sums(trace, query.metric, &groups.grouped, &at_peak);
        let moment = |absence: &Counterfactual| after(trace, series, query.metric, absence);
        let group = |number: usize| ExplainedGroup {
            key: groups.names(number),
            stack: groups.stack(number),
            bytes_at_peak: sums[number].0,
            blocks_at_peak: sums[number].1,
            without: moment(&of_groups[number]),
        };
        let mut numbers: Vec<usize> = (0..sums.len()).filter(|&number| sums[number].1 > 0).collect();
        numbers.sort_by_key(|&number| (std::cmp::Reverse(sums[number].0), groups.codes(number)));
        let rest = numbers.split_off(query.top.min(numbers.len()));
        let filtered = matches.as_ref().map(|_| {
            let counted = at_peak.iter().filter(|id| is_counted(**id));
            let bytes = |id: &BlockId| bytes_of(trace, query.metric, *id);
            ExplainedGroup {
                key: Vec::new(),
                stack: StackId::NONE,
                bytes_at_peak: counted.clone().map(bytes).sum(),
                blocks_at_peak: counted.count() as u64,
                without: moment(&of_matching[0]),
            }
        });
        let totals = series.before_position(trace, peak.position());
        let layers = Layers::of(&totals);
        let removals = parts.removals(trace, (series, live), &peak, of_parts);
        let idle = Idle::of(trace, series, &peak, &at_peak, query.top);
        let scene = peak_context::PeakContext {
            trace,
            series,
            peak: &peak,
            totals: &totals,
            at_peak: &at_peak,
            parts: &parts,
            idle: idle.as_ref(),
            failed: final_oom(trace),
            is_cut: final_oom_on(trace, series.device()).is_some(),
            live,
        };
        let advice = advice::advise(&scene, of_parts);
        Self {
            layers,
            groups: numbers.into_iter().map(group).collect(),
            rest_bytes: rest.iter().map(|&number| sums[number].0).sum(),
            rest_groups: rest.len() as u64,
            filtered,
            removals,
            idle,
            advice,
            peak,
        }
    }
}

/// Bytes and number of the blocks `at_peak`, by group.
fn sums(trace: &Trace, metric: Metric, grouped: &Grouped, at_peak: &[BlockId]) -> Vec<(u64, u64)> {
    let mut sums = vec![(0, 0); grouped.groups];
    for &id in at_peak {
        if let Some(sum) = sums.get_mut(grouped.group_of[id.0 as usize] as usize) {
            *sum = (sum.0 + bytes_of(trace, metric, id), sum.1 + 1);
        }
    }
    sums
}

/// The moment of the peak that remains in `absence`.
fn after(trace: &Trace, series: &Series, metric: Metric, absence: &Counterfactual) -> Moment {
    Moment { bytes: absence.bytes, ..Moment::at(trace, series, metric, absence.event) }
}

#[cfg(test)]
mod tests;
