//! Finds what a part of a recording leaves and frees, from what is live before and after it.

use std::collections::HashSet;
use std::ops::Range;

use highwater_snapshots::Result;
use highwater_snapshots::format::Windows;
use highwater_snapshots::ids::{BlockId, DeviceId};
use highwater_snapshots::trace::Trace;

use crate::filter::Filter;
use crate::live::LiveIndex;
use crate::matches::Matches;
use crate::metric::Metric;

/// Blocks of a device that are live at a moment and pass a filter, and a window without events that has them.
struct Live {
    trace: Trace,
    blocks: Vec<BlockId>,
}

impl Live {
    fn at(windows: &Windows, device: DeviceId, metric: Metric, filter: &Filter, event: u64) -> Result<Self> {
        let trace = windows.window(event..event)?;
        let mut blocks = LiveIndex::build(&trace, device).before_position(&trace, metric, 0);
        let matches = Matches::of(&trace, filter);
        blocks.retain(|id| matches.contains(*id));
        Ok(Self { trace, blocks })
    }
}

/// The counted blocks that are live before or after some events.
pub(super) struct Ends {
    /// A window that has the blocks live before the events.
    pub before: Trace,
    /// Of them, those that the events free, in block order.
    pub freed: Vec<BlockId>,
    /// Of them, those that are live after the events.
    pub kept: Vec<BlockId>,
    /// A window that has the blocks live after the events.
    pub after: Trace,
    /// Of them, those that the events allocate, in block order.
    pub born: Vec<BlockId>,
}

impl Ends {
    /// The blocks of `device` that pass `filter` before and after `events`.
    ///
    /// # Errors
    ///
    /// Fails if a window cannot be read.
    pub(super) fn of(
        windows: &Windows,
        (device, metric): (DeviceId, Metric),
        filter: &Filter,
        events: &Range<u64>,
    ) -> Result<Self> {
        let before = Live::at(windows, device, metric, filter, events.start)?;
        let after = Live::at(windows, device, metric, filter, events.end)?;
        let is_born = |id: &BlockId| after.trace.alloc_number(*id).is_some_and(|event| event >= events.start);
        let born: Vec<BlockId> = after.blocks.iter().copied().filter(is_born).collect();
        let live: HashSet<Identity> = after.blocks.iter().map(|id| identity(&after.trace, *id)).collect();
        let is_kept = |id: &BlockId| live.contains(&identity(&before.trace, *id));
        let (kept, freed) = before.blocks.iter().copied().partition(is_kept);
        Ok(Self { before: before.trace, freed, kept, after: after.trace, born })
    }
}

/// The event that allocated a block, or the address of one from before the recording.
type Identity = (Option<u64>, u64);

fn identity(trace: &Trace, id: BlockId) -> Identity {
    let event = trace.alloc_number(id);
    (event, if event.is_none() { trace.blocks.address[id.0 as usize] } else { 0 })
}
