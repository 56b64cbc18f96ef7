//! Statistics of a device: the effect of each step, block sizes and lifetimes, growth per step, and the limits of the
//! recording's accuracy.

mod bins;
mod steps;
mod tally;
mod growth;
mod notes;

use std::collections::HashSet;

use highwater_snapshots::Category;
use highwater_snapshots::event::EventKind;
use highwater_snapshots::ids::{BlockId, DeviceId, ScopeId};
use highwater_snapshots::trace::Trace;

use super::growth::{Leaks, StepWindow};
use super::peak::Moment;
use crate::grouping::lifetime::Lifetime;
use crate::grouping::matches::Matches;
use crate::index::live::LiveIndex;
use crate::metric::Metric;

pub use bins::{Bin, LifetimeRow, Lived, RangeBin};
pub use growth::{KeptOfStep, LineGrowth};
pub use notes::{TrustNote, trust_notes};
pub use steps::StepRow;

/// Statistics of one device of a recording. Counts only blocks that pass the filter, but all driver calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statistics {
    /// The device whose blocks are counted.
    pub device: DeviceId,
    /// The total whose peak is used. Determines whether requested or rounded bytes are counted.
    pub metric: Metric,
    /// Number of events of the device, including those that concern every device.
    pub events: u64,
    /// Time of the first event, in nanoseconds since the recording's origin; `None` without events or times.
    pub first_time_ns: Option<u64>,
    /// Time of the last event, in nanoseconds since the recording's origin; `None` without events or times.
    pub last_time_ns: Option<u64>,
    /// Every block, over the whole recording and at the peak of the device's total.
    pub blocks: Bin,
    /// The steps, and the ranges of events before, between and after them; together they cover all events.
    pub steps: Vec<StepRow>,
    /// Blocks by size in powers of two, from the smallest to the largest occurring size.
    pub sizes: Vec<RangeBin>,
    /// Blocks by lifetime, in phases and steps.
    pub lifetimes: Vec<LifetimeRow>,
    /// Blocks by lifetime, in events.
    pub lived: Lived,
    /// Blocks allocated in a step and never freed, by category and scope. Groups that belong to a leak come first.
    pub growth: Vec<LineGrowth>,
    /// Allocator statistics.
    pub allocator: AllocatorFigures,
}

/// Counts and bytes of the allocator's work to serve the program's requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AllocatorFigures {
    /// Requested bytes of all blocks.
    pub requested_bytes: u64,
    /// Rounded bytes of all blocks.
    pub allocated_bytes: u64,
    /// Bytes lost to rounding at the peak.
    pub rounding_at_peak: u64,
    /// Number of distinct start addresses of blocks.
    pub addresses: u64,
    /// Segments reserved from the driver during the recording.
    pub segment_allocs: u64,
    /// Segments released.
    pub segment_frees: u64,
    /// Number of times pages were mapped into an expandable segment.
    pub maps: u64,
    /// Number of times pages were unmapped.
    pub unmaps: u64,
    /// Bytes reserved from the driver or mapped.
    pub obtained_bytes: u64,
    /// Bytes of segments that were released or unmapped.
    pub returned_bytes: u64,
    /// Number of times memory was reserved from the driver immediately after other memory was released, because the
    /// device was full or the allocator freed cached memory.
    pub obtained_after_release: u64,
    /// Number of failed requests.
    pub ooms: u64,
}

/// The inputs of the statistics.
#[derive(Clone, Copy, Debug)]
pub struct StatisticsQuery<'a> {
    /// The peak of the device's total.
    pub peak: Moment,
    /// The index of the device's live blocks.
    pub live: &'a LiveIndex,
    /// The blocks to count.
    pub matches: &'a Matches,
    /// The steps over which growth is measured; `None` if there are none.
    pub window: Option<&'a StepWindow>,
}

