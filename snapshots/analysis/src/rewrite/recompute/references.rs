//! The references to the blocks of a device, as recorded by the program, ordered by position.
//!
//! References are recorded only in the first steps. They are assumed to be the same in all other steps with the same
//! allocations in forward and backward.

use std::collections::{BTreeMap, HashMap};

use highwater_snapshots::event::EventKind;
use highwater_snapshots::references::{ATTRIBUTE, References as BlockReferences};
use highwater_snapshots::trace::{Owner, Subject};
use highwater_snapshots::{BlockId, DeviceId, EventId, Phase, ScopeId, Trace};

use super::calls::Call;
use super::effect::block_events;
use super::members::modules;

/// Maximum average number of saves per allocation. References are not copied to other steps beyond it.
const MAX_SAVES_OF_AN_ALLOCATION: usize = 16;

/// The references on a device. A position is a number of allocations since the start of the recording.
#[derive(Clone, Debug)]
pub(super) struct References {
    allocs: Vec<EventId>,
    /// The ranges of positions with recorded or copied references: forward and backward of each step.
    windows: Vec<(u64, u64)>,
    /// The saves, ordered by `packed`.
    saves: Vec<Save>,
    /// The indices in `saves` of each block's saves.
    of_blocks: HashMap<BlockId, Vec<usize>>,
    /// The position after which only the graph refers to each block.
    ends: HashMap<BlockId, u64>,
    /// The blocks passed to a module as arguments at a position.
    inputs: HashMap<(u64, ScopeId), Vec<BlockId>>,
}

/// A node of the autograd graph that saves a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Save {
    pub(super) block: BlockId,
    /// The module that created the node.
    pub(super) module: ScopeId,
    pub(super) packed: u64,
    pub(super) unpacked: Option<u64>,
    /// The position after which the node no longer needs the block.
    pub(super) dropped: Option<u64>,
    /// The position at which the graph drops the block.
    pub(super) released: Option<u64>,
}

impl References {
    /// Collects the references on `device`; `None` if no saves are recorded.
    pub(super) fn of(trace: &Trace, device: DeviceId) -> Option<Self> {
        let name = trace.tables.strings.iter().position(|text| text == ATTRIBUTE)? as u32;
        let events = block_events(trace, device, EventId(0)..EventId::from_index(trace.events.len()));
        let allocs = events.filter(|(_, kind, _)| *kind == EventKind::Alloc).map(|(event, ..)| event).collect();
        let mut all = Self {
            allocs,
            windows: Vec::new(),
            saves: Vec::new(),
            of_blocks: HashMap::new(),
            ends: HashMap::new(),
            inputs: HashMap::new(),
        };
        let scopes: HashMap<String, ScopeId> = modules(trace).into_iter().map(|(scope, path)| (path, scope)).collect();
        for fact in trace.attributes.iter().filter(|fact| fact.name.0 == name) {
            let block = match fact.owner {
                Owner::Event(event) => match trace.subject(event) {
                    Subject::Block(block) => block,
                    _ => continue,
                },
                Owner::Block(block) => block,
                Owner::Segment(_) => continue,
            };
            let Ok(references) = trace.tables.string(fact.value).parse() else { continue };
            if trace.blocks.device[block.0 as usize] == device {
                all.add(trace, block, &references, &scopes);
            }
        }
        all.follow_other_steps(trace);
        all.windows.sort_unstable();
        all.index();
        (!all.saves.is_empty()).then_some(all)
    }

    fn add(&mut self, trace: &Trace, block: BlockId, references: &BlockReferences, scopes: &HashMap<String, ScopeId>) {
        let own = self.position_of(trace, block);
        let last = self.allocs.len() as u64;
        // Positions come from a file.
        let at = |position: u64| own.checked_add(position).filter(|position| *position <= last);
        let scope_of = |path: &String| scopes.get(path).copied().unwrap_or(ScopeId::NONE);
        if let Some(end) = references.end.and_then(at) {
            self.ends.insert(block, end);
        }
        for (position, path) in &references.inputs {
            if let Some(position) = at(*position) {
                self.inputs.entry((position, scope_of(path))).or_default().push(block);
            }
        }
        for saved in &references.saved {
            let Some(packed) = at(saved.packed) else { continue };
            let later = |position: Option<u64>| position.and_then(at).filter(|position| *position >= packed);
            self.saves.push(Save {
                block,
                module: scope_of(&saved.module),
                packed,
                unpacked: later(saved.unpacked),
                dropped: later(saved.dropped),
                released: later(saved.released),
            });
        }
    }

