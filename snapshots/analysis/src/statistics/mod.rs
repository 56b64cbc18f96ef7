//! Statistics: a device's recording in figures: what each step did, how large blocks are, how long they live, what
//! stays from step to step, and what the numbers rest on.

mod bins;
mod steps;
mod tally;
mod growth;
mod notes;

use std::collections::HashSet;

use serde::Serialize;

use highwater_snapshots::Category;
use highwater_snapshots::event::EventKind;
use highwater_snapshots::ids::{BlockId, DeviceId, ScopeId};
use highwater_snapshots::trace::Trace;

use super::growth::{Leaks, StepWindow};
use super::lifetime::Lifetime;
use super::live::LiveIndex;
use super::matches::Matches;
use super::metric::Metric;
use super::peak::Moment;

pub use bins::{Bin, LifetimeRow, Lived, RangeBin, Sum};
pub use growth::{Growth, KeptOfStep};
pub use notes::{TrustNote, trust_notes};
pub use steps::StepRow;

/// One device of a recording in figures. Of blocks, those that meet the conditions count, and no others; what the
/// driver was asked for counts in any case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Statistics {
    /// The device.
    pub device: DeviceId,
    /// The total whose peak is meant, and by which bytes of blocks count: requested, else rounded ones.
    pub metric: Metric,
    /// Events of the device, with those that concern every device.
    pub events: u64,
    /// Time of the first of them, in nanoseconds since the recording's origin; none without events.
    pub first_time_ns: Option<u64>,
    /// Time of the last.
    pub last_time_ns: Option<u64>,
    /// Every block, over the whole recording and at the peak of the device's total.
    pub blocks: Bin,
    /// What each step did, and what was done before, between and after them. Covers every event.
    pub steps: Vec<StepRow>,
    /// Blocks by size, in powers of two, from the smallest that there is to the largest.
    pub sizes: Vec<RangeBin>,
    /// Blocks by how long they live, in phases and steps.
    pub lifetimes: Vec<LifetimeRow>,
    /// Blocks by how long they live, in events.
    pub lived: Lived,
    /// What was made in a step and never freed, by category and scope; what grows with every step first.
    pub growth: Vec<Growth>,
    /// What the allocator made of it.
    pub allocator: AllocatorFigures,
}

/// What the allocator made of the program's requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct AllocatorFigures {
    /// Bytes asked for, over all blocks.
    pub requested_bytes: u64,
    /// The same after rounding.
    pub allocated_bytes: u64,
    /// Bytes lost to rounding at the peak.
    pub rounding_at_peak: u64,
    /// Different addresses at which blocks began.
    pub addresses: u64,
    /// Segments obtained from the driver during the recording.
    pub segment_allocs: u64,
    /// Segments given back.
    pub segment_frees: u64,
    /// Times that pages were mapped into an expandable segment.
    pub maps: u64,
    /// Times that pages were unmapped.
    pub unmaps: u64,
    /// Bytes obtained and mapped.
    pub obtained_bytes: u64,
    /// Bytes given back and unmapped.
    pub returned_bytes: u64,
    /// Times that memory was obtained from the driver right after some was given back: the driver had none left, or
    /// the allocator tidied up.
    pub obtained_after_release: u64,
    /// Requests that failed.
    pub ooms: u64,
}

/// What statistics are made of.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// The peak of the device's total.
    pub peak: Moment,
    /// The live blocks of the device.
    pub live: &'a LiveIndex,
    /// The blocks that count.
    pub matches: &'a Matches,
}

impl Statistics {
    /// Walks the trace once, and its blocks once, in parallel.
    pub fn of(trace: &Trace, question: &Question<'_>) -> Self {
        let Question { peak, live, matches } = question;
        let Moment { device, metric, .. } = *peak;
        let (mut steps, mut tally) =
            rayon::join(|| steps::steps(trace, device, matches), || tally::Tally::of(trace, device, metric, matches));
        let at_peak = live.before_position(trace, metric, peak.position());
        let at_peak: Vec<BlockId> = at_peak.into_iter().filter(|id| matches.contains(*id)).collect();
        tally.add_peak(trace, metric, &at_peak);
        let (window, leaking) = leaking(trace, live, metric, matches);
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

/// The steps in which leaks are looked for, and the categories and scopes of the blocks that leaks keep.
fn leaking(
    trace: &Trace,
    live: &LiveIndex,
    metric: Metric,
    matches: &Matches,
) -> (Vec<u32>, HashSet<(Category, ScopeId)>) {
    let Ok(window) = StepWindow::of(trace, live.device(), None, None) else { return Default::default() };
    let metric = if metric.is_of_blocks() { metric } else { Metric::Allocated };
    let leaks = Leaks::of(trace, live, metric, &window, matches);
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
