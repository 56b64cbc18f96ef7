//! Applies a change to individual blocks of a recording of any length.

use std::ops::ControlFlow;

use highwater_allocator::replay::{BlockOverride, Share};
use highwater_analysis::{LastUses, Source};
use highwater_snapshots::{Result, Trace};

use crate::answers::prediction::{Change, Concerned};

pub(super) struct BlockChanges {
    /// The change of each block, by row; if the recording is not in memory, only of the blocks live at its start.
    pub(super) overrides: Vec<BlockOverride>,
    /// The blocks that are omitted, freed earlier, and scaled, in this order.
    pub(super) concerned: [Concerned; 3],
}

impl BlockChanges {
    pub(super) fn of(source: &Source<'_>, change: &Change, last_uses: Option<&LastUses<'_>>) -> Result<Self> {
        let mut changes = Self::of_rows(source.facts(), 0, change, last_uses);
        if !change.changes_blocks() {
            return Ok(changes);
        }
        changes.concerned = [Concerned::default(); 3];
        let first_event = source.events().start;
        let concerned = |window: &Trace| {
            let first = if window.start.events > first_event { window.first_new_row() } else { 0 };
            Self::of_rows(window, first, change, last_uses).concerned
        };
        let add = |more: [Concerned; 3]| {
            for (all, more) in changes.concerned.iter_mut().zip(more) {
                all.blocks += more.blocks;
                all.bytes += more.bytes;
            }
        };
        source.each_window(concerned, add, &mut |_| ControlFlow::Continue(()))?;
        Ok(changes)
    }

    /// Returns the blocks that `change` affects among those allocated in a window, by event index, in order.
    pub(super) fn of_events(window: &Trace, change: &Change) -> Vec<(u64, BlockOverride)> {
        let Self { overrides, .. } = Self::of_rows(window, 0, change, None);
        let changed = window.blocks.alloc.iter().zip(overrides);
        let changed = changed.filter(|(event, of)| event.is_some() && *of != BlockOverride::default());
        changed.map(|(event, of)| (window.number(*event), of)).collect()
    }

    /// Returns the changes to the blocks of a trace, by row, and the counts of the changed blocks from row `first` on.
    fn of_rows(trace: &Trace, first: usize, change: &Change, last_uses: Option<&LastUses<'_>>) -> Self {
        let mut overrides = vec![BlockOverride::default(); trace.blocks.len()];
        let mut concerned = [Concerned::default(); 3];
        let mut without: Vec<_> = change.without.iter().map(|filter| filter.on(trace)).collect();
        let mut until_last_use: Vec<_> = change.until_last_use.iter().map(|filter| filter.on(trace)).collect();
        let mut scale: Vec<_> = change
            .scale
            .iter()
            .filter_map(|(part, filter)| Some((Share::new(part.numerator, part.denominator)?, filter.on(trace))))
            .collect();
        for id in trace.blocks.ids() {
            let row = id.0 as usize;
            if trace.blocks.device[row] != change.device {
                continue;
            }
            let block_override = &mut overrides[row];
            let mut is_unused = false;
            block_override.is_removed = without.iter_mut().any(|filter| filter.matches(id));
            if !block_override.is_removed {
                let is_shortened = until_last_use.iter_mut().any(|filter| filter.matches(id));
                let end = last_uses.filter(|_| is_shortened).and_then(|uses| uses.end(row));
                // A block that is never used would not be allocated.
                is_unused = end.is_some_and(|end| end == trace.blocks.alloc[row]);
                block_override.ends_after = end.filter(|_| !is_unused).unwrap_or_default();
                let share = scale.iter_mut().find_map(|(share, filter)| filter.matches(id).then_some(*share));
                block_override.share = share.unwrap_or_default();
            }
            let is_shortened = is_unused || block_override.ends_after.is_some();
            let is_concerned = [block_override.is_removed, is_shortened, block_override.share != Share::WHOLE];
            block_override.is_removed |= is_unused;
            for (one, is_so) in concerned.iter_mut().zip(is_concerned) {
                if is_so && row >= first {
                    one.blocks += 1;
                    one.bytes += trace.blocks.requested[row];
                }
            }
        }
        Self { overrides, concerned }
    }
}
