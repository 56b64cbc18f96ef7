//! Tests that a replay of a recording that no allocator could have made keeps the order of events and ends without a
//! panic.

use highwater_allocator::AllocConfig;
use highwater_allocator::replay::{BlockOverride, DeviceModel, Plan, Share, TieBreak, replay};
use highwater_recorder::snapshots::event::{Alloc, Event, Oom, Range, What};
use highwater_recorder::snapshots::trace::DeviceFacts;
use highwater_recorder::snapshots::{
    Category, DeviceId, OpId, Phase, Pool, ScopeId, StackId, StartingBlock, StartingState, StreamId, Trace,
    TraceBuilder,
};
use proptest::prelude::*;

const MIB: u64 = 1 << 20;

fn address() -> impl Strategy<Value = u64> {
    let places =
        [0, 512, 0x10_0000_0000, 0x10_0020_0000, 0x10_0140_0000, 1 << 62, (1 << 63) - MIB, u64::MAX - MIB, u64::MAX];
    prop_oneof![4 => prop::sample::select(places.to_vec()), 1 => any::<u64>()]
}

fn bytes() -> impl Strategy<Value = u64> {
    prop_oneof![
        6 => prop::sample::select(vec![0, 1, 512, MIB, 2 * MIB, 20 * MIB, 30 * MIB, 64 * MIB]),
        1 => prop::sample::select(vec![1 << 40, 1 << 60, 1 << 61]),
    ]
}

fn range() -> impl Strategy<Value = Range> {
    (address(), bytes(), 0..2_u64, any::<bool>()).prop_map(|(address, bytes, stream, is_small)| Range {
        address,
        bytes,
        stream: StreamId(if stream == 1 { u64::MAX } else { 0 }),
        pool: if is_small { Pool::Small } else { Pool::Large },
    })
}

fn alloc() -> impl Strategy<Value = Alloc> {
    (0..12_u64, range(), bytes()).prop_map(|(block, range, allocated)| Alloc {
        block,
        address: range.address,
        requested: range.bytes,
        allocated,
        stream: range.stream,
        pool: range.pool,
        category: Category::Activation,
        op: OpId::NONE,
        scope: ScopeId::NONE,
    })
}

fn what() -> impl Strategy<Value = What> {
    prop_oneof![
        6 => alloc().prop_map(What::Alloc),
        4 => (0..12_u64).prop_map(What::FreeRequested),
        4 => (0..12_u64).prop_map(What::FreeCompleted),
        2 => range().prop_map(What::SegmentAlloc),
        2 => range().prop_map(What::SegmentFree),
        2 => range().prop_map(What::SegmentMap),
        2 => range().prop_map(What::SegmentUnmap),
        1 => (0..12_u64).prop_map(|block| What::Tag(block, Category::Gradient)),
        1 => (0..12_u64).prop_map(What::Used),
        1 => (0..3_u32).prop_map(What::Step),
        1 => Just(What::Phase(Phase::Backward)),
        1 => bytes().prop_map(|requested| {
            What::Oom(Oom { requested, device_free: MIB, stream: None, op: OpId::NONE, scope: ScopeId::NONE })
        }),
    ]
}

pub(crate) fn recording() -> impl Strategy<Value = Trace> {
    let start = (prop::collection::vec(range(), 0..4), prop::collection::vec(range(), 0..4));
    let blocks = prop::collection::vec((alloc(), any::<bool>()), 0..6);
    let capacity = prop::sample::select(vec![0, 64 * MIB, 1 << 40, u64::MAX]);
    (start, blocks, prop::collection::vec(what(), 0..80), capacity).prop_map(
        |((segments, mappings), blocks, events, capacity_bytes)| {
            let mut builder = TraceBuilder::with_capacity(events.len());
            builder.set_device(DeviceFacts { capacity_bytes, ..DeviceFacts::default() });
            let blocks = blocks
                .into_iter()
                .map(|(alloc, free_requested)| StartingBlock { alloc, stack: StackId::NONE, free_requested })
                .collect();
            builder.set_starting_state(&StartingState { device: DeviceId(0), segments, mappings, blocks });
            for (place, what) in events.into_iter().enumerate() {
                builder.push(&Event { time_ns: place as u64, device: DeviceId(0), stack: StackId::NONE, what });
            }
            builder.finish()
        },
    )
}

pub(crate) fn settings() -> impl Strategy<Value = AllocConfig> {
    let texts = [
        "",
        "expandable_segments:True",
        "max_split_size_mb:20",
        "garbage_collection_threshold:0.5,per_process_memory_fraction:0.5",
        "expandable_segments:True,large_segment_size_mb:1099511627776",
        "large_segment_size_mb:1099511627776",
    ];
    prop::sample::select(texts.map(|text| text.parse().expect("well formed")).to_vec())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn whatever_a_recording_says_its_replay_ends_in_order(
        trace in recording(),
        config in settings(),
        recorded in settings(),
        capacity in prop::option::of(prop::sample::select(vec![0, 40 * MIB, 1 << 40, u64::MAX])),
        reallocates_start in any::<bool>(),
        has_fates in any::<bool>(),
    ) {
        let overrides: Vec<BlockOverride> = (0..trace.blocks.len())
            .map(|row| BlockOverride {
                is_removed: row % 5 == 0,
                ends_after: trace.blocks.last_use[row],
                share: if row % 3 == 0 { Share::new(3, 2).expect("2 is not 0") } else { Share::WHOLE },
            })
            .collect();
        let device_total = trace.device_facts(DeviceId(0)).map(|facts| facts.capacity_bytes).filter(|bytes| *bytes > 0);
        let follow = Plan { device_total, ..Plan::unchanged(DeviceId(0), recorded.clone(), TieBreak::default()) };
        let followed = replay(&trace, &follow);
        prop_assert!(followed.source.is_sorted());
        prop_assert!(followed.trace.events.time_ns.is_sorted());
        let modelled = replay(
            &trace,
            &Plan {
                config,
                answers: DeviceModel::Modelled(capacity),
                overrides: has_fates.then_some(overrides.as_slice()),
                cache_flushes: &followed.outcome.cache_flushes,
                recorded_capacity: device_total,
                reallocates_start,
                ..follow
            },
        );
        prop_assert!(modelled.source.is_sorted());
        prop_assert!(modelled.trace.events.time_ns.is_sorted());
        let is_unmatched = |trace: &Trace| (trace.trust.unmatched_frees, trace.trust.repeated_allocs);
        prop_assert_eq!(is_unmatched(&modelled.trace), is_unmatched(&trace), "no event contradicts another");
    }
}
