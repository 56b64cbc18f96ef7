//! Divides the lowest peak into categories, and computes over how many ranks its optimizer state would have to be
//! sharded.

use std::collections::BTreeMap;

use highwater_analysis::{LiveIndex, Metric, Series};
use highwater_snapshots::{Category, Trace};

/// Returns the requested bytes of each category at the peak of `trace`, the largest first.
pub fn composition(trace: &Trace) -> Vec<(String, u64)> {
    let series = Series::build(trace, trace.main_device());
    let Some(event) = series.peak(trace, Metric::Requested).1 else { return Vec::new() };
    let live = LiveIndex::build(trace, trace.main_device()).after(trace, Metric::Requested, event);
    let mut bytes: BTreeMap<&'static str, u64> = BTreeMap::new();
    for block in live {
        let row = block.0 as usize;
        *bytes.entry(trace.blocks.category[row].name()).or_default() += trace.blocks.requested[row];
    }
    let mut all: Vec<(String, u64)> = bytes.into_iter().map(|(name, bytes)| (name.to_owned(), bytes)).collect();
    all.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    all
}

/// Returns over how many ranks the optimizer state would have to be sharded so that a peak of `requested` bytes, which
/// consists of `parts`, fits into `capacity`, and the resulting peak; `None` if no number is sufficient.
pub fn sharded(parts: &[(String, u64)], requested: u64, capacity: u64) -> Option<(u64, u64)> {
    let state = parts.iter().find(|(name, _)| name == Category::OptimizerState.name())?.1;
    let rest = requested.saturating_sub(state);
    let room = capacity.checked_sub(rest).filter(|room| *room > 0)?;
    let ranks = state.div_ceil(room);
    (ranks > 1).then(|| (ranks, rest + state.div_ceil(ranks)))
}
