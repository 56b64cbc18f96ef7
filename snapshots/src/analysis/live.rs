//! LiveIndex: which blocks hold memory at any event, without walking the recording from its start.

use crate::event::EventKind;
use crate::ids::{BlockId, DeviceId, EventId};
use crate::trace::Trace;

use super::metric::Metric;
use super::replay::{Effect, baseline_effects, effects};

/// Fewest events between two checkpoints.
const MIN_STRIDE: usize = 8192;

/// Live blocks of one device at chosen events, from which any other event is near.
///
/// A checkpoint is taken when at least as many events have passed as it will hold blocks, so all checkpoints together
/// hold no more entries than there are events, and a question costs at most a checkpoint and as many events.
#[derive(Clone, Debug)]
pub struct LiveIndex {
    device: DeviceId,
    /// Position and active blocks before it, in block order.
    checkpoints: Vec<(usize, Vec<BlockId>)>,
}

impl LiveIndex {
    /// Walks the trace once.
    pub fn build(trace: &Trace, device: DeviceId) -> Self {
        let mut live = LiveSet::new(trace, device);
        let mut checkpoints = vec![(0, live.to_vec())];
        let mut since = 0;
        for index in 0..trace.events.len() {
            live.apply(trace, index);
            since += 1;
            if since >= MIN_STRIDE.max(live.count) {
                checkpoints.push((index + 1, live.to_vec()));
                since = 0;
            }
        }
        Self { device, checkpoints }
    }

    /// The device.
    pub fn device(&self) -> DeviceId {
        self.device
    }

    /// The blocks that count towards `metric` once events `0..position` have happened, in block order.
    /// Metrics that are not sums over blocks give the active blocks.
    pub fn before_position(&self, trace: &Trace, metric: Metric, position: usize) -> Vec<BlockId> {
        let after = self.checkpoints.partition_point(|(at, _)| *at <= position);
        let (at, known) = &self.checkpoints[after - 1];
        let blocks = &trace.blocks;
        let position = position.min(trace.events.len());
        let ends_at_request = matches!(metric, Metric::Requested | Metric::Allocated);
        let is_counted = |id: &BlockId| {
            let row = id.0 as usize;
            let end = if ends_at_request { blocks.free_requested[row] } else { blocks.free_completed[row] };
            let has_ended = end.index().is_some_and(|index| index < position);
            let was_never_live = ends_at_request && trace.was_waiting_at_start(*id);
            !has_ended && !was_never_live
        };
        let mut out: Vec<BlockId> = known.iter().copied().filter(is_counted).collect();
        let events = &trace.events;
        for index in *at..position {
            if events.kind[index] == EventKind::Alloc && events.device[index] == self.device {
                out.extend(Some(BlockId(events.subject[index])).filter(is_counted));
            }
        }
        out
    }

    /// The blocks that count towards `metric` after event `id`, in block order.
    pub fn after(&self, trace: &Trace, metric: Metric, id: EventId) -> Vec<BlockId> {
        self.before_position(trace, metric, id.0 as usize + 1)
    }
}

/// The active blocks as a bit a block, so that a list of them is made in block order.
struct LiveSet {
    device: DeviceId,
    words: Vec<u64>,
    count: usize,
}

impl LiveSet {
    fn new(trace: &Trace, device: DeviceId) -> Self {
        let mut live = Self { device, words: vec![0; trace.blocks.len().div_ceil(64)], count: 0 };
        baseline_effects(trace, device, |effect| live.take(effect));
        live
    }

    fn take(&mut self, effect: Effect) {
        match effect {
            Effect::Begins(row) => self.set(row, true),
            Effect::EndsActive(row) => self.set(row, false),
            _ => {}
        }
    }

    fn set(&mut self, row: usize, is_live: bool) {
        let (word, bit) = (&mut self.words[row / 64], 1_u64 << (row % 64));
        match is_live {
            true if *word & bit == 0 => (*word, self.count) = (*word | bit, self.count + 1),
            false if *word & bit != 0 => (*word, self.count) = (*word & !bit, self.count - 1),
            _ => {}
        }
    }

    fn apply(&mut self, trace: &Trace, index: usize) {
        if trace.events.device[index] == self.device {
            effects(trace, index, |effect| self.take(effect));
        }
    }

    fn to_vec(&self) -> Vec<BlockId> {
        let mut out = Vec::with_capacity(self.count);
        for (position, &word) in self.words.iter().enumerate() {
            let mut rest = word;
            while rest != 0 {
                out.push(BlockId((position * 64) as u32 + rest.trailing_zeros()));
                rest &= rest - 1;
            }
        }
        out
    }
}