    /// Returns whether references are known for every step.
    pub(super) fn is_complete(&self, trace: &Trace) -> bool {
        let all = windows(trace, |event| self.allocs.partition_point(|alloc| *alloc < event) as u64);
        self.windows.len() == all.len()
    }

    /// Returns the reason references are not known for every step; `None` if they are.
    pub(super) fn shortfall(&self, trace: &Trace) -> Option<String> {
        let all = windows(trace, |event| self.allocs.partition_point(|alloc| *alloc < event) as u64).len();
        let others = all.checked_sub(self.windows.len()).filter(|others| *others > 0)?;
        Some(format!("in {others} of {all} steps, allocations differ from the steps whose references were recorded"))
    }

    fn index(&mut self) {
        self.saves.sort_by_key(|save| save.packed);
        for (index, save) in self.saves.iter().enumerate() {
            self.of_blocks.entry(save.block).or_default().push(index);
        }
    }

    /// Copies the references of each recorded step, the last one first, to other steps with the same allocations.
    fn follow_other_steps(&mut self, trace: &Trace) {
        let windows = windows(trace, |event| self.allocs.partition_point(|alloc| *alloc < event) as u64);
        let is_followed =
            |(first, last): &(u64, u64)| self.saves.iter().any(|save| (*first..=*last).contains(&save.packed));
        let (followed, mut others): (Vec<_>, Vec<_>) = windows.iter().copied().partition(is_followed);
        self.windows.clone_from(&followed);
        for step in followed.into_iter().rev() {
            let before =
                windows.iter().copied().filter(|window| window.1 <= step.0 && *window != step).map(|row| row.1).max();
            others = self.follow_equal_steps(trace, step, before.unwrap_or(0), others);
        }
    }

    /// Copies the references of a recorded step to those of `others` that have the same allocations. The recorded step
    /// follows a step that ends at `before`. Returns the remaining steps.
    fn follow_equal_steps(
        &mut self,
        trace: &Trace,
        (first, last): (u64, u64),
        before: u64,
        others: Vec<(u64, u64)>,
    ) -> Vec<(u64, u64)> {
        let key = |position: u64| {
            let block = self.block_at(trace, position)?;
            Some((trace.blocks.requested[block.0 as usize], trace.blocks.scope[block.0 as usize]))
        };
        let is_equal = |other: &(u64, u64)| {
            other.1 - other.0 == last - first && (0..last - first).all(|at| key(first + at) == key(other.0 + at))
        };
        let (equal, others): (Vec<_>, Vec<_>) = others.into_iter().partition(is_equal);
        let is_inside = |position: &u64| (first..=last).contains(position);
        let saves: Vec<Save> = self.saves.iter().filter(|save| is_inside(&save.packed)).copied().collect();
        let ends: Vec<(BlockId, u64)> =
            self.ends.iter().filter(|(_, end)| is_inside(end)).map(|(block, end)| (*block, *end)).collect();
        let inputs = self.inputs.iter().filter(|((position, _), _)| is_inside(position));
        let inputs: Vec<((u64, ScopeId), Vec<BlockId>)> = inputs.map(|(key, blocks)| (*key, blocks.clone())).collect();
        // As many as a program can have, whatever a file says.
        let most = MAX_SAVES_OF_AN_ALLOCATION * self.allocs.len();
        for window in equal {
            if self.saves.len() + saves.len() > most {
                return Vec::new();
            }
            let moved = |position: u64| position + window.0 - first;
            let is_live = |block: BlockId, position: u64| {
                let before = self.allocs.get((position as usize).saturating_sub(1));
                before.is_none_or(|event| trace.blocks.free_requested[block.0 as usize] > *event)
            };
            // A batch is allocated right before forward.
            let place = |block: BlockId| match self.position_of(trace, block) {
                own if own > last => None,
                own if own > before => {
                    let copy = self.block_at(trace, (own + window.0).checked_sub(first + 1)?)?;
                    let bytes = |block: BlockId| trace.blocks.requested[block.0 as usize];
                    Some(copy)
                        .filter(|copy| bytes(*copy) == bytes(block) && is_live(*copy, window.0))
                        .or(Some(block).filter(|block| is_live(*block, window.0)))
                }
                _ => Some(block).filter(|block| is_live(*block, window.0)),
            };
            let copies = saves.iter().filter_map(|save| {
                let copy = Save {
                    block: place(save.block)?,
                    module: save.module,
                    packed: moved(save.packed),
                    unpacked: save.unpacked.map(moved),
                    dropped: save.dropped.map(moved),
                    released: save.released.map(moved),
                };
                is_live(copy.block, copy.packed).then_some(copy)
            });
            let copies: Vec<Save> = copies.collect();
            let of_inputs = inputs.iter().map(|((position, module), blocks)| {
                ((moved(*position), *module), blocks.iter().filter_map(|block| place(*block)).collect::<Vec<_>>())
            });
            let of_inputs: Vec<_> = of_inputs.collect();
            // A block from before the step may end once only.
            let of_ends =
                ends.iter().filter_map(|(block, end)| Some((place(*block).filter(|copy| copy != block)?, moved(*end))));
            let of_ends: Vec<(BlockId, u64)> = of_ends.collect();
            self.saves.extend(copies);
            self.inputs.extend(of_inputs);
            self.ends.extend(of_ends);
            self.windows.push(window);
        }
        others
    }

