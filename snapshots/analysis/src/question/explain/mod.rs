//! Explains a peak: the memory in use, the peak without each of its parts, and advice to lower it.

mod layers;
mod cause;
mod composition;
mod selection;
mod in_backward;
mod segment_churn;
mod frontier;
mod recorded;
mod removals;
mod idle;
mod state;
mod reach;
mod remedy;
mod findings;
mod peak_context;
mod in_use;
mod temporaries;
mod leak;
mod churn;
mod buffers;
mod advice;

use highwater_snapshots::Result;
use highwater_snapshots::event::EventKind;
use highwater_snapshots::ids::{BlockId, DeviceId, StackId};
use highwater_snapshots::trace::Trace;

use super::between::bytes_of;
use super::peak::{Moment, Query};
use super::source::{Source, Watch};
use crate::grouping::breakdown::{Group, Grouping, Row, rows};
use crate::grouping::filter::Filter;
use crate::grouping::key_encoder::KeyEncoder;
use crate::index::beside::{Beside, non_block_bytes};
use crate::metric::{Metric, Totals};

pub use cause::{CategoryAndPhase, PeakCause};
pub use composition::{Composition, PeakPiece};
pub use idle::Idle;
pub use layers::Layers;
pub use reach::Reach;
pub use remedy::{Advice, Remedy};
pub use removals::Removal;

use cause::sums_by_cause;
use findings::Findings;
use recorded::Recorded;
use removals::removals;
use selection::{Joined, Selection};

/// Blocks of the peak that share all key values, and the peak without such blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExplainedGroup {
    /// The values of the grouping keys, in order.
    pub key: Vec<String>,
    /// The call stack, if it is one of the keys.
    pub stack: StackId,
    /// Bytes at the peak.
    pub bytes_at_peak: u64,
    /// Number of blocks at the peak.
    pub blocks_at_peak: u64,
    /// The peak if no blocks of the recording with these key values had been allocated.
    pub without: Moment,
    /// The key values of each of the identical modules combined into this group; empty if none were combined.
    pub members: Vec<Vec<String>>,
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
    /// The peak: its position in the recording, and its value.
    pub peak: Moment,
    /// The five totals at the peak as layers; `None` if the recording is inconsistent.
    pub layers: Option<Layers>,
    /// The bytes of `reserved` and `device_used` outside of blocks at the peak.
    pub beside: Vec<(Beside, u64)>,
    /// The groups of blocks at the peak, largest first.
    pub groups: Vec<ExplainedGroup>,
    /// Bytes of the groups that are not listed.
    pub rest_bytes: u64,
    /// Number of groups that are not listed.
    pub rest_groups: u64,
    /// All blocks that pass the filter, as one group; `None` without a filter.
    pub filtered: Option<ExplainedGroup>,
    /// The parts of the peak to remove, one after another, and the peak that remains after each.
    pub removals: Vec<Removal>,
    /// Blocks live at the peak but not used again; `None` if the recording has no use events, or is too long.
    pub idle: Option<Idle>,
    /// Advice to lower the peak, most effective first.
    pub advice: Vec<Advice>,
    /// The part of the run that the peak, and the peaks without each group, cover.
    pub reach: Reach,
    /// Number of failed requests on the device.
    pub failed_requests: u64,
}

/// Maximum number of events read after the peak; an optimizer step has fewer.
const EVENTS_FROM_PEAK: u64 = 1 << 19;

