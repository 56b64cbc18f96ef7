//! Creates recordings with contradictory events, for property tests on any recording, and compares traces.

use proptest::collection::vec;
use proptest::prelude::*;

use highwater_snapshots::event::{Alloc, Event, Oom, Range, What};
use highwater_snapshots::trace::{Annotation, Attribute, Header, Owner};
use highwater_snapshots::{
    BlockId, Category, DeviceId, EventId, OpId, Phase, Pool, ScopeId, SegmentId, StackId, StartingBlock, StartingState,
    StreamId, StringId, Trace, TraceBuilder,
};

/// Everything that a trace says, for comparison: its columns and tables, whole.
pub(crate) fn whole(trace: &Trace) -> String {
    let problems: Vec<String> = trace.problems.iter().map(ToString::to_string).collect();
    let trace = trace.clone().edited(|trace| trace.problems.clear());
    format!("{trace:#?}\n{problems:#?}")
}

/// A block of `requested` bytes at a place that follows from its key.
pub(crate) fn alloc(block: u64, requested: u64, category: Category) -> Alloc {
    Alloc {
        block,
        address: 0x7f00_0000_0000 + block * 4096,
        requested,
        allocated: requested.next_multiple_of(512),
        stream: StreamId(block % 3 / 2 * 0x5500_1230),
        pool: if requested > 1 << 20 { Pool::Large } else { Pool::Small },
        category,
        op: OpId::NONE,
        scope: ScopeId(0),
    }
}

/// An event over few keys and places, so that many contradict each other: frees of unknown blocks, blocks allocated
/// twice, segments released that were never held.
pub(crate) fn event() -> impl Strategy<Value = Event> {
    let key = || prop_oneof![8 => 0..8_u64, 1 => Just(1_u64 << 40), 1 => Just(u64::MAX)];
    let range = || {
        (0..4_u64, 1..3_u64).prop_map(|(place, bytes)| Range {
            address: place << 21,
            bytes: bytes << 20,
            stream: StreamId(place % 2),
            pool: Pool::Small,
        })
    };
    let category = || (0..Category::ALL.len()).prop_map(|code| Category::ALL[code]);
    let size = prop_oneof![9 => 0..10_000_u64, 1 => Just(u64::MAX)];
    let made = (key(), size, category()).prop_map(|(key, size, category)| {
        let sized = Alloc { requested: size, allocated: size | 511, ..alloc(key % 1000, 1, category) };
        What::Alloc(Alloc { block: key, op: OpId(key as u32 % 5), ..sized })
    });
    let oom = (any::<u64>(), any::<u64>());
    let what = prop_oneof![
        6 => made,
        4 => key().prop_map(What::FreeRequested),
        4 => key().prop_map(What::FreeCompleted),
        3 => key().prop_map(What::Used),
        2 => (key(), category()).prop_map(|(key, category)| What::Tag(key, category)),
        1 => range().prop_map(What::SegmentAlloc),
        1 => range().prop_map(What::SegmentFree),
        1 => range().prop_map(What::SegmentMap),
        1 => range().prop_map(What::SegmentUnmap),
        1 => oom.prop_map(|(requested, device_free)| {
            What::Oom(Oom { requested, device_free, stream: None, op: OpId::NONE, scope: ScopeId(2) })
        }),
        1 => any::<u64>().prop_map(What::DeviceUsed),
        1 => (0..3_u32).prop_map(What::Step),
        1 => (0..Phase::ALL.len()).prop_map(|code| What::Phase(Phase::ALL[code])),
        1 => (0..3_u32).prop_map(|text| What::Mark(StringId(text))),
    ];
    let stack = prop_oneof![(0..9_u32).prop_map(StackId), Just(StackId::NONE)];
    (0..1_000_000_u64, 0..3_u16, stack, what).prop_map(|(time_ns, device, stack, what)| Event {
        time_ns,
        device: DeviceId(device),
        stack,
        what,
    })
}