    /// Returns the number of allocations up to and including that of `block`; 0 for blocks of the baseline.
    fn position_of(&self, trace: &Trace, block: BlockId) -> u64 {
        let alloc = trace.blocks.alloc[block.0 as usize];
        if alloc.is_some() { self.allocs.partition_point(|other| *other <= alloc) as u64 } else { 0 }
    }

    /// Returns the block allocated by the next allocation after `position`; `None` at the end.
    fn block_at(&self, trace: &Trace, position: u64) -> Option<BlockId> {
        match trace.subject(*self.allocs.get(position as usize)?) {
            Subject::Block(block) => Some(block),
            _ => None,
        }
    }

    /// Returns the positions immediately before the first allocation of `call` and immediately after its last one;
    /// `None` if references are not known there.
    pub(super) fn positions(&self, call: &Call) -> Option<(u64, u64)> {
        let first = self.allocs.partition_point(|alloc| *alloc < call.first) as u64;
        let last = self.allocs.partition_point(|alloc| *alloc <= call.last) as u64;
        let window = self.windows.partition_point(|(start, _)| *start <= first).checked_sub(1)?;
        (last <= self.windows[window].1).then_some((first, last))
    }

    /// The saves at positions `first` to `last`, inclusive.
    pub(super) fn saves_between(&self, first: u64, last: u64) -> &[Save] {
        let row_of = |position: u64| self.saves.partition_point(|save| save.packed < position);
        &self.saves[row_of(first)..row_of(last + 1)]
    }

    /// The saves of `block`.
    pub(super) fn saves_of(&self, block: BlockId) -> impl Iterator<Item = &Save> {
        self.of_blocks.get(&block).into_iter().flatten().map(|index| &self.saves[*index])
    }

    /// Returns the position after which only the graph refers to `block`; `None` if it is unknown.
    pub(super) fn end_of(&self, block: BlockId) -> Option<u64> {
        self.ends.get(&block).copied()
    }

    /// The blocks passed to `module` as arguments at `position`.
    pub(super) fn inputs(&self, module: ScopeId, position: u64) -> &[BlockId] {
        self.inputs.get(&(position, module)).map_or(&[], Vec::as_slice)
    }

    /// Returns the last allocation before `position`. Blocks whose lifetime ends there are freed immediately after it.
    pub(super) fn event_before(&self, position: u64) -> Option<EventId> {
        self.allocs.get((position as usize).checked_sub(1)?).copied()
    }

    /// Returns the first allocation after `position`; `None` at the end.
    pub(super) fn event_after(&self, position: u64) -> Option<EventId> {
        self.allocs.get(position as usize).copied()
    }
}

/// Returns, for each step, the positions from the first allocation of forward to the last one of backward.
fn windows(trace: &Trace, position_at: impl Fn(EventId) -> u64) -> Vec<(u64, u64)> {
    let mut steps: BTreeMap<Option<u32>, (u64, u64)> = BTreeMap::new();
    for span in trace.spans.rows().iter().filter(|span| matches!(span.phase, Phase::Forward | Phase::Backward)) {
        let (first, last) = (position_at(span.first), position_at(span.end));
        let window = steps.entry(span.step).or_insert((first, last));
        *window = (window.0.min(first), window.1.max(last));
    }
    steps.into_values().filter(|(first, last)| first < last).collect()
}
