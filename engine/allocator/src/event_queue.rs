//! Queues of the events of freed blocks, in the order in which each stream will complete them.

use std::collections::{BTreeMap, VecDeque};

use highwater_recorder::StreamId;

use super::arena::BlockIndex;
use super::driver::DriverEvent;

/// One queue per stream, so that a slow stream delays only its own blocks.
#[derive(Debug, Default)]
pub(super) struct EventQueues {
    queues: BTreeMap<StreamId, VecDeque<(DriverEvent, BlockIndex)>>,
}

impl EventQueues {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    pub(super) fn push(&mut self, stream: StreamId, event: DriverEvent, block: BlockIndex) {
        self.queues.entry(stream).or_default().push_back((event, block));
    }

    pub(super) fn streams(&self) -> Vec<StreamId> {
        self.queues.keys().copied().collect()
    }

    pub(super) fn first(&self, stream: StreamId) -> Option<DriverEvent> {
        self.queues.get(&stream).and_then(|queue| queue.front()).map(|(event, _)| *event)
    }

    pub(super) fn pop(&mut self, stream: StreamId) -> Option<BlockIndex> {
        let queue = self.queues.get_mut(&stream)?;
        let block = queue.pop_front().map(|(_, block)| block);
        if queue.is_empty() {
            self.queues.remove(&stream);
        }
        block
    }

    /// Returns every waiting block, once for each of its events.
    pub(super) fn blocks(&self) -> impl Iterator<Item = BlockIndex> {
        self.queues.values().flatten().map(|(_, block)| *block)
    }
}
