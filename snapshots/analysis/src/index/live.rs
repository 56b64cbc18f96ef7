//! Finds the live blocks after any event without replaying the recording from its start.

use highwater_snapshots::ids::{BlockId, DeviceId, EventId};
use highwater_snapshots::trace::Trace;

use super::ends::Ends;
use crate::metric::Metric;

/// The live blocks of one device at any event.
///
/// Blocks are in allocation order, so the blocks live at some point are those allocated before and freed after it. A
/// pyramid of maxima over the ends finds them in time that depends on the size of the result, not on the length of the
/// recording.
#[derive(Clone, Debug)]
pub struct LiveIndex {
    device: DeviceId,
    /// Blocks by their free-requested event.
    live: Ends,
    /// Blocks by their free-completed event.
    active: Ends,
}

impl LiveIndex {
    /// Builds the index in one parallel pass over the blocks.
    pub fn build(trace: &Trace, device: DeviceId) -> Self {
        let blocks = &trace.blocks;
        let is_ours = |row: usize| blocks.device.get(row) == Some(&device);
        let (live, active) = rayon::join(
            || Ends::build(&blocks.free_requested, is_ours),
            || Ends::build(&blocks.free_completed, is_ours),
        );
        Self { device, live, active }
    }

    /// The device whose blocks are indexed.
    pub fn device(&self) -> DeviceId {
        self.device
    }

    /// Returns the blocks that count towards `metric` after events `0..position`, in block order. If the metric is not
    /// a sum over blocks, returns the active blocks.
    pub fn before_position(&self, trace: &Trace, metric: Metric, position: usize) -> Vec<BlockId> {
        let mut out = Vec::new();
        self.lasting(trace, metric, None, position, |row| out.push(BlockId(row as u32)));
        out
    }

    /// The blocks that count towards `metric` after event `id`, in block order.
    pub fn after(&self, trace: &Trace, metric: Metric, id: EventId) -> Vec<BlockId> {
        self.before_position(trace, metric, id.0 as usize + 1)
    }

    /// Passes to `each`, in block order, the rows of the blocks that count towards `metric` after events `0..position`.
    /// With `from`, only blocks allocated by event `from` or later. Returns the number of entries read in the index of
    /// ends.
    pub(crate) fn lasting(
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
        // A free that was requested before the first event is recorded at the first event.
        let is_start = position == 0 && matches!(metric, Metric::Requested | Metric::Allocated);
        pyramid.reaching(ends, rows, position as u32, &mut |row| {
            let was_waiting = is_start && trace.was_waiting_at_start(BlockId(row as u32));
            if blocks.device[row] == self.device && !was_waiting {
                each(row);
            }
        })
    }

    /// Returns the memory used, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.live.memory_bytes() + self.active.memory_bytes()
    }
}