impl Explanation {
    /// Explains the peak of `metric` on `device`.
    ///
    /// # Errors
    /// Fails like [`Source::each_window`].
    ///
    /// # Panics
    /// Panics if the metric is not a sum over blocks.
    pub fn of(
        source: &Source<'_>,
        device: DeviceId,
        metric: Metric,
        query: &Query<'_>,
        watch: Watch<'_>,
    ) -> Result<Self> {
        assert!(metric.is_of_blocks(), "the metric is not a sum over blocks");
        let peak = source.peak(device, metric)?;
        let start = peak.number().unwrap_or(source.events().start);
        let window = source.window(start..start + EVENTS_FROM_PEAK)?;
        let (trace, index) = (&*window.trace, window.index(device));
        let (series, live) = (&index.series, &index.live);
        let at_peak = live.before_position(trace, metric, peak.position());
        let idle = Idle::of(source, &peak, query.top)?;
        let recorded = &mut Recorded::new(source, device, metric, watch)?;
        let counted = counted(trace, &at_peak, query.filter);
        let mut coder = KeyEncoder::new(trace);
        let Query { keys, top, siblings, .. } = *query;
        let grouping = Grouping { keys, beside: &[], top, siblings };
        let mut rows = rows(&mut coder, trace, metric, &counted, &grouping);
        let joined =
            rows.iter().flat_map(|row| row.codes.iter().skip(1).map(|codes| (codes.clone(), row.first().to_vec())));
        let joined: Joined = joined.collect();
        let matching = (!query.filter.is_empty()).then_some(Selection::Matching(query.filter));
        let selected = (Selection::Groups { keys: query.keys, filter: query.filter, joined: &joined }, matching);
        let findings = Findings::gather(recorded, selected, (trace, &peak, &at_peak))?;

        let rest = rows.split_off(query.top.min(rows.len()));
        let group = |row: Row| {
            let Group { key, bytes, blocks, stack, members, .. } = row.group(&coder, keys);
            let without = *findings.of_groups.without(row.first());
            ExplainedGroup { key, stack, bytes_at_peak: bytes, blocks_at_peak: blocks, without, members }
        };
        let filtered = findings.of_matching.map(|without| ExplainedGroup {
            key: Vec::new(),
            stack: StackId::NONE,
            bytes_at_peak: counted.iter().map(|id| bytes_of(trace, metric, *id)).sum(),
            blocks_at_peak: counted.len() as u64,
            without,
            members: Vec::new(),
        });
        let totals = series.before_position(trace, peak.position());
        let by_cause = sums_by_cause(trace, metric, &at_peak);
        let removals = removals(recorded, &peak, by_cause, &findings.of_causes)?;
        let failed = recorded.failed;
        let failed_here = failed.filter(|(_, of)| *of == device).map(|(event, _)| event);
        let (_, beside) = non_block_bytes(trace, (series, live), outermost(&totals), peak.position());
        let has_private = advice::free_in_private(&beside).map(|(_, bytes)| bytes).sum::<u64>() >= advice::MIN_BESIDE;
        let pools = if has_private { Some(recorded.pools()?) } else { None };
        let context = peak_context::PeakContext {
            trace,
            beside: &beside,
            pools: pools.as_ref(),
            peak: &peak,
            totals: &totals,
            at_peak: &at_peak,
            idle: idle.as_ref(),
            findings: &findings,
            has_failed: failed.is_some(),
            failed_here,
        };
        let advice = advice::advise(&context);
        let groups: Vec<ExplainedGroup> = rows.into_iter().map(group).collect();
        let moments = [&peak].into_iter().chain(groups.iter().map(|group| &group.without));
        let reach = Reach::of(failed_here, moments.map(Moment::number));
        Ok(Self {
            layers: Layers::of(&totals),
            beside,
            groups,
            rest_bytes: rest.iter().map(|row| row.sum.bytes).sum(),
            rest_groups: rest.len() as u64,
            filtered,
            removals,
            advice,
            reach,
            failed_requests: source.count(device, EventKind::Oom),
            idle,
            peak,
        })
    }
}

/// The outermost total that was recorded.
fn outermost(totals: &Totals) -> Metric {
    if totals.device_used < totals.reserved { Metric::Reserved } else { Metric::DeviceUsed }
}

fn counted(trace: &Trace, blocks: &[BlockId], filter: &Filter) -> Vec<BlockId> {
    let mut matcher = filter.on(trace);
    blocks.iter().copied().filter(|id| matcher.matches(*id)).collect()
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod segment_tests;
#[cfg(test)]
mod temporaries_tests;
#[cfg(test)]
mod in_use_tests;
