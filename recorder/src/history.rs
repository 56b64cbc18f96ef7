//! History: events held in memory, all of them or the last so many, with the state before the first.

use std::collections::{HashMap, VecDeque};

use highwater_snapshots::event::{Event, Range, What};
use highwater_snapshots::{DeviceId, Phase, StartingBlock, StartingState};

/// Events in order. When a ring is full, the oldest leaves, and what it did is folded into the starting state, so that
/// totals stay right.
#[derive(Debug, Default)]
pub(crate) struct History {
    events: VecDeque<Event>,
    most: Option<usize>,
    base: HashMap<DeviceId, Base>,
    evicted: u64,
    /// The step and the phase that the oldest event kept lies in.
    step: Option<Event>,
    phase: Option<Event>,
    /// Each device's last sample of what is in use, among the events that left.
    samples: Vec<Event>,
}

/// A device's state before the first event that is kept.
#[derive(Debug, Default)]
struct Base {
    segments: HashMap<u64, Range>,
    mappings: Vec<Range>,
    blocks: HashMap<u64, StartingBlock>,
}

impl History {
    /// Keeps the last `most` events, or all.
    pub(crate) fn new(most: Option<usize>) -> Self {
        Self { most, ..Self::default() }
    }

    /// Takes the state of a device whose events begin now.
    pub(crate) fn begin(&mut self, state: &StartingState) {
        let base = self.base.entry(state.device).or_default();
        base.segments = state.segments.iter().map(|range| (range.address, *range)).collect();
        base.mappings = state.mappings.clone();
        base.blocks = state.blocks.iter().map(|block| (block.alloc.block, *block)).collect();
    }

    /// Takes the next event.
    pub(crate) fn push(&mut self, event: Event) {
        if self.most.is_some_and(|most| self.events.len() >= most)
            && let Some(oldest) = self.events.pop_front()
        {
            self.evicted += 1;
            match oldest.what {
                What::Step(_) => (self.step, self.phase) = (Some(oldest), None),
                What::Phase(Phase::Setup) => (self.step, self.phase) = (None, None),
                What::Phase(_) => self.phase = Some(oldest),
                What::DeviceUsed(_) => {
                    self.samples.retain(|sample| sample.device != oldest.device);
                    self.samples.push(oldest);
                }
                _ => self.base.entry(oldest.device).or_default().fold(&oldest),
            }
        }
        self.events.push_back(event);
    }

    /// How many events are kept at most; none if all.
    pub(crate) fn most_events(&self) -> Option<usize> {
        self.most
    }

    /// Events that left the ring.
    pub(crate) fn evicted(&self) -> u64 {
        self.evicted
    }

    /// The step, phase and samples that hold at the oldest event, then the events kept, oldest first.
    pub(crate) fn events(&self) -> impl Iterator<Item = &Event> {
        self.step.iter().chain(&self.phase).chain(&self.samples).chain(&self.events)
    }

    /// Each device's state before the first event kept, devices and blocks in order.
    pub(crate) fn starting_states(&self) -> Vec<StartingState> {
        let mut states: Vec<StartingState> = self.base.iter().map(|(&device, base)| base.state(device)).collect();
        states.sort_by_key(|state| state.device);
        states
    }
}

impl Base {
    fn fold(&mut self, event: &Event) {
        match event.what {
            What::Alloc(alloc) => {
                let block = StartingBlock { alloc, stack: event.stack, free_requested: false };
                self.blocks.insert(alloc.block, block);
            }
            What::FreeRequested(key) => {
                if let Some(block) = self.blocks.get_mut(&key) {
                    block.free_requested = true;
                }
            }
            What::FreeCompleted(key) => drop(self.blocks.remove(&key)),
            What::Tag(key, category) => {
                if let Some(block) = self.blocks.get_mut(&key) {
                    block.alloc.category = category;
                }
            }
            What::SegmentAlloc(range) => drop(self.segments.insert(range.address, range)),
            What::SegmentFree(range) => drop(self.segments.remove(&range.address)),
            What::SegmentMap(range) => self.mappings.push(range),
            What::SegmentUnmap(range) => self.unmap(range),
            What::Oom(_) | What::DeviceUsed(_) | What::Step(_) | What::Phase(_) | What::Mark(_) | What::Used(_) => {}
        }
    }

    /// Takes a range out of the mapped ones, cutting those that it overlaps.
    fn unmap(&mut self, gone: Range) {
        let end = gone.address.saturating_add(gone.bytes);
        let mut kept = Vec::with_capacity(self.mappings.len() + 1);
        for range in self.mappings.drain(..) {
            let range_end = range.address.saturating_add(range.bytes);
            if range_end <= gone.address || range.address >= end {
                kept.push(range);
                continue;
            }
            if range.address < gone.address {
                kept.push(Range { bytes: gone.address - range.address, ..range });
            }
            if range_end > end {
                kept.push(Range { address: end, bytes: range_end - end, ..range });
            }
        }
        self.mappings = kept;
    }

    fn state(&self, device: DeviceId) -> StartingState {
        let mut segments: Vec<Range> = self.segments.values().copied().collect();
        segments.sort_by_key(|range| range.address);
        let mut mappings = self.mappings.clone();
        mappings.sort_by_key(|range| range.address);
        let mut blocks: Vec<StartingBlock> = self.blocks.values().copied().collect();
        blocks.sort_by_key(|block| block.alloc.block);
        StartingState { device, segments, mappings, blocks }
    }
}

#[cfg(test)]
mod tests {
    use highwater_snapshots::event::Alloc;
    use highwater_snapshots::{Category, OpId, Pool, ScopeId, StackId, StreamId};

    use super::*;

    fn event(what: What) -> Event {
        Event { time_ns: 0, device: DeviceId(0), stack: StackId::NONE, what }
    }

    fn alloc(block: u64, bytes: u64) -> What {
        What::Alloc(Alloc {
            block,
            address: block * 4096,
            requested: bytes,
            allocated: bytes,
            stream: StreamId(0),
            pool: Pool::Small,
            category: Category::Unknown,
            op: OpId::NONE,
            scope: ScopeId::NONE,
        })
    }

    #[test]
    fn a_full_ring_forgets_events_but_not_the_blocks_they_left_alive() {
        let mut history = History::new(Some(2));
        for what in [alloc(1, 100), alloc(2, 200), What::FreeRequested(1), What::FreeCompleted(1), alloc(3, 300)] {
            history.push(event(what));
        }
        assert_eq!(history.evicted(), 3);
        let states = history.starting_states();
        let blocks: Vec<(u64, bool)> = states[0].blocks.iter().map(|b| (b.alloc.block, b.free_requested)).collect();
        assert_eq!(blocks, [(1, true), (2, false)], "block 1 waits for the completion that the ring still holds");
        assert_eq!(history.events().count(), 2);
    }

    #[test]
    fn unmapping_the_middle_of_a_mapping_leaves_both_ends() {
        let range = |address, bytes| Range { address, bytes, stream: StreamId(0), pool: Pool::Large };
        let mut history = History::new(Some(1));
        for what in [What::SegmentMap(range(0, 100)), What::SegmentUnmap(range(40, 20)), What::Step(0)] {
            history.push(event(what));
        }
        assert_eq!(history.starting_states()[0].mappings, [range(0, 40), range(60, 40)]);
    }
}
