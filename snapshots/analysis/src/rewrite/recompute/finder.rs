//! Finds the effects of recomputing each call of a module, from recorded references, or otherwise from lifetimes and
//! uses.

use std::ops::Range;

use highwater_snapshots::event::EventKind;
use highwater_snapshots::trace::Subject;
use highwater_snapshots::{BlockId, Category, DeviceId, EventId, Phase, ScopeId, Trace};

use super::Extent;
use super::calls::{Call, calls};
use super::effect::{Effect, Repeat, block_events, repeats};
use super::lifetimes::{Uses, holders_end};
use super::members::Members;
use super::referenced::Referenced;
use super::references::References;
use super::workspaces;

/// Returns the effect of recomputing each call of `members` on `device`, in the order of the calls. Omits calls that
/// save nothing for backward, because recomputing them has no effect.
pub fn effects(trace: &Trace, device: DeviceId, members: &Members) -> Vec<Effect> {
    let (uses, references) = (Uses::of(trace, device), References::of(trace, device));
    let finder = Finder { trace, device, uses, references, extent: Extent::of(trace) };
    let all = calls(trace, device, members);
    let mut effects: Vec<Effect> =
        all.iter().filter_map(|call| finder.effect(call, members.modules[call.module])).collect();
    if let Some(references) = &finder.references {
        workspaces::correct(trace, device, references, &mut effects);
    }
    effects
}

struct Finder<'a> {
    trace: &'a Trace,
    device: DeviceId,
    uses: Option<Uses>,
    references: Option<References>,
    extent: Extent,
}

/// The reason a block is needed after its allocation in a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// Freed in forward; its recomputed copy is freed within the recomputation.
    Passing,
    /// Read by later modules only.
    Result,
    /// Saved for the module's own backward.
    Saved,
    /// Saved for the module's own backward, and read by later modules.
    SavedResult,
    /// Live beyond backward, such as a cache or running average, and not recomputed.
    Lasting,
}

impl Role {
    fn is_saved(self) -> bool {
        matches!(self, Self::Saved | Self::SavedResult)
    }
}

