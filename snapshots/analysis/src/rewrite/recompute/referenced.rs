//! The effect of recomputing one call, for recordings with references to its blocks.

use highwater_snapshots::{BlockId, DeviceId, EventId, ScopeId, Trace};

use super::calls::Call;
use super::effect::{Effect, Repeat, repeats};
use super::references::{References, Save};

/// A call of a recomputed module for which references were recorded.
pub(super) struct Referenced<'a> {
    pub(super) trace: &'a Trace,
    pub(super) device: DeviceId,
    pub(super) references: &'a References,
    pub(super) call: &'a Call,
    /// The positions immediately before the first allocation of the call and immediately after its last one.
    pub(super) first: u64,
    pub(super) last: u64,
}

impl Referenced<'_> {
    /// Returns the effect; `inputs` are used if the arguments of the call were not recorded. `None` if the call saves
    /// nothing.
    pub(super) fn effect(
        &self,
        module: ScopeId,
        is_inside: impl Fn(ScopeId) -> bool,
        inputs: impl FnOnce(EventId) -> Vec<BlockId>,
    ) -> Option<Effect> {
        let is_own = |save: &Save| (self.first..=self.last).contains(&save.packed) && is_inside(save.module);
        let between = self.references.saves_between(self.first, self.last);
        let own: Vec<Save> = between.iter().filter(|save| is_own(save)).copied().collect();
        let last_packed = own.last()?.packed;
        let saved: Vec<BlockId> =
            self.call.blocks.iter().copied().filter(|block| self.references.saves_of(*block).any(is_own)).collect();
        let ends = saved.iter().filter_map(|block| Some((*block, self.end(*block, is_own)?))).collect();
        let unpacked = own.iter().filter_map(|save| save.unpacked).min();
        let at = unpacked.and_then(|position| self.references.event_after(position)).unwrap_or_default();
        let released = own.iter().filter_map(|save| save.released).max();
        let kept_until = released.and_then(|position| self.references.event_before(position)).unwrap_or_default();
        let arguments = self.references.inputs(module, self.first);
        let kept = if arguments.is_empty() { inputs(at) } else { arguments.to_vec() };
        let kept = kept.into_iter().filter(|block| self.call.blocks.binary_search(block).is_err()).collect();
        let repeat_ends = saved.iter().filter_map(|block| Some((*block, self.repeat_end(*block, is_own)?))).collect();
        let repeats = self.repeats(&saved, last_packed);
        Some(Effect { module: self.call.module, ends, kept, kept_until, at, repeats, repeat_ends })
    }

    fn freed(&self, block: BlockId) -> EventId {
        self.trace.blocks.free_requested[block.0 as usize]
    }

    /// Returns the event after which forward frees a block that the call saves, because neither the program nor the
    /// graph of another module refers to the block.
    fn end(&self, block: BlockId, is_own: impl Fn(&Save) -> bool) -> Option<EventId> {
        let others = self.references.saves_of(block).filter(|save| !is_own(save)).map(|save| save.released);
        let positions = others.chain([self.references.end_of(block)]);
        let last = positions.collect::<Option<Vec<u64>>>().and_then(|all| all.into_iter().max());
        let freed = self.freed(block).index().and_then(|row| row.checked_sub(1)).map(EventId::from_index);
        // Without a position, it ends as recorded.
        match last.and_then(|position| self.references.event_before(position)) {
            Some(event) => Some(freed.map_or(event, |freed| event.min(freed))),
            None => freed,
        }
    }

    /// Returns the event after which backward frees the recomputed copy of a saved block, if that is before the
    /// original is freed.
    fn repeat_end(&self, block: BlockId, is_own: impl Fn(&Save) -> bool) -> Option<EventId> {
        let own = self.references.saves_of(block).filter(|save| is_own(save));
        let ends: Option<Vec<u64>> = own.map(|save| save.dropped.or(save.released)).collect();
        let event = self.references.event_before(ends?.into_iter().max()?)?;
        Some(event).filter(|event| event.0 + 1 < self.freed(block).0)
    }

    /// Returns the allocations and frees of the recomputation, which ends as soon as all blocks have been saved again.
    fn repeats(&self, saved: &[BlockId], last_packed: u64) -> Vec<Repeat> {
        let Some(end) = self.references.event_before(last_packed) else { return Vec::new() };
        let is_own = |block: BlockId| self.call.blocks.binary_search(&block).is_ok();
        let part = |block: BlockId| is_own(block).then(|| saved.binary_search(&block).is_ok());
        repeats(self.trace, self.device, self.call.first..EventId(end.0.min(self.call.last.0) + 1), part)
    }
}
