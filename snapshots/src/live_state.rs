//! The live blocks and segments of a device and their totals, updated with each event. They allow reading to start at
//! any event of a recording.

use crate::builder::{StartingBlock, StartingState, TraceBuilder};
use crate::category::{Category, Pool};
use crate::event::{BlockKey, Event, Range, What};
use crate::ids::{DeviceId, StreamId};
pub use crate::live_blocks::LiveBlock;
use crate::live_blocks::LiveBlocks;
use crate::metric::Totals;
use crate::ranges::Ranges;
use crate::stage::{Outside, Stage};
use crate::trace::{DeviceStart, Start};
use crate::transition::{Contradictions, Named, Transition, transition};
use hashbrown::HashMap;

/// A block that is no longer live, because its free was requested, or because its free is missing from the recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// The key of the block.
    pub block: BlockKey,
    /// The index of the block's alloc event; `None` if the block was live before the recording.
    pub birth: Option<u64>,
    /// The last known category of the block.
    pub category: Category,
}

impl Ended {
    fn of(live: &LiveBlock) -> Self {
        let alloc = &live.block.alloc;
        Self { block: alloc.block, birth: live.birth.map(|birth| birth.event), category: alloc.category }
    }
}

/// The live blocks and the segments of one device.
#[derive(Clone, Debug, Default)]
pub struct LiveState {
    segments: HashMap<u64, Range>,
    /// The mapped ranges of expandable segments, each with its stream, pool and id, so that adjacent ranges are not
    /// merged.
    mappings: Ranges<(StreamId, Pool, u64)>,
    mappings_so_far: u64,
    blocks: LiveBlocks,
    totals: Totals,
    /// Requested bytes of live blocks by category.
    by_category: [u64; Category::ALL.len()],
    contradictions: Contradictions,
}

impl From<&StartingState> for LiveState {
    fn from(state: &StartingState) -> Self {
        let mut live = Self::default();
        live.begin(state);
        live
    }
}

impl LiveState {
    /// Adds the blocks and segments that were live before the first event.
    pub fn begin(&mut self, state: &StartingState) {
        for range in &state.segments {
            self.reserve(range.bytes);
            self.segments.insert(range.address, *range);
        }
        for range in &state.mappings {
            self.map(*range);
        }
        for block in &state.blocks {
            self.add(&LiveBlock { block: *block, birth: None });
        }
    }

    /// The effect of an event of this device on its memory.
    #[inline]
    pub fn transition(&self, what: &What) -> Transition {
        let named = match *what {
            What::SegmentFree(range) => match self.segments.get(&range.address) {
                Some(known) if known.bytes == range.bytes => Named::Live,
                _ => Named::Unknown,
            },
            _ => match what.block().and_then(|key| self.blocks.get(key)) {
                None => Named::Unknown,
                Some(live) if live.block.free_requested => Named::Waiting,
                Some(_) => Named::Live,
            },
        };
        transition(what.kind(), named)
    }

    /// Applies an event of this device, without its index and stage.
    pub fn follow(&mut self, event: &Event) {
        self.apply(event, self.transition(&event.what), 0, &Stage::default());
    }

