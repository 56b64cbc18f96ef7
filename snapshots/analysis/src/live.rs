//! LiveIndex: which blocks hold memory at any event, without walking the recording from its start.

use std::ops::Range;

use highwater_snapshots::ids::{BlockId, DeviceId, EventId};
use highwater_snapshots::trace::Trace;

use super::ends::Ends;
use super::metric::Metric;

/// The live blocks of one device at any event.
///
/// Blocks stand in the order of their alloc events, so those that live at a moment are the ones, among the first so many,
/// that end later. A pyramid of latest ends finds them: a question costs what it answers, whatever lies before.
#[derive(Clone, Debug)]
pub struct LiveIndex {
    device: DeviceId,
    /// By free requested.
    live: Ends,
    /// By free completed.
    active: Ends,
}

impl LiveIndex {
    /// Goes over the blocks once, in parallel.
    pub fn build(trace: &Trace, device: DeviceId) -> Self {
        let blocks = &trace.blocks;
        let is_ours = |row: usize| blocks.device.get(row) == Some(&device);
        let (live, active) = rayon::join(
            || Ends::build(&blocks.free_requested, is_ours),
            || Ends::build(&blocks.free_completed, is_ours),
        );
        Self { device, live, active }
    }

    /// The device.
    pub fn device(&self) -> DeviceId {
        self.device
    }

    /// The blocks that count towards `metric` once events `0..position` have happened, in block order.
    /// Metrics that are not sums over blocks give the active blocks.
    pub fn before_position(&self, trace: &Trace, metric: Metric, position: usize) -> Vec<BlockId> {
        let mut out = Vec::new();
        self.lasting(trace, metric, None, position, |row| out.push(BlockId(row as u32)));
        out
    }

    /// The blocks that count towards `metric` after event `id`, in block order.
    pub fn after(&self, trace: &Trace, metric: Metric, id: EventId) -> Vec<BlockId> {
        self.before_position(trace, metric, id.0 as usize + 1)
    }

    /// The blocks that events `events` made and that count towards `metric` once they have all happened, in block order.
    pub fn born_in(&self, trace: &Trace, metric: Metric, events: Range<usize>) -> Vec<BlockId> {
        let mut out = Vec::new();
        self.lasting(trace, metric, Some(events.start), events.end, |row| out.push(BlockId(row as u32)));
        out
    }

    /// Tells `each` the rows of the blocks, in block order, that count towards `metric` once events `0..position` have
    /// happened: of those alone that were made by event `from` or later, where that is given. Gives the numbers read.
    pub(super) fn lasting(
        &self,
        trace: &Trace,
        metric: Metric,
        from: Option<usize>,
        position: usize,
        mut each: impl FnMut(usize),
    ) -> u64 {
        let blocks = &trace.blocks;
        let position = position.min(trace.events.len());
        let made_before =
            |position: usize| blocks.alloc.partition_point(|alloc| alloc.index().is_none_or(|event| event < position));
        let rows = from.map_or(0, made_before)..made_before(position);
        let (ends, pyramid) = match metric {
            Metric::Requested | Metric::Allocated => (&blocks.free_requested, &self.live),
            _ => (&blocks.free_completed, &self.active),
        };
        // Blocks whose free was requested before the first event have it noted at the first.
        let is_start = position == 0 && matches!(metric, Metric::Requested | Metric::Allocated);
        pyramid.reaching(ends, rows, position as u32, &mut |row| {
            let was_waiting = is_start && trace.was_waiting_at_start(BlockId(row as u32));
            if blocks.device[row] == self.device && !was_waiting {
                each(row);
            }
        })
    }

    /// Bytes of memory that it takes.
    pub fn memory_bytes(&self) -> usize {
        self.live.memory_bytes() + self.active.memory_bytes()
    }
}
