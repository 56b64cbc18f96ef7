//! A simulated caching allocator that executes requests and records them, for property tests with valid recordings.
//!
//! What a snapshot of PyTorch cannot say is not ordered. A traced free gives the requested size alone, so blocks that
//! were there before the first event have their request rounded to 512 bytes, and no more; a block of the large pool
//! may get a rest that is too small to split off only once recording runs. A mapped range touches no other: pages that
//! touch would serve one block across both.

use std::collections::BTreeMap;

use highwater_snapshots::event::{Alloc, Event, Oom, Range, What};
use highwater_snapshots::trace::{DeviceFacts, Header};
use highwater_snapshots::{
    Category, DeviceId, OpId, Phase, Pool, ScopeId, StackId, StartingBlock, StartingState, StreamId, StringId, Trace,
    TraceBuilder,
};
use proptest::collection::vec;
use proptest::prelude::*;

/// Rests of at most so many bytes are not split off in the large pool.
const SPLIT: u64 = 1 << 20;

/// What is to be done next, by numbers that are taken as far as they go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Order {
    kind: u8,
    device: usize,
    number: usize,
    bytes: u64,
    stack: u32,
    pause_ns: u64,
}

/// Orders for two devices.
pub(crate) fn orders(most: usize) -> impl Strategy<Value = Vec<Order>> {
    let order = (0..16_u8, 0..2_usize, any::<usize>(), 1..(1_u64 << 20), 0..4_u32, 0..5000_u64);
    vec(order, 0..most).prop_map(|orders| {
        let order =
            |(kind, device, number, bytes, stack, pause_ns)| Order { kind, device, number, bytes, stack, pause_ns };
        orders.into_iter().map(order).collect()
    })
}

/// A recording of `orders`, carried out after those of `before`.
pub(crate) fn recorded(before: &[Order], orders: &[Order], growth: Growth) -> Trace {
    let mut devices = [Device::new(0, growth), Device::new(1, growth)];
    for order in before {
        devices[order.device].carry_out(order, State::Before);
    }
    let mut builder = TraceBuilder::default();
    let started_unix_us = 1_790_000_000_000_000;
    builder.set_header(Header { recorder: "highwater 0.1.0".to_owned(), started_unix_us, ..Header::default() });
    builder.tables().strings = vec!["half way".to_owned()];
    for device in &devices {
        let settings = vec![("expandable_segments".to_owned(), (growth == Growth::Mapped).to_string())];
        builder.set_device(DeviceFacts { device: device.id, settings, ..DeviceFacts::default() });
        builder.set_starting_state(&device.starting_state());
    }
    let mut time_ns = 0;
    for order in orders {
        time_ns += order.pause_ns;
        let device = &mut devices[order.device];
        for what in device.carry_out(order, State::Recorded) {
            let is_everywhere = matches!(what, What::Step(_) | What::Phase(_));
            let id = if is_everywhere { DeviceId(0) } else { device.id };
            builder.push(&Event { time_ns, device: id, stack: StackId::NONE, what });
        }
    }
    builder.finish()
}

/// How memory comes from the driver: `expandable_segments`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Growth {
    /// Segment by segment. A small rest in the large pool is not split off.
    Segments,
    /// Pages are mapped. Every rest is split off.
    Mapped,
}

/// Whether what happens is in the recording.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Before,
    Recorded,
}

#[derive(Clone, Copy, Debug)]
struct Live {
    alloc: Alloc,
    segment: u64,
    is_waiting: bool,
}

#[derive(Clone, Debug)]
struct Segment {
    range: Range,
    /// The ends of its free ranges, by their first bytes.
    free: BTreeMap<u64, u64>,
}

#[derive(Clone, Debug)]
struct Device {
    id: DeviceId,
    growth: Growth,
    segments: BTreeMap<u64, Segment>,
    blocks: Vec<Live>,
    keys: u64,
    places: u64,
}

impl Device {
    fn new(id: u16, growth: Growth) -> Self {
        Self { id: DeviceId(id), growth, segments: BTreeMap::new(), blocks: Vec::new(), keys: 0, places: 0 }
    }

    fn starting_state(&self) -> StartingState {
        let ranges = |growth| {
            let segments = self.segments.values().filter(|_| self.growth == growth);
            segments.map(|segment| segment.range).collect()
        };
        let block =
            |live: &Live| StartingBlock { alloc: live.alloc, stack: StackId::NONE, free_requested: live.is_waiting };
        let blocks = self.blocks.iter().map(block).collect();
        StartingState { device: self.id, segments: ranges(Growth::Segments), mappings: ranges(Growth::Mapped), blocks }
    }

