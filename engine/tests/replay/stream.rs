//! Tests that a recording replayed as a stream of events gives the same result as its replay in memory.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use highwater_allocator::AllocConfig;
use highwater_allocator::replay::{
    BlockOverride, DeviceModel, Plan, ReplayOutcome, Share, Stream, StreamStart, TieBreak, addresses_end,
    recorded_config, replay,
};
use highwater_recorder::snapshots::event::{Event, EventKind};
use highwater_recorder::snapshots::format::{Windows, read_bytes, write_trace};
use highwater_recorder::snapshots::{DeviceId, Trace, TraceBuilder};
use proptest::prelude::*;

use crate::decisions;
use crate::scenarios::recorded;
use crate::strange::{recording, settings};

const MIB: u64 = 1 << 20;

/// What a replay decides, and how it ends.
type Decided = (Vec<(EventKind, u64)>, ReplayOutcome);

fn in_memory(trace: &Trace, plan: &Plan<'_>) -> Decided {
    let replay = replay(trace, plan);
    (decisions(&replay.trace, plan.device), replay.outcome)
}

/// Replays a recording as a stream; `changes` are those to the blocks that its events allocate.
fn as_a_stream(
    (windows, start): (&Windows, &StreamStart),
    plan: &Plan<'_>,
    changes: &HashMap<u64, BlockOverride>,
) -> Decided {
    let (mut stream, _, state) = Stream::new(start, plan);
    let mut events: Vec<Event> = Vec::new();
    let mut take = |first: u64, run: &[Event]| {
        for (number, event) in (first..).zip(run) {
            stream.take(number, event, changes.get(&number).copied().unwrap_or_default())?;
            events.append(stream.events());
        }
        ControlFlow::Continue(())
    };
    windows.read(0..windows.events(), &mut take).unwrap();
    stream.end();
    events.append(stream.events());
    let mut builder = TraceBuilder::with_capacity(events.len());
    builder.set_starting_state(&state);
    events.iter().for_each(|event| builder.push(event));
    (decisions(&builder.finish(), plan.device), stream.finish())
}

/// Replays `trace` in both ways, unchanged and with `config` on a device of `capacity` bytes.
fn compare(
    trace: &Trace,
    recorded: &AllocConfig,
    config: &AllocConfig,
    capacity: Option<u64>,
    reallocates_start: bool,
) {
    let bytes: Arc<[u8]> = write_trace(Vec::new(), trace).unwrap().into();
    let trace = read_bytes(&bytes).unwrap();
    let windows = Windows::open(Arc::new(bytes), &mut |_| ControlFlow::Continue(())).unwrap();
    let start = StreamStart::new(windows.base(), windows.starting(), addresses_end(&trace));
    let stream = (&windows, &start);
    let device = trace.main_device();
    let follow = Plan::unchanged(device, recorded.clone(), TieBreak::default());
    let followed = in_memory(&trace, &follow);
    assert_eq!(as_a_stream(stream, &follow, &HashMap::new()), followed);
    let changed = Plan {
        config: config.clone(),
        answers: DeviceModel::Modelled(capacity),
        cache_flushes: &followed.1.cache_flushes,
        recorded_capacity: Some(64 * MIB),
        reallocates_start,
        ..follow
    };
    assert_eq!(as_a_stream(stream, &changed, &HashMap::new()), in_memory(&trace, &changed));
    let overrides: Vec<BlockOverride> = trace.blocks.ids().map(|id| block_override(id.0)).collect();
    let allocs = trace.blocks.alloc.iter().zip(&overrides).filter(|(event, _)| event.is_some());
    let changes = allocs.map(|(event, change)| (u64::from(event.0), *change)).collect();
    let changed = Plan { overrides: Some(&overrides), reallocates_start: true, ..changed };
    assert_eq!(as_a_stream(stream, &changed, &changes), in_memory(&trace, &changed));
}

/// Leaves out some blocks, and halves others.
fn block_override(row: u32) -> BlockOverride {
    let share = if row.is_multiple_of(3) { Share::new(1, 2).unwrap() } else { Share::WHOLE };
    BlockOverride { is_removed: row % 5 == 1, share, ..BlockOverride::default() }
}

#[test]
fn scenarios_are_replayed_alike() {
    let expandable: AllocConfig = "expandable_segments:True".parse().unwrap();
    for name in ["mlp", "gpt2", "rnn", "fcn", "frozen-branch"] {
        let trace = recorded(name, None);
        let (config, _) = recorded_config(trace.device_facts(DeviceId(0)));
        compare(&trace, &config, &expandable, None, true);
        compare(&trace, &config, &config, Some(24 * MIB), false);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn whatever_a_recording_says_both_replays_are_alike(
        trace in recording(),
        config in settings(),
        recorded in settings(),
        capacity in prop::option::of(prop::sample::select(vec![0, 40 * MIB, 1 << 40, u64::MAX])),
        reallocates_start in any::<bool>(),
    ) {
        compare(&trace, &recorded, &config, capacity, reallocates_start);
    }
}
