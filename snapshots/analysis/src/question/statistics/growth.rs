//! Groups the blocks that are allocated in a step and never freed, and marks those that belong to a leak.

use std::collections::{BTreeMap, HashSet};

use highwater_snapshots::Category;
use highwater_snapshots::ids::ScopeId;
use highwater_snapshots::trace::Trace;

use super::steps::StepRow;
use super::tally::Kept;
use crate::question::between::Sum;

/// Memory of one category and module that is never freed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineGrowth {
    /// The category that the blocks have in common.
    pub category: Category,
    /// The module path; empty if unknown.
    pub scope: String,
    /// The sum of the blocks of all steps that are never freed.
    pub total: Sum,
    /// The sum for each step, in order. Steps without such blocks are omitted.
    pub by_step: Vec<KeptOfStep>,
    /// Whether some of this memory belongs to a leak (see [`Leaks`](crate::question::growth::Leaks)).
    pub is_growing: bool,
    /// The minimum of these bytes over the steps of the leak window; 0 unless `is_growing`.
    pub least_bytes: u64,
}

/// Memory allocated in a step and never freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptOfStep {
    /// The index of the step in `Statistics::steps`.
    pub row: usize,
    /// The step number; `None` outside of steps.
    pub step: Option<u32>,
    /// The blocks allocated in this step and never freed.
    pub sum: Sum,
}

/// Groups the blocks in `kept`, and adds the sums to the rows of `steps`. `leaking` contains the categories and
/// scopes of leaked blocks, and `window` the steps that are searched for leaks.
pub(super) fn growth(
    trace: &Trace,
    steps: &mut [StepRow],
    kept: &Kept,
    (window, leaking): (&[u32], &HashSet<(Category, ScopeId)>),
) -> Vec<LineGrowth> {
    let in_window = |row: &StepRow| row.step.is_some_and(|step| window.contains(&step));
    let telling: Vec<usize> = (0..steps.len()).filter(|row| in_window(&steps[*row])).collect();
    let mut groups: Vec<LineGrowth> = Vec::with_capacity(kept.len());
    for ((category, scope), runs) in kept {
        let mut by_row: BTreeMap<usize, Sum> = BTreeMap::new();
        let mut total = Sum::default();
        for (first, sum) in runs {
            let row = steps.partition_point(|row| row.range.end <= *first);
            by_row.entry(row).or_default().join(sum);
            total.join(sum);
        }
        for (row, sum) in &by_row {
            if let Some(step) = steps.get_mut(*row) {
                step.kept.join(sum);
            }
        }
        let least = telling.iter().map(|row| by_row.get(row).map_or(0, |sum| sum.bytes)).min().unwrap_or(0);
        let is_growing = leaking.contains(&(*category, *scope));
        let of_step = |(row, sum)| KeptOfStep { row, step: steps.get(row).and_then(|step| step.step), sum };
        groups.push(LineGrowth {
            category: *category,
            scope: trace.tables.scope_path(*scope),
            total,
            by_step: by_row.into_iter().map(of_step).collect(),
            is_growing,
            least_bytes: if is_growing { least } else { 0 },
        });
    }
    groups.sort_by(|a, b| {
        let rank = |group: &LineGrowth| (group.is_growing, group.least_bytes, group.total.bytes);
        rank(b).cmp(&rank(a)).then_with(|| (a.category, &a.scope).cmp(&(b.category, &b.scope)))
    });
    groups
}
