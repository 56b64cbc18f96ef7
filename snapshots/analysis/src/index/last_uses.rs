//! Finds the last recorded use of each block.
//!
//! Needs a recording with use events. A block that is freed in the recording is idle after its last use, or after its
//! allocation if it is never used. A block that is still live at the end, or at the failed request with which the
//! recording ends, might have been used later. It therefore counts as idle only if a whole step follows its last use,
//! another step begins, and the block is used in neither.

use crate::index::device_spans::device_steps;
use highwater_snapshots::Category;
use highwater_snapshots::ids::{DeviceId, EventId};
use highwater_snapshots::trace::Trace;

use super::final_oom::final_oom;

/// The last uses of the blocks of one device.
#[derive(Clone, Copy, Debug)]
pub struct LastUses<'a> {
    trace: &'a Trace,
    device: DeviceId,
    /// The first event of the last step that is followed by another step. A block that is never freed counts as idle if
    /// no event from this one on uses it. `None` with fewer than two steps.
    kept_until: Option<EventId>,
    /// The failed request at the end of the recording. Its exception frees blocks that would have been used later.
    failed: Option<EventId>,
}

impl<'a> LastUses<'a> {
    /// Prepares the last uses on `device`; `None` if no uses are recorded on it.
    pub fn of(trace: &'a Trace, device: DeviceId) -> Option<Self> {
        let mut used = trace.blocks.last_use.iter().zip(&trace.blocks.device);
        if !trace.records_uses() || !used.any(|(event, of)| event.is_some() && *of == device) {
            return None;
        }
        let steps = device_steps(trace, device);
        let whole = steps.len().checked_sub(2).and_then(|row| trace.spans.step_range(steps[row]));
        Some(Self { trace, device, kept_until: whole.map(|events| EventId(events.start)), failed: final_oom(trace) })
    }

    /// Returns the event after which the block in `row` is idle: its last use, or its allocation if it is never used
    /// ([`EventId::NONE`] for a baseline block). `None` if the block cannot be shown to be idle.
    pub fn end(&self, row: usize) -> Option<EventId> {
        let blocks = &self.trace.blocks;
        let (last_use, alloc) = (blocks.last_use[row], blocks.alloc[row]);
        // Kernels use a workspace without naming it.
        let is_known = last_use.is_some() || blocks.category[row] != Category::Workspace;
        if blocks.device[row] != self.device || !is_known {
            return None;
        }
        let end = if last_use.is_some() { last_use } else { alloc };
        let is_over = || match (self.kept_until, end.index()) {
            (Some(until), Some(end)) => end < until.0 as usize,
            (until, _) => until.is_some(),
        };
        let freed = blocks.free_requested[row];
        let is_freed = freed.is_some() && self.failed.is_none_or(|failed| freed < failed);
        (is_freed || is_over()).then_some(end)
    }
}