    /// Applies the event with index `number` of the recording, which concerns this device and occurs in `stage`; `done`
    /// is its effect. Returns the block that is no longer live, if any.
    #[inline]
    pub fn apply(&mut self, event: &Event, done: Transition, number: u64, stage: &Stage) -> Option<Ended> {
        self.contradictions.count(done);
        match (event.what, done) {
            (What::Alloc(alloc), _) => {
                let block = StartingBlock { alloc, stack: event.stack, free_requested: false };
                let birth = Some(Outside { event: number, time_ns: event.time_ns, stage: *stage });
                return self.add(&LiveBlock { block, birth });
            }
            (What::FreeRequested(key), Transition::FreeRequested) => {
                let live = self.blocks.get_mut(key)?;
                live.block.free_requested = true;
                let (block, ended) = (live.block, Ended::of(live));
                self.end(&block);
                return Some(ended);
            }
            (What::FreeCompleted(key), Transition::FreeCompleted { .. }) => {
                let live = *self.blocks.remove(key)?;
                return self.complete(&live);
            }
            (What::Tag(key, category), Transition::Tagged { is_live }) => {
                let alloc = &mut self.blocks.get_mut(key)?.block.alloc;
                let former = std::mem::replace(&mut alloc.category, category);
                if is_live {
                    let [from, to] = [former as usize, category as usize];
                    self.by_category[from] = self.by_category[from].wrapping_sub(alloc.requested);
                    self.by_category[to] = self.by_category[to].wrapping_add(alloc.requested);
                }
            }
            (What::SegmentAlloc(range), _) => {
                self.reserve(range.bytes);
                self.segments.insert(range.address, range);
            }
            (What::SegmentFree(range), _) => {
                self.release(range.bytes);
                self.segments.remove(&range.address);
            }
            (What::SegmentMap(range), _) => self.map(range),
            (What::SegmentUnmap(range), _) => {
                self.release(range.bytes);
                self.mappings.remove(range.address, range.address.saturating_add(range.bytes));
            }
            (What::DeviceUsed(bytes), _) => self.totals.device_used = bytes,
            _ => {}
        }
        None
    }

    /// Returns the number of blocks that are live or awaiting free.
    pub fn block_count(&self) -> usize {
        self.blocks.len()
    }

    /// The current totals.
    pub fn totals(&self) -> &Totals {
        &self.totals
    }

    /// The requested bytes of live blocks by category.
    pub fn by_category(&self) -> &[u64; Category::ALL.len()] {
        &self.by_category
    }

    /// Returns the live blocks in allocation order; blocks from before the recording are ordered by key.
    pub fn blocks(&self) -> Vec<LiveBlock> {
        let mut blocks: Vec<LiveBlock> = self.blocks.iter().copied().collect();
        blocks.sort_unstable_by_key(|live| (live.birth.map(|birth| birth.event), live.block.alloc.block));
        blocks
    }

    /// Returns the state in the form of a starting state of `device`: blocks by key, ranges by address.
    pub fn state(&self, device: DeviceId) -> StartingState {
        let mut blocks: Vec<StartingBlock> = self.blocks.iter().map(|live| live.block).collect();
        blocks.sort_unstable_by_key(|block| block.alloc.block);
        StartingState { device, segments: self.segments(), mappings: self.mappings(), blocks }
    }

    /// Returns the segments by address.
    pub fn segments(&self) -> Vec<Range> {
        let mut segments: Vec<Range> = self.segments.values().copied().collect();
        segments.sort_unstable_by_key(|range| range.address);
        segments
    }

    /// Returns the mapped ranges by address.
    pub fn mappings(&self) -> Vec<Range> {
        let range = |(address, end, (stream, pool, _))| Range { address, bytes: end - address, stream, pool };
        self.mappings.iter().map(range).collect()
    }

    /// Adds a block that is live or awaiting free. Returns the earlier block with the same key if it was live.
    pub fn add(&mut self, live: &LiveBlock) -> Option<Ended> {
        let StartingBlock { alloc, free_requested, .. } = live.block;
        let former = self.blocks.insert(live);
        let ended = former.and_then(|former| self.complete(&former));
        // Wrapping arithmetic: the sizes in a malicious file may overflow, and each is subtracted again later.
        self.totals.active = self.totals.active.wrapping_add(alloc.allocated);
        if !free_requested {
            self.totals.requested = self.totals.requested.wrapping_add(alloc.requested);
            self.totals.allocated = self.totals.allocated.wrapping_add(alloc.allocated);
            let bytes = &mut self.by_category[alloc.category as usize];
            *bytes = bytes.wrapping_add(alloc.requested);
        }
        ended
    }

    /// Returns and resets the number of events that contradicted earlier events, by kind of contradiction.
    pub(crate) fn take_contradictions(&mut self) -> Contradictions {
        std::mem::take(&mut self.contradictions)
    }