    fn carry_out(&mut self, order: &Order, state: State) -> Vec<What> {
        let Order { number, bytes, .. } = *order;
        match order.kind {
            0..=4 => self.alloc(bytes, Pool::Small, number),
            5..=6 => {
                let exact = ((bytes % 9 + 1) << 21) - bytes % 512;
                let cut = if state == State::Recorded { bytes % (3 << 19) / 512 * 512 } else { 0 };
                self.alloc(exact - cut.min(exact - (1 << 20) - 512), Pool::Large, number)
            }
            7..=8 => self.request(number).into_iter().collect(),
            9..=10 => {
                let request = self.request(number);
                let key = match request {
                    Some(What::FreeRequested(key)) => Some(key),
                    _ => None,
                };
                let completed = key.and_then(|key| self.complete(|live| live.alloc.block == key));
                request.into_iter().chain(completed).collect()
            }
            11 => self.complete(|live| live.is_waiting).into_iter().collect(),
            12 => self.release(number).into_iter().collect(),
            13 => vec![What::DeviceUsed(bytes)],
            14 => {
                let (op, scope) = (OpId::NONE, ScopeId::NONE);
                vec![What::Oom(Oom {
                    requested: bytes,
                    device_free: number as u64,
                    stream: Some(StreamId(1)),
                    op,
                    scope,
                })]
            }
            _ => vec![match number % 4 {
                0 => What::Step(order.stack),
                1 => What::Phase(Phase::ALL[number / 4 % Phase::ALL.len()]),
                2 => What::Mark(StringId(0)),
                _ => match self.blocks.first() {
                    Some(live) => What::Tag(live.alloc.block, Category::Gradient),
                    None => What::Mark(StringId(0)),
                },
            }],
        }
    }

    /// Hands out a block in the first free range that holds it, after a segment is obtained where there is none.
    fn alloc(&mut self, requested: u64, pool: Pool, number: usize) -> Vec<What> {
        let rounded = requested.next_multiple_of(512);
        let stream = StreamId(number as u64 % 2 * 0x5500_1230);
        let mut events = Vec::new();
        let (segment, address, end) = match self.find(rounded, pool, stream) {
            Some(found) => found,
            None => {
                events.push(self.obtain(pool, stream));
                self.find(rounded, pool, stream).expect("a new segment holds any request")
            }
        };
        let rest = end - address - rounded;
        let is_split = pool == Pool::Small || self.growth == Growth::Mapped || rest > SPLIT;
        let allocated = if is_split { rounded } else { rounded + rest };
        let free = &mut self.segments.get_mut(&segment).expect("it was found").free;
        free.remove(&address);
        if address + allocated < end {
            free.insert(address + allocated, end);
        }
        let (block, category) = (self.keys, Category::ALL[number % Category::ALL.len()]);
        self.keys += 1;
        let (op, scope) = (OpId::NONE, ScopeId::NONE);
        let alloc = Alloc { block, address, requested, allocated, stream, pool, category, op, scope };
        self.blocks.push(Live { alloc, segment, is_waiting: false });
        events.push(What::Alloc(alloc));
        events
    }

    fn find(&self, bytes: u64, pool: Pool, stream: StreamId) -> Option<(u64, u64, u64)> {
        let alike = self.segments.iter().filter(|(_, it)| it.range.pool == pool && it.range.stream == stream);
        let free = alike.flat_map(|(&segment, it)| it.free.iter().map(move |(&start, &end)| (segment, start, end)));
        free.into_iter().find(|(_, start, end)| end - start >= bytes)
    }

    fn obtain(&mut self, pool: Pool, stream: StreamId) -> What {
        let bytes = if pool == Pool::Small { 2 << 20 } else { 20 << 20 };
        let address = 0x7f00_0000_0000 + (self.places << 26);
        self.places += 1;
        let range = Range { address, bytes, stream, pool };
        let free = BTreeMap::from([(address, address + bytes)]);
        self.segments.insert(address, Segment { range, free });
        match self.growth {
            Growth::Segments => What::SegmentAlloc(range),
            Growth::Mapped => What::SegmentMap(range),
        }
    }

    fn request(&mut self, number: usize) -> Option<What> {
        let mut live: Vec<&mut Live> = self.blocks.iter_mut().filter(|live| !live.is_waiting).collect();
        let at = number.checked_rem(live.len())?;
        live[at].is_waiting = true;
        Some(What::FreeRequested(live[at].alloc.block))
    }

    fn complete(&mut self, is_wanted: impl Fn(&Live) -> bool) -> Option<What> {
        let at = self.blocks.iter().position(is_wanted)?;
        let Live { alloc, segment, .. } = self.blocks.remove(at);
        let free = &mut self.segments.get_mut(&segment)?.free;
        let (mut start, mut end) = (alloc.address, alloc.address + alloc.allocated);
        if let Some(after) = free.remove(&end) {
            end = after;
        }
        if let Some((&before, _)) = free.range(..start).next_back().filter(|(_, reach)| **reach == start) {
            start = before;
        }
        free.insert(start, end);
        Some(What::FreeCompleted(alloc.block))
    }

    /// Gives back a segment without blocks.
    fn release(&mut self, number: usize) -> Option<What> {
        let is_empty = |segment: &&Segment| segment.free.get(&segment.range.address).copied() == Some(end_of(segment));
        let empty: Vec<u64> = self.segments.values().filter(is_empty).map(|segment| segment.range.address).collect();
        let segment = self.segments.remove(&empty[number.checked_rem(empty.len())?])?;
        let range = segment.range;
        Some(match self.growth {
            Growth::Segments => What::SegmentFree(range),
            Growth::Mapped => What::SegmentUnmap(range),
        })
    }
}

fn end_of(segment: &Segment) -> u64 {
    segment.range.address + segment.range.bytes
}
