//! Events kept in memory, either all or only the most recent, with the state before the first.

use std::collections::{HashMap, VecDeque};

use highwater_snapshots::event::{Event, What};
use highwater_snapshots::live_state::LiveState;
use highwater_snapshots::{DeviceId, StartingState};

use crate::current_stage::CurrentStage;
use crate::message::{self, MAX_WORDS, Message, Words};

/// Encoded events in order. When a ring is full, the oldest event is removed and applied to the starting state.
#[derive(Debug, Default)]
pub(crate) struct History {
    words: VecDeque<u64>,
    events: usize,
    most: Option<usize>,
    base: HashMap<DeviceId, LiveState>,
    evicted: u64,
    /// The step and the phase at the oldest stored event.
    stage: CurrentStage,
    /// Each device's last sample of memory in use among the evicted events.
    samples: Vec<Event>,
}

impl History {
    pub(crate) fn new(most: Option<usize>) -> Self {
        Self { most, ..Self::default() }
    }

    /// Sets the starting state of a device.
    pub(crate) fn begin(&mut self, state: &StartingState) {
        self.base.insert(state.device, LiveState::from(state));
    }

    pub(crate) fn push(&mut self, event: &Event) {
        let Words { words, len } = Words::of_kept(event);
        self.words.extend(&words[..len]);
        self.events += 1;
        while self.most.is_some_and(|most| self.events > 1 && self.events + self.in_effect() > most) {
            self.evict();
        }
    }

    /// Number of events still in effect at the oldest stored event: step, phase and samples.
    fn in_effect(&self) -> usize {
        self.stage.events().count() + self.samples.len()
    }

    /// Number of these events that fit in the ring.
    fn repeated(&self) -> usize {
        self.most.map_or(self.in_effect(), |most| self.in_effect().min(most.saturating_sub(self.events)))
    }

    fn evict(&mut self) {
        let Some(&first) = self.words.front() else { return };
        let mut words = [0; MAX_WORDS];
        let len = message::len(first);
        for (to, from) in words.iter_mut().zip(self.words.drain(..len)) {
            *to = from;
        }
        self.events -= 1;
        self.evicted += 1;
        let Some(oldest) = event_of(&words[..len]) else { return };
        self.stage.follow(&oldest);
        if matches!(oldest.what, What::DeviceUsed(_)) {
            self.samples.retain(|sample| sample.device != oldest.device);
            self.samples.push(oldest);
        }
        if !CurrentStage::concerns(&oldest) {
            self.base.entry(oldest.device).or_default().follow(&oldest);
        }
    }

    /// Returns the number of events that [`events`](Self::events) lacks because the ring was full.
    pub(crate) fn evicted(&self) -> u64 {
        self.evicted - self.repeated() as u64
    }

    /// Returns the step, phase and samples in effect at the oldest stored event, then the stored events, oldest first.
    /// Returns at most as many as fit in the ring.
    pub(crate) fn events(&self) -> impl Iterator<Item = Event> {
        let mut at = 0;
        let kept = std::iter::from_fn(move || {
            let mut words = [0; MAX_WORDS];
            let len = message::len(*self.words.get(at)?);
            for (to, from) in words.iter_mut().zip(self.words.range(at..at + len)) {
                *to = *from;
            }
            at += len;
            event_of(&words[..len])
        });
        // The state before the oldest event gets that event's time.
        let oldest_ns = self.words.get(message::TIME).copied();
        let before = self.stage.events().chain(&self.samples).take(self.repeated());
        let before = before.map(move |event| Event { time_ns: oldest_ns.unwrap_or(event.time_ns), ..*event });
        before.chain(kept)
    }

    pub(crate) fn len(&self) -> usize {
        self.events + self.repeated()
    }

    /// Returns each device's state before the first kept event, sorted by device, with blocks sorted by key.
    pub(crate) fn starting_states(&self) -> Vec<StartingState> {
        let mut states: Vec<StartingState> = self.base.iter().map(|(&device, base)| base.state(device)).collect();
        states.sort_by_key(|state| state.device);
        states
    }
}

/// Decodes an event; `None` for another message, which a history does not contain.
fn event_of(words: &[u64]) -> Option<Event> {
    let read = message::read(words);
    match read.message {
        Message::Event(what) => Some(Event { time_ns: read.time, device: read.device, stack: read.stack, what }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use highwater_snapshots::event::{Alloc, Range};
    use highwater_snapshots::{Category, OpId, Phase, Pool, ScopeId, StackId, StreamId};

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
            history.push(&event(what));
        }
        assert_eq!(history.evicted(), 3);
        let states = history.starting_states();
        let blocks: Vec<(u64, bool)> = states[0].blocks.iter().map(|b| (b.alloc.block, b.free_requested)).collect();
        assert_eq!(blocks, [(1, true), (2, false)], "block 1 waits for the completion that the ring still holds");
        assert_eq!(history.events().count(), 2);
    }

    #[test]
    fn a_ring_keeps_exactly_as_many_events_as_it_has_room_for_with_those_that_are_in_effect() {
        for most in 1..8 {
            let mut history = History::new(Some(most));
            let before = [What::Step(3), What::Phase(Phase::Forward), What::DeviceUsed(7)];
            let all: Vec<What> = before.into_iter().chain((0..20).map(|block| alloc(block, 100))).collect();
            for (pushed, what) in all.iter().enumerate() {
                history.push(&event(*what));
                assert_eq!(history.events().count(), most.min(pushed + 1));
                assert_eq!(history.len() as u64 + history.evicted(), pushed as u64 + 1);
            }
            let kept: Vec<What> = history.events().map(|event| event.what).collect();
            assert_eq!(kept.last(), all.last());
            assert!(most < 4 || kept[..3] == before, "{kept:?}");
        }
    }

    #[test]
    fn unmapping_the_middle_of_a_mapping_leaves_both_ends() {
        let range = |address, bytes| Range { address, bytes, stream: StreamId(0), pool: Pool::Large };
        let mut history = History::new(Some(1));
        for what in [What::SegmentMap(range(0, 100)), What::SegmentUnmap(range(40, 20)), What::Step(0)] {
            history.push(&event(what));
        }
        assert_eq!(history.starting_states()[0].mappings, [range(0, 40), range(60, 40)]);
    }
}