    pub(crate) fn set_driver_totals(&mut self, totals: &Totals) {
        (self.totals.reserved, self.totals.device_used) = (totals.reserved, totals.device_used);
    }

    /// Marks a block as free for reuse. Returns the block if it was live.
    fn complete(&mut self, live: &LiveBlock) -> Option<Ended> {
        let block = live.block;
        self.totals.active = self.totals.active.wrapping_sub(block.alloc.allocated);
        (!block.free_requested).then(|| {
            self.end(&block);
            Ended::of(live)
        })
    }

    fn end(&mut self, block: &StartingBlock) {
        self.totals.requested = self.totals.requested.wrapping_sub(block.alloc.requested);
        self.totals.allocated = self.totals.allocated.wrapping_sub(block.alloc.allocated);
        let bytes = &mut self.by_category[block.alloc.category as usize];
        *bytes = bytes.wrapping_sub(block.alloc.requested);
    }

    fn map(&mut self, Range { address, bytes, stream, pool }: Range) {
        self.reserve(bytes);
        self.mappings_so_far += 1;
        self.mappings.insert(address, address.saturating_add(bytes), (stream, pool, self.mappings_so_far));
    }

    fn reserve(&mut self, bytes: u64) {
        self.totals.reserved = self.totals.reserved.saturating_add(bytes);
    }

    fn release(&mut self, bytes: u64) {
        // As in a replay: a recording may release memory that it does not know.
        self.totals.reserved = self.totals.reserved.saturating_sub(bytes);
    }
}

/// Starts a trace that is a window of a longer recording. Adds the blocks and segments that are live at that point on
/// each of the devices `known`, and adds their totals to `start`. Returns the keys of the blocks, in order.
pub(crate) fn begin_window<'a>(
    builder: &mut TraceBuilder,
    states: impl Iterator<Item = (DeviceId, &'a LiveState)>,
    known: &[DeviceId],
    mut start: Start,
) -> Vec<BlockKey> {
    let (mut keys, mut births): (Vec<BlockKey>, Vec<Option<Outside>>) = Default::default();
    // Steps and marks carry a device that may have no memory.
    for (device, live) in states.filter(|(device, _)| known.contains(device)) {
        let blocks = live.blocks();
        births.extend(blocks.iter().map(|block| block.birth));
        keys.extend(blocks.iter().map(|block| block.block.alloc.block));
        let state = StartingState {
            device,
            segments: live.segments(),
            mappings: live.mappings(),
            blocks: blocks.iter().map(|block| block.block).collect(),
        };
        builder.set_starting_state(&state);
        let totals = live.totals();
        // A malicious file may claim anything; no sum of sizes overflows below this.
        let reserved = totals.reserved.min(1 << 61);
        start.devices.push(DeviceStart { device, device_used: totals.device_used, reserved });
    }
    for &device in known {
        if start.devices.iter().all(|with_memory| with_memory.device != device) {
            start.devices.push(DeviceStart { device, ..DeviceStart::default() });
        }
    }
    builder.set_start(start, births);
    keys
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::StackId;

    #[test]
    fn what_is_unmapped_in_part_is_mapped_in_part() {
        let range = |address, bytes| Range { address, bytes, stream: StreamId(0), pool: Pool::Large };
        let mut live = LiveState::default();
        let mut left_after = |steps: &[What]| {
            for &what in steps {
                live.follow(&Event { time_ns: 0, device: DeviceId(0), stack: StackId::NONE, what });
            }
            live.mappings().iter().map(|range| (range.address, range.bytes)).collect::<Vec<_>>()
        };
        let (map, unmap) = (What::SegmentMap, What::SegmentUnmap);
        assert_eq!(left_after(&[map(range(100, 100)), map(range(200, 50))]), [(100, 100), (200, 50)]);
        assert_eq!(left_after(&[unmap(range(150, 60))]), [(100, 50), (210, 40)]);
        let left = left_after(&[unmap(range(120, 10)), unmap(range(0, 50))]);
        assert_eq!(left, [(100, 20), (130, 20), (210, 40)]);
    }
}