impl Finder<'_> {
    fn effect(&self, call: &Call, module: ScopeId) -> Option<Effect> {
        if let Some(references) = &self.references
            && let Some(positions) = references.positions(call)
            && self.knows_all_saved(references, call)
        {
            let (first, last) = positions;
            let call = Referenced { trace: self.trace, device: self.device, references, call, first, last };
            return call.effect(module, |scope| self.is_within(scope, module), |at| self.inputs(call.call, at));
        }
        let backward = self.backward(call);
        let mut roles = self.roles(call, module, &backward);
        match &self.uses {
            Some(uses) => self.find_results_by_uses(call, &mut roles, uses),
            None => find_result_by_order(self.trace, call, &mut roles),
        }
        let at = self.start_of_backward(call, module, &roles, &backward);
        if let Some(uses) = &self.uses {
            self.find_saved_results(call, &mut roles, uses, at);
        }
        if !roles.iter().any(|role| role.is_saved()) {
            return None;
        }
        let saved = call.blocks.iter().zip(&roles).filter(|(_, role)| role.is_saved());
        let last_free = saved.map(|(block, _)| self.freed(*block)).max().unwrap_or(EventId::NONE);
        let kept_until = if self.extent == Extent::UntilSaved { last_free } else { EventId::NONE };
        let ends = self.ends(call, module, &roles, at);
        let (again, kept): (Vec<_>, Vec<_>) =
            self.inputs(call, at).into_iter().partition(|block| self.is_recomputed(*block, at..backward.end));
        let mut repeats: Vec<Repeat> = again.iter().map(|block| Repeat::Alloc(*block)).collect();
        repeats.extend(self.repeats(call, &roles));
        repeats.extend(again.into_iter().map(Repeat::Free));
        Some(Effect { module: call.module, ends, kept, kept_until, at, repeats, repeat_ends: Vec::new() })
    }

    /// Returns whether every block of `call` that is freed in backward has a recorded save. Tensors that a custom
    /// autograd function saves have none.
    fn knows_all_saved(&self, references: &References, call: &Call) -> bool {
        let backward = self.backward(call);
        let outlives = |block: &&BlockId| backward.contains(&self.freed(**block));
        call.blocks.iter().filter(outlives).all(|block| references.saves_of(*block).next().is_some())
    }

    fn freed(&self, block: BlockId) -> EventId {
        self.trace.blocks.free_requested[block.0 as usize]
    }

    /// Returns the events of the backward phases between the call and the next forward; empty if the recording ends
    /// earlier.
    fn backward(&self, call: &Call) -> Range<EventId> {
        let spans = self.trace.spans.rows();
        let after = spans.partition_point(|span| span.first < call.forward_end);
        let next = spans[after..].iter().take_while(|span| span.phase != Phase::Forward);
        let backward = next.filter(|span| span.phase == Phase::Backward).map(|span| span.first..span.end);
        backward.reduce(|all, next| all.start..next.end).unwrap_or(EventId::NONE..EventId::NONE)
    }

    /// Returns the roles according to lifetimes. Backward allocates in a module before it frees the module's saved
    /// blocks, so each block was saved by the module of the last allocation before its free.
    fn roles(&self, call: &Call, module: ScopeId, backward: &Range<EventId>) -> Vec<Role> {
        let role = |block: &BlockId| match self.freed(*block) {
            event if event < call.forward_end => Role::Passing,
            event if backward.contains(&event) => {
                let scope = self.scope_of_last_alloc(backward.start, event);
                let is_own = self.uses.is_some() || scope.is_some_and(|scope| self.is_within(scope, module));
                if is_own { Role::Saved } else { Role::Result }
            }
            event if !event.is_some() && backward.is_empty() && self.is_activation(*block) => Role::Saved,
            event if !event.is_some() && backward.is_empty() => Role::Result,
            _ => Role::Lasting,
        };
        call.blocks.iter().map(role).collect()
    }

    fn scope_of_last_alloc(&self, from: EventId, before: EventId) -> Option<ScopeId> {
        self.allocs(from..before).next_back().map(|(_, block)| self.trace.blocks.scope[block.0 as usize])
    }

    fn allocs(&self, events: Range<EventId>) -> impl DoubleEndedIterator<Item = (EventId, BlockId)> {
        let events = block_events(self.trace, self.device, events);
        events.filter(|(_, kind, _)| *kind == EventKind::Alloc).map(|(event, _, block)| (event, block))
    }

    /// Finds the results, which are blocks that later modules read in forward.
    fn find_results_by_uses(&self, call: &Call, roles: &mut [Role], uses: &Uses) {
        let next = self.next_alloc(call);
        for (block, role) in call.blocks.iter().zip(roles) {
            let is_read_later = uses.last_before(*block, call.forward_end).is_some_and(|event| event > next);
            if *role == Role::Saved && is_read_later {
                *role = Role::Result;
            }
        }
    }

    /// Finds the results that are also read by the module's own backward, which starts at event `at`.
    fn find_saved_results(&self, call: &Call, roles: &mut [Role], uses: &Uses, at: EventId) {
        for (block, role) in call.blocks.iter().zip(roles) {
            let first = uses.first_from(*block, at).filter(|event| *event < self.freed(*block));
            if *role == Role::Result && first.is_some_and(|event| self.reads_a_gradient(call, *block, event, at)) {
                *role = Role::SavedResult;
            }
        }
    }

    /// Returns whether the operation that uses the result `block` at `event` reads its gradient from another block. If
    /// not, backward has written the gradient over the result, which is then not saved.
    fn reads_a_gradient(&self, call: &Call, block: BlockId, event: EventId, at: EventId) -> bool {
        let blocks = &self.trace.blocks;
        let end = self.backward(call).end;
        let is_gradient = |other: BlockId| {
            let alloc = blocks.alloc[other.0 as usize];
            other != block
                && call.blocks.binary_search(&other).is_err()
                && alloc.is_some()
                && alloc < at
                && self.freed(other) < end
        };
        let is_here = |row: &usize| self.trace.events.device[*row] == self.device;
        let used = |row: usize| match self.trace.subject(EventId::from_index(row)) {
            Subject::Block(other) if self.trace.events.kind[row] == EventKind::Used => Some(other),
            _ => None,
        };
        let row = event.0 as usize;
        let after = (row + 1..self.trace.events.len()).filter(is_here).map_while(used);
        let before = (0..row).rev().filter(is_here).map_while(used);
        before.chain(after).any(is_gradient)
    }

    /// The first allocation after the call.
    fn next_alloc(&self, call: &Call) -> EventId {
        self.allocs(EventId(call.last.0 + 1)..call.forward_end).next().map_or(call.forward_end, |(event, _)| event)
    }

    fn is_activation(&self, block: BlockId) -> bool {
        self.trace.blocks.category[block.0 as usize] == Category::Activation
    }

    /// Returns the event before which the module's backward begins: the first use or free of a block that the call
    /// saved, or the first event of the module immediately before that, which may already need its saved parameters.
    fn start_of_backward(&self, call: &Call, module: ScopeId, roles: &[Role], backward: &Range<EventId>) -> EventId {
        let needed = |block: BlockId| {
            let used = self.uses.as_ref().and_then(|uses| uses.first_from(block, backward.start));
            used.unwrap_or(EventId::NONE).min(self.freed(block))
        };
        let saved = call.blocks.iter().zip(roles).filter(|(_, role)| **role == Role::Saved);
        let Some(needed) = saved.map(|(block, _)| needed(*block)).min().filter(|event| backward.contains(event)) else {
            return EventId::NONE;
        };
        let is_own = |block: BlockId| self.is_within(self.trace.blocks.scope[block.0 as usize], module);
        let is_result =
            |block: BlockId| call.blocks.binary_search(&block).is_ok_and(|index| roles[index] == Role::Result);
        // An operation allocates, then uses. Only operations that use what forward saved count.
        let (mut first, mut needs_saved, mut is_allocating) = (needed, true, false);
        for (event, kind, block) in block_events(self.trace, self.device, backward.start..needed).rev() {
            match kind {
                EventKind::Alloc if !is_own(block) => break,
                EventKind::Alloc => {
                    is_allocating = true;
                    if needs_saved || self.uses.is_none() {
                        first = event;
                    }
                }
                EventKind::Used => {
                    needs_saved &= !is_allocating;
                    is_allocating = false;
                    let is_saved = !(self.trace.blocks.alloc[block.0 as usize] >= backward.start
                        && self.trace.blocks.alloc[block.0 as usize].is_some());
                    if is_saved && is_own(block) && !is_result(block) {
                        needs_saved = true;
                        first = event;
                    }
                }
                _ => needs_saved = false,
            }
        }
        first
    }

    fn is_within(&self, mut scope: ScopeId, module: ScopeId) -> bool {
        while scope.is_some() && scope != module {
            scope = self.trace.tables.scopes.get(scope.0 as usize).map_or(ScopeId::NONE, |row| row.parent);
        }
        scope == module
    }

    /// Returns the blocks that the call saved and that are freed early, each with the event before its free.
    fn ends(&self, call: &Call, module: ScopeId, roles: &[Role], at: EventId) -> Vec<(BlockId, EventId)> {
        let bounds = match self.uses {
            Some(_) => Vec::new(),
            None => {
                holders_end(self.trace, call, module, &roles.iter().map(|role| role.is_saved()).collect::<Vec<_>>())
            }
        };
        let before_at = at.index().and_then(|row| row.checked_sub(1)).map(EventId::from_index);
        let end = |index: usize, block: BlockId| {
            let alloc = self.trace.blocks.alloc[block.0 as usize];
            match (roles[index], &self.uses) {
                (Role::Saved, Some(uses)) => Some(uses.last_before(block, call.forward_end).unwrap_or(alloc)),
                (Role::Saved, None) => Some(bounds[index]),
                // Later modules read it, at the latest right before the recomputation.
                (Role::SavedResult, Some(uses)) => Some(uses.last_before(block, at).unwrap_or(alloc)),
                (Role::SavedResult, None) => before_at,
                _ => None,
            }
        };
        let all = call.blocks.iter().enumerate();
        all.filter_map(|(index, block)| Some((*block, end(index, *block)?))).collect()
    }

    /// The inputs of the call that were allocated before it in the step's forward.
    fn inputs(&self, call: &Call, at: EventId) -> Vec<BlockId> {
        let blocks = &self.trace.blocks;
        let Some(span) = self.trace.spans.at(call.first).filter(|_| at.is_some()) else {
            return Vec::new();
        };
        let row_of = |event: EventId| blocks.alloc.partition_point(|alloc| !alloc.is_some() || *alloc < event);
        let before = (row_of(span.first)..row_of(call.first)).rev().map(|row| BlockId(row as u32));
        let of_device = |block: &BlockId| blocks.device[block.0 as usize] == self.device;
        let live = before.filter(of_device).filter(|block| self.freed(*block) > call.first).enumerate();
        let is_input = |(order, block): &(usize, BlockId)| match &self.uses {
            Some(uses) => uses.of_block(*block).iter().any(|event| (call.first..=call.last).contains(event)),
            // Freed within the call: nothing else referred to it. Otherwise, it is the result of the preceding
            // operation.
            None => self.freed(*block) <= call.last || *order == 0,
        };
        live.filter(is_input).map(|(_, block)| block).collect()
    }

    /// Returns whether the program itself recomputes `input`, which is freed in forward. This is the case if some event
    /// of `backward` allocates as much for an operation on the same blocks.
    fn is_recomputed(&self, input: BlockId, backward: Range<EventId>) -> bool {
        let blocks = &self.trace.blocks;
        let row = input.0 as usize;
        if self.uses.is_none() || self.freed(input) >= backward.start {
            return false;
        }
        let sources = self.operands(blocks.alloc[row], input);
        let rows = blocks.alloc.partition_point(|alloc| !alloc.is_some() || *alloc < backward.start)..blocks.len();
        rows.take_while(|row| blocks.alloc[*row] < backward.end)
            .filter(|other| blocks.requested[*other] == blocks.requested[row])
            .any(|other| self.operands(blocks.alloc[other], BlockId(other as u32)) == sources)
    }

    /// Returns the other blocks used by the operation for which `block` is allocated at event `alloc`, sorted.
    fn operands(&self, alloc: EventId, block: BlockId) -> Vec<BlockId> {
        let rows = alloc.0 as usize + 1..self.trace.events.len();
        let is_here = |row: &usize| self.trace.events.device[*row] == self.device;
        let kind = |row: &usize| self.trace.events.kind[*row];
        let used = rows.filter(is_here).skip_while(|row| kind(row) != EventKind::Used);
        let used = used.take_while(|row| kind(row) == EventKind::Used);
        let mut operands: Vec<BlockId> = used
            .filter_map(|row| match self.trace.subject(EventId::from_index(row)) {
                Subject::Block(other) if other != block => Some(other),
                _ => None,
            })
            .collect();
        operands.sort_unstable();
        operands.dedup();
        operands
    }

    fn repeats(&self, call: &Call, roles: &[Role]) -> Vec<Repeat> {
        let last_saved = roles.iter().rposition(|role| role.is_saved());
        let end = match (self.extent, last_saved) {
            (Extent::UntilSaved, Some(index)) => self.trace.blocks.alloc[call.blocks[index].0 as usize],
            _ => call.last,
        };
        let part = |block: BlockId| {
            let role = roles[call.blocks.binary_search(&block).ok()?];
            (role != Role::Lasting).then_some(role.is_saved())
        };
        repeats(self.trace, self.device, call.first..EventId(end.0 + 1), part)
    }
}

/// Marks the last saved block as the result if no other block is marked so.
fn find_result_by_order(trace: &Trace, call: &Call, roles: &mut [Role]) {
    let lives_on = |block: &BlockId| trace.blocks.free_requested[block.0 as usize] > call.last;
    let is_result = |(block, role): (&BlockId, &Role)| match role {
        Role::Result => true,
        Role::Passing => lives_on(block),
        _ => false,
    };
    if !call.blocks.iter().zip(roles.iter()).any(is_result)
        && let Some(last) = roles.iter().rposition(|role| *role == Role::Saved)
    {
        roles[last] = Role::SavedResult;
    }
}