/// Blocks and segments of a device before its first event.
pub(crate) fn starting_state(device: u16) -> impl Strategy<Value = StartingState> {
    vec((0..8_u64, any::<bool>()), 0..5).prop_map(move |blocks| StartingState {
        device: DeviceId(device),
        segments: vec![Range { address: 1 << 21, bytes: 1 << 20, stream: StreamId(1), pool: Pool::Small }],
        mappings: vec![Range { address: 9 << 21, bytes: 1 << 20, stream: StreamId(0), pool: Pool::Large }],
        blocks: blocks
            .into_iter()
            .map(|(key, free_requested)| StartingBlock {
                alloc: alloc(key, 640, Category::Parameter),
                stack: StackId(3),
                free_requested,
            })
            .collect(),
    })
}

/// Annotations and attributes of whatever there is, by numbers that are taken as far as they go.
#[derive(Clone, Debug)]
pub(crate) struct Named {
    annotations: Vec<(u32, usize, usize, Option<u64>, bool)>,
    attributes: Vec<(u8, usize, u32, u32)>,
}

/// The texts that annotations, attributes and marks name.
pub(crate) const NAMES: [&str; 4] = ["forward", "ProfilerStep#1", "mlp", "user_metadata"];

/// See [`Named`].
pub(crate) fn named() -> impl Strategy<Value = Named> {
    let names = NAMES.len() as u32;
    let time = prop_oneof![any::<u64>().prop_map(Some), Just(None)];
    let annotation = (0..names, any::<usize>(), any::<usize>(), time, any::<bool>());
    let attribute = (0..3_u8, any::<usize>(), 0..names, 0..names);
    (vec(annotation, 0..9), vec(attribute, 0..9))
        .prop_map(|(annotations, attributes)| Named { annotations, attributes })
}

impl Named {
    /// The rows for a trace of `events` events whose baseline has `blocks` blocks and `segments` segments.
    pub(crate) fn rows(&self, events: usize, blocks: usize, segments: usize) -> (Vec<Annotation>, Vec<Attribute>) {
        let annotations = self.annotations.iter().map(|&(name, first, length, start_ns, is_guessed)| {
            let first = first % (events + 1);
            let end = first + length % (events - first + 1);
            let (first, end) = (EventId::from_index(first), EventId::from_index(end));
            let device = DeviceId(3);
            Annotation { name: StringId(name), device, start_ns, end_ns: None, first, end, is_guessed }
        });
        let attributes = self.attributes.iter().filter_map(|&(kind, number, name, value)| {
            let of = |count: usize| number.checked_rem(count);
            let owner = match kind {
                0 => Owner::Event(EventId::from_index(of(events)?)),
                1 => Owner::Block(BlockId::from_index(of(blocks)?)),
                _ => Owner::Segment(SegmentId::from_index(of(segments)?)),
            };
            Some(Attribute { owner, name: StringId(name), value: StringId(value) })
        });
        (annotations.collect(), attributes.collect())
    }
}

/// How many blocks and segments there are before the first event.
pub(crate) fn baseline(states: &[StartingState]) -> (usize, usize) {
    let segments = states.iter().map(|state| state.segments.len() + state.mappings.len()).sum();
    (states.iter().map(|state| state.blocks.len()).sum(), segments)
}

/// What makes the trace, without a file between.
pub(crate) fn builder_of(header: Header, states: &[StartingState], events: &[Event], named: &Named) -> TraceBuilder {
    let mut builder = TraceBuilder::default();
    builder.set_header(header);
    builder.tables().strings = NAMES.map(String::from).to_vec();
    let (blocks, segments) = baseline(states);
    let (annotations, attributes) = named.rows(events.len(), blocks, segments);
    annotations.into_iter().for_each(|annotation| builder.add_annotation(annotation));
    attributes.into_iter().for_each(|attribute| builder.add_attribute(attribute));
    states.iter().for_each(|state| builder.set_starting_state(state));
    events.iter().for_each(|event| builder.push(event));
    builder
}
