//! Finds the leaks of a recording that is read in parts.

use std::collections::HashSet;
use std::ops::Range;

use highwater_snapshots::Result;
use highwater_snapshots::format::Windows;
use highwater_snapshots::ids::{BlockId, DeviceId};
use highwater_snapshots::trace::Trace;

use crate::device_spans::ActiveSpan;
use crate::growth::{Leaks, StepFacts, StepWindow, Steps};
use crate::live::LiveIndex;
use crate::metric::Metric;

/// Events that are read at once.
const EVENTS: u64 = 1 << 20;

/// The leaks over the steps by which growth is measured, if any of them is whole; `spans` are all of the recording.
///
/// # Errors
///
/// Fails if a window cannot be read.
pub(super) fn leaks(
    windows: &Windows,
    (device, metric): (DeviceId, Metric),
    spans: &[ActiveSpan],
) -> Result<Option<Leaks>> {
    let steps = Steps::of(spans, windows.events(), windows.base());
    let last = steps.last().into_iter();
    let facts: Vec<StepFacts> = last.map(|events| facts(windows, device, events)).collect::<Result<_>>()?;
    let Some(steps) = StepWindow::among(steps, &facts, None, None).ok().filter(StepWindow::is_whole) else {
        return Ok(None);
    };
    let [start, end] = [steps.events().start as u64, steps.events().end as u64];
    let (before, after) = (Live::at(windows, device, metric, start)?, Live::at(windows, device, metric, end)?);
    let is_born = |id: &BlockId| after.trace.alloc_number(*id).is_some_and(|event| event >= start);
    let survivors: Vec<BlockId> = after.blocks.iter().copied().filter(is_born).collect();
    let kept: HashSet<Identity> = after.blocks.iter().map(|id| identity(&after.trace, *id)).collect();
    let is_gone = |id: &BlockId| !kept.contains(&identity(&before.trace, *id));
    let freed: Vec<BlockId> = before.blocks.iter().copied().filter(is_gone).collect();
    Ok(Some(Leaks::among(metric, &steps, [(&after.trace, &survivors), (&before.trace, &freed)])))
}

/// What `device` does in `events`.
fn facts(windows: &Windows, device: DeviceId, events: Range<usize>) -> Result<StepFacts> {
    let (mut next, end) = (events.start as u64, events.end as u64);
    let mut facts = StepFacts::default();
    while next < end {
        let part = windows.window(next..end.min(next + EVENTS))?;
        facts = facts.and(StepFacts::of(&part, device, 0..part.events.len()));
        next += EVENTS;
    }
    Ok(facts)
}

/// The blocks that are live before an event.
struct Live {
    trace: Trace,
    blocks: Vec<BlockId>,
}

impl Live {
    fn at(windows: &Windows, device: DeviceId, metric: Metric, event: u64) -> Result<Self> {
        let trace = windows.window(event..event)?;
        let blocks = LiveIndex::build(&trace, device).before_position(&trace, metric, 0);
        Ok(Self { trace, blocks })
    }
}

/// The event that allocated a block, or the address of one from before the recording.
type Identity = (Option<u64>, u64);

fn identity(trace: &Trace, id: BlockId) -> Identity {
    let event = trace.alloc_number(id);
    (event, if event.is_none() { trace.blocks.address[id.0 as usize] } else { 0 })
}