impl Statistics {
    /// Computes the statistics in one pass over the trace and one parallel pass over its blocks.
    pub fn of(trace: &Trace, question: &StatisticsQuery<'_>) -> Self {
        let StatisticsQuery { peak, live, matches, window } = question;
        let Moment { device, metric, .. } = *peak;
        let (mut steps, mut tally) =
            rayon::join(|| steps::steps(trace, device, matches), || tally::Tally::of(trace, device, metric, matches));
        let at_peak = live.before_position(trace, metric, peak.position());
        let at_peak: Vec<BlockId> = at_peak.into_iter().filter(|id| matches.contains(*id)).collect();
        tally.add_peak(trace, metric, &at_peak);
        let (window, leaking) = leaking(trace, live, metric, (*window, matches));
        let growth = growth::growth(trace, &mut steps, &tally.kept, (&window, &leaking));
        let mut allocator = driver_calls(trace, device);
        allocator.requested_bytes = tally.requested;
        allocator.allocated_bytes = tally.allocated;
        allocator.rounding_at_peak = rounding(trace, &at_peak);
        allocator.addresses = tally.addresses();
        let times = steps.iter().filter_map(|row| row.times_ns);
        Self {
            device,
            metric,
            events: steps.iter().map(|row| row.events).sum(),
            first_time_ns: times.clone().map(|(first, _)| first).min(),
            last_time_ns: times.map(|(_, last)| last).max(),
            blocks: tally.blocks,
            sizes: bins::trimmed(&tally.sizes),
            lifetimes: Lifetime::ALL
                .iter()
                .zip(tally.lifetimes)
                .map(|(&life, bin)| LifetimeRow { life, bin })
                .collect(),
            lived: Lived { by_events: bins::trimmed(&tally.lived), open: tally.open },
            steps,
            growth,
            allocator,
        }
    }
}

/// Returns the steps that are searched for leaks, and the categories and scopes of leaked blocks.
fn leaking(
    trace: &Trace,
    live: &LiveIndex,
    metric: Metric,
    (window, matches): (Option<&StepWindow>, &Matches),
) -> (Vec<u32>, HashSet<(Category, ScopeId)>) {
    let Some(window) = window else { return Default::default() };
    let metric = if metric.is_of_blocks() { metric } else { Metric::Allocated };
    let leaks = Leaks::in_trace(trace, live, metric, window, matches);
    let blocks = leaks.blocks.iter().map(|id| id.0 as usize);
    let places = blocks.map(|row| (trace.blocks.category[row], trace.blocks.scope[row])).collect();
    (window.steps.iter().map(|(step, _)| *step).collect(), places)
}

fn rounding(trace: &Trace, blocks: &[BlockId]) -> u64 {
    let lost = |id: &BlockId| {
        let row = id.0 as usize;
        trace.blocks.allocated[row].saturating_sub(trace.blocks.requested[row])
    };
    blocks.iter().map(lost).fold(0, u64::saturating_add)
}

fn driver_calls(trace: &Trace, device: DeviceId) -> AllocatorFigures {
    let mut figures = AllocatorFigures::default();
    let mut is_after_release = false;
    for (index, kind) in trace.events.kind.iter().enumerate().filter(|(index, _)| trace.events.device[*index] == device)
    {
        let bytes = || trace.segments.range.get(trace.events.subject[index] as usize).map_or(0, |range| range.bytes);
        let (calls, sum, is_release) = match kind {
            EventKind::SegmentAlloc => (&mut figures.segment_allocs, &mut figures.obtained_bytes, false),
            EventKind::SegmentMap => (&mut figures.maps, &mut figures.obtained_bytes, false),
            EventKind::SegmentFree => (&mut figures.segment_frees, &mut figures.returned_bytes, true),
            EventKind::SegmentUnmap => (&mut figures.unmaps, &mut figures.returned_bytes, true),
            EventKind::Alloc | EventKind::FreeRequested | EventKind::FreeCompleted => {
                is_after_release = false;
                continue;
            }
            EventKind::Oom => {
                figures.ooms += 1;
                continue;
            }
            _ => continue,
        };
        *calls += 1;
        *sum = sum.saturating_add(bytes());
        if is_after_release && !is_release {
            figures.obtained_after_release += 1;
        }
        is_after_release = is_release;
    }
    figures
}

#[cfg(test)]
mod tests;
