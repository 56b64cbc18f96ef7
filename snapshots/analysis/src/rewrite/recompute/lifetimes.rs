//! Finds the last use, in a module's forward, of each block that it saved for backward.

use highwater_snapshots::event::EventKind;
use highwater_snapshots::{BlockId, DeviceId, EventId, ScopeId, Trace};

use super::calls::Call;
use super::effect::block_events;

/// The recorded uses of the blocks of one device, by block.
#[derive(Clone, Debug)]
pub(super) struct Uses {
    /// The index in `events` of the first use of each block.
    first: Vec<u32>,
    events: Vec<EventId>,
}

impl Uses {
    /// Collects the uses on `device`; `None` if none are recorded.
    pub(super) fn of(trace: &Trace, device: DeviceId) -> Option<Self> {
        if !trace.records_uses() {
            return None;
        }
        let all = EventId(0)..EventId::from_index(trace.events.len());
        let of_device = || block_events(trace, device, all.clone()).filter(|(_, kind, _)| *kind == EventKind::Used);
        let mut first = vec![0_u32; trace.blocks.len() + 1];
        of_device().for_each(|(_, _, block)| first[block.0 as usize + 1] += 1);
        for row in 1..first.len() {
            first[row] += first[row - 1];
        }
        let mut next = first.clone();
        let mut events = vec![EventId::NONE; first.last().map_or(0, |count| *count as usize)];
        for (event, _, block) in of_device() {
            let place = &mut next[block.0 as usize];
            events[*place as usize] = event;
            *place += 1;
        }
        (!events.is_empty()).then_some(Self { first, events })
    }

    /// The uses of `block`, in order.
    pub(super) fn of_block(&self, block: BlockId) -> &[EventId] {
        let row = block.0 as usize;
        &self.events[self.first[row] as usize..self.first[row + 1] as usize]
    }

    /// Returns the first use of `block` from event `start` on; `None` if there is none.
    pub(super) fn first_from(&self, block: BlockId, start: EventId) -> Option<EventId> {
        let uses = self.of_block(block);
        uses.get(uses.partition_point(|event| *event < start)).copied()
    }

    /// Returns the last use of `block` before event `end`; `None` if there is none.
    pub(super) fn last_before(&self, block: BlockId, end: EventId) -> Option<EventId> {
        let uses = self.of_block(block);
        let count = uses.partition_point(|event| *event < end);
        count.checked_sub(1).map(|index| uses[index])
    }
}

/// Returns, for each block of `call`, in order, an event after which no variable of forward refers to it: the last
/// allocation of the innermost call that can hold a reference.
///
/// A block belongs to the module that allocated it, which can return it only to its caller. It is therefore referenced
/// no longer than until the end of the calling module's forward, unless it is the result of that module, which is
/// passed on to the next caller. The result is the last block that is left live.
pub(super) fn holders_end(trace: &Trace, call: &Call, module: ScopeId, is_saved: &[bool]) -> Vec<EventId> {
    let tables = &trace.tables;
    let scope_of = |index: usize| trace.blocks.scope[call.blocks[index].0 as usize];
    let parent = |scope: ScopeId| tables.scopes.get(scope.0 as usize).map_or(ScopeId::NONE, |row| row.parent);
    let is_within = |mut scope: ScopeId, outer: ScopeId| {
        while scope != outer {
            if !scope.is_some() || scope == module {
                return false;
            }
            scope = parent(scope);
        }
        true
    };
    let count = call.blocks.len();
    (0..count)
        .map(|index| {
            let own = scope_of(index);
            let mut holder = if own == module { module } else { parent(own) };
            loop {
                if holder == module {
                    return call.last;
                }
                let end = (index..count).take_while(|next| is_within(scope_of(*next), holder)).last().unwrap_or(index);
                let is_result = !is_saved[index + 1..=end].iter().any(|is_saved| *is_saved);
                if !is_result {
                    return trace.blocks.alloc[call.blocks[end].0 as usize];
                }
                holder = parent(holder);
            }
        })
        .collect()
}
