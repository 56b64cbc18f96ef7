//! Finds the blocks that are allocated or freed in a range of events, by comparing the live blocks before and after it.

use std::collections::HashSet;
use std::ops::Range;

use highwater_snapshots::Result;
use highwater_snapshots::ids::{BlockId, DeviceId};

use crate::grouping::filter::Filter;
use crate::metric::Metric;
use crate::question::source::{Source, Window};

/// The blocks that are live before or after a range of events, and pass a filter.
pub(super) struct Ends<'a> {
    /// A window that contains the blocks live before the events.
    pub before: Window<'a>,
    /// The blocks of `before` that the events free, in block order.
    pub freed: Vec<BlockId>,
    /// The blocks of `before` that are live after the events.
    pub kept: Vec<BlockId>,
    /// A window that contains the blocks live after the events.
    pub after: Window<'a>,
    /// The blocks of `after` that the events allocate, in block order.
    pub born: Vec<BlockId>,
}

impl<'a> Ends<'a> {
    pub(super) fn of(
        source: &'a Source<'a>,
        (device, metric): (DeviceId, Metric),
        filter: &Filter,
        events: &Range<u64>,
    ) -> Result<Self> {
        let live_at = |event: u64| -> Result<(Window<'a>, Vec<BlockId>)> {
            let window = source.window(event..event)?;
            let mut blocks = window.index(device).live.before_position(&window.trace, metric, window.events.start);
            let mut filter = filter.on(&window.trace);
            blocks.retain(|id| filter.matches(*id));
            drop(filter);
            Ok((window, blocks))
        };
        let ((before, live_before), (after, live_after)) = (live_at(events.start)?, live_at(events.end)?);
        let is_born = |id: &BlockId| after.trace.alloc_number(*id).is_some_and(|event| event >= events.start);
        let born: Vec<BlockId> = live_after.iter().copied().filter(is_born).collect();
        let is_one_trace = std::ptr::eq(&*before.trace, &*after.trace);
        let identity = |window: &Window<'_>, id: BlockId| {
            let event = window.trace.alloc_number(id);
            match (event, is_one_trace) {
                (None, true) => (None, u64::from(id.0)),
                (None, false) => (None, window.trace.blocks.address[id.0 as usize]),
                (event, _) => (event, 0),
            }
        };
        let live: HashSet<Identity> = live_after.iter().map(|id| identity(&after, *id)).collect();
        let (kept, freed) = live_before.into_iter().partition(|id| live.contains(&identity(&before, *id)));
        Ok(Self { before, freed, kept, after, born })
    }
}

/// Identifies a block in any window: the event that allocated it, or for a block from before the recording, its row or
/// address.
type Identity = (Option<u64>, u64);
