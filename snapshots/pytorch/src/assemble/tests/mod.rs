//! Tests of the assembly of whole snapshots.

pub(super) mod sample;
mod model;

use proptest::prelude::*;

use super::assemble;
use crate::raw::{BlockState, Extras, RawBlock, RawSnapshot};
use highwater_analysis::verify::verify_trace;
use highwater_snapshots::event::EventKind;
use highwater_snapshots::ids::{BlockId, EventId, OpId, SegmentId};
use highwater_snapshots::trace::Owner;
use highwater_snapshots::{Category, DeviceId, Phase, Trace};

use model::{Model, PieceState, Settings, Step};
use sample::{MIB, Sample, private, rows, stack, totals};

fn step() -> impl Strategy<Value = Step> {
    let bytes = prop_oneof![1..MIB, MIB..12 * MIB, 8 * MIB..50 * MIB, Just(MIB), Just(19 * MIB + 7)];
    prop_oneof![
        6 => (bytes, 0_u64..2).prop_map(|(bytes, stream)| Step::Malloc { bytes, stream }),
        5 => (any::<usize>(), prop::bool::weighted(0.2)).prop_map(|(which, waits)| Step::Free { which, waits }),
        1 => any::<usize>().prop_map(|which| Step::Complete { which }),
        1 => Just(Step::EmptyCache),
    ]
}

fn settings() -> impl Strategy<Value = Settings> {
    (any::<bool>(), prop_oneof![Just(0), Just(4)], prop_oneof![3 => Just(0), 1 => Just(24)]).prop_map(
        |(is_expandable, divisions, max_split_mib)| Settings {
            is_expandable,
            divisions,
            max_split_mib: if is_expandable { 0 } else { max_split_mib },
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn totals_are_those_of_the_allocator_wherever_the_ring_begins(
        settings in settings(),
        steps in prop::collection::vec(step(), 1..120),
        cut in 0.0_f64..1.0,
        is_whole in any::<bool>(),
    ) {
        let mut model = Model::new(settings);
        for step in steps {
            model.step(step);
        }
        let cut = if is_whole { 0 } else { (cut * model.history.len() as f64) as usize };
        let trace = model.snapshot(cut).assemble();
        prop_assert!(trace.problems.is_empty(), "{:?}", trace.problems);
        prop_assert!(verify_trace(&trace).is_empty(), "{:?}", verify_trace(&trace));
        prop_assert_eq!(trace.events.len(), model.history.len() - cut);
        let trust = &trace.trust;
        prop_assert_eq!(trust.unmatched_frees + trust.repeated_allocs + trust.unmatched_releases, 0);

        // The baseline must be the model's state at the cut. If a block is larger than its rounded request and free
        // memory follows, a snapshot may not reveal how much larger.
        let before = cut.checked_sub(1).map(|last| model.history[last].pieces.clone()).unwrap_or_default();
        let mut missing: Vec<(usize, u64)> = Vec::new();
        let active: Vec<_> =
            before.iter().filter(|piece| matches!(piece.state, PieceState::Live | PieceState::Waiting)).collect();
        let baseline = trace.blocks.alloc.iter().filter(|alloc| !alloc.is_some()).count();
        prop_assert_eq!(baseline, active.len());
        for row in 0..baseline {
            let block = trace.blocks.get(BlockId(row as u32));
            let Some(piece) = active.iter().find(|piece| piece.address == block.address) else {
                return Err(TestCaseError::fail(format!("no block lies at {:#x}", block.address)));
            };
            prop_assert_eq!(block.requested, piece.requested);
            prop_assert_eq!(trace.was_waiting_at_start(BlockId(row as u32)), piece.state == PieceState::Waiting);
            if block.allocated != piece.size {
                let is_followed_by_free = before
                    .iter()
                    .any(|next| next.address == piece.address + piece.size && next.state == PieceState::Free);
                prop_assert!(is_followed_by_free && !settings.is_expandable, "{:?} {:?}", block, piece);
                prop_assert!(block.allocated < piece.size && piece.size - block.allocated <= MIB);
                missing.push((row, piece.size - block.allocated));
            }
        }
        for (index, found) in totals(&trace, 0).into_iter().enumerate() {
            let mut expected = match (cut + index).checked_sub(1) {
                Some(last) => model.history[last].totals,
                None => continue,
            };
            for &(row, bytes) in &missing {
                let is_after = |id: EventId| id.index().is_none_or(|event| event >= index);
                let waits = trace.was_waiting_at_start(BlockId(row as u32));
                if is_after(trace.blocks.free_requested[row]) && !waits {
                    expected.allocated -= bytes;
                }
                if is_after(trace.blocks.free_completed[row]) {
                    expected.active -= bytes;
                }
            }
            prop_assert_eq!(found, expected, "after event {}", index);
        }
    }
}

const LIVE: BlockState = BlockState::Allocated;
const FREE: BlockState = BlockState::Inactive;

fn attributes(trace: &Trace) -> Vec<(Owner, &str, &str)> {
    let text = |id| trace.tables.string(id);
    trace.attributes.iter().map(|row| (row.owner, text(row.name), text(row.value))).collect()
}

fn at(event: u32) -> Owner {
    Owner::Event(EventId(event))
}

#[test]
fn events_keep_their_order_kind_and_time() {
    let mut sample = Sample::of(&[
        ("segment_alloc", 0x1000, 2 * MIB),
        ("alloc", 0x1000, 100),
        ("free_requested", 0x1000, 100),
        ("free_completed", 0x1000, 100),
        ("snapshot", 0, 0),
        ("segment_free", 0x1000, 2 * MIB),
    ]);
    sample.segment(0x900_0000, &[(2 * MIB, 0, FREE)]);
    let trace = sample.assemble();
    let names: Vec<&str> = trace.events.kind.iter().map(|kind| kind.name()).collect();
    assert_eq!(names, ["segment_alloc", "alloc", "free_requested", "free_completed", "mark", "segment_free"]);
    assert_eq!(trace.events.time_ns, [0, 1000, 2000, 3000, 4000, 5000]);
    assert_eq!((trace.header.started_unix_us, trace.header.recorder.as_str()), (1_000_000, "PyTorch"));
    assert_eq!((trace.header.level.as_str(), trace.devices[0].driver.as_str()), ("events", "cuda"));
    assert_eq!(attributes(&trace), [(at(4), "action", "snapshot")]);
    assert_eq!(rows(&trace, 0)[2], [100, 512, 512, 4 * MIB]);
    assert_eq!(trace.problems, []);
    assert!(trace.trust.baseline_inferred);
    assert_eq!(trace.trust.sizes_inferred, 1);
}

#[test]
fn a_fused_free_is_one_event_that_does_both() {
    let mut sample = Sample::of(&[("alloc", 0x1000, 100), ("free", 0x1000, 100), ("free", 0x5000, 40)]);
    sample.segment(0x1000, &[(2 * MIB, 0, FREE)]);
    let trace = sample.assemble();
    assert_eq!(trace.events.kind, [EventKind::Alloc, EventKind::FreeCompleted, EventKind::FreeCompleted]);
    assert_eq!(
        rows(&trace, 0).iter().map(|row| (row[0], row[2])).collect::<Vec<_>>(),
        [(40, 512), (140, 1024), (40, 512), (0, 0)]
    );
    assert_eq!(attributes(&trace), [(at(1), "action", "free"), (at(2), "action", "free")]);
}

#[test]
fn devices_share_addresses_and_time_but_nothing_else() {
    let mut sample = Sample::of(&[("alloc", 0x1000, 100)]);
    sample.event(2, "alloc", 0x1000, 700);
    sample.event(255, "alloc", 0x1000, 4096);
    sample.event(0, "free_requested", 0x1000, 100);
    sample.event(2, "free_requested", 0x9000, 30);
    let state = |size, requested| [(size, requested, LIVE)];
    sample.segment_with(0x1000, &state(4096, 4096), |made| made.device = -1);
    let trace = sample.assemble();
    let devices: Vec<u16> = trace.events.device.iter().map(|device| device.0).collect();
    assert_eq!(devices, [0, 2, 255, 0, 2]);
    assert_eq!(totals(&trace, 0).last().map(|row| row.requested), Some(0));
    assert_eq!(totals(&trace, 2).last().map(|row| row.requested), Some(700));
    assert_eq!(totals(&trace, 255).last().map(|row| (row.requested, row.allocated)), Some((4096, 4096)));
    let host = trace.device_facts(DeviceId(255)).map(|facts| (facts.name.as_str(), facts.driver.as_str()));
    assert_eq!(host, Some(("pinned host memory", "host")));
    assert_eq!(trace.device_ids().len(), 3);
}

#[test]
fn devices_that_cannot_be_are_refused_and_counted() {
    let mut sample = Sample::of(&[]);
    sample.event(300, "alloc", 0x1000, 100);
    sample.segment_with(0x1000, &[(512, 100, LIVE)], |made| made.device = 400);
    let trace = sample.assemble();
    assert_eq!((trace.events.len(), trace.trust.events_lost), (0, 1));
    assert!(trace.problems[0].what.starts_with("1 event and 1 segment of devices"), "{:?}", trace.problems);
}

#[test]
fn what_has_no_column_stands_as_attributes_in_the_order_of_its_owners() {
    let mut sample = Sample::of(&[]);
    sample.event_with(0, "annotate", 0x1000, 100, |intake, draft| {
        draft.extras = Extras { user_metadata: intake.text("saved"), ..Extras::default() };
    });
    sample.event_with(0, "alloc", 0x2000, 100, |intake, draft| {
        draft.extras = Extras { compile_context: intake.text("Region 0/1"), ..private(1, 0) };
    });
    sample.event(0, "teleport", 0, 7);
    sample.event_with(0, "oom", 0, 900, |_, draft| draft.device_free = Some(77));
    sample.segment_with(0x1000, &[(512, 100, LIVE), (1024, 0, FREE)], |_| {});
    sample.segment_with(0x2000, &[(512, 100, LIVE)], |made| made.pool_id = (1, 0));
    let trace = sample.assemble();
    assert_eq!(
        attributes(&trace),
        [
            (at(0), "action", "annotate"),
            (at(0), "size", "100"),
            (at(0), "addr", "0x1000"),
            (at(0), "user_metadata", "saved"),
            (at(1), "pool_id", "(1, 0)"),
            (at(1), "compile_context", "Region 0/1"),
            (at(2), "action", "teleport"),
            (at(2), "size", "7"),
            (Owner::Segment(SegmentId(1)), "pool_id", "(1, 0)"),
        ]
    );
    assert!(trace.attributes.is_sorted_by_key(|row| row.owner));
    let marks = [0, 2].map(|row| trace.tables.string(highwater_snapshots::StringId(trace.events.subject[row])));
    assert_eq!(marks, ["saved", "teleport"]);
    assert_eq!((trace.ooms[0].requested, trace.ooms[0].device_free), (900, 77));
}

#[test]
fn stacks_ops_and_categories_reach_the_blocks() {
    let mut sample = Sample::of(&[]);
    sample.event_with(0, "alloc", 0x1000, 100, |intake, draft| {
        draft.stack = stack(intake, &[("empty", "t.cpp", 3), ("main", "train.py", 9)]);
        let text = intake.text("  File \"model.py\", line 4, in forward\n    x @ w\n").0;
        let forward = intake.texts(&[text]);
        draft.extras = Extras { forward, category: intake.text("optimizer_STATE"), ..Extras::default() };
    });
    let trace = sample.assemble();
    let block = trace.blocks.get(BlockId(0));
    assert_eq!((block.category, block.op), (Category::OptimizerState, OpId(0)));
    assert_eq!(trace.tables.stack_text(block.stack), ["t.cpp:3 empty", "train.py:9 main"]);
    assert_eq!(trace.tables.stack_text(trace.tables.ops[0].stack), ["model.py:4 forward"]);
    assert_eq!(trace.header.level, "stacks");
}

#[test]
fn annotations_come_from_their_list_and_from_historical_events() {
    let mut sample = Sample::of(&[("alloc", 0x1000, 100)]);
    for name in ["START", "END"] {
        sample.event_with(0, "user_defined", 0, 0, |intake, draft| {
            draft.stack = stack(intake, &[(name, "step 3", 0)]);
        });
    }
    sample.annotation("early", true, 999_990);
    sample.annotation("early", false, 1_000_001);
    let trace = sample.assemble();
    assert_eq!(trace.header.started_unix_us, 999_990);
    assert_eq!(trace.events.time_ns[0], 10_000);
    let rows: Vec<_> = trace
        .annotations
        .iter()
        .map(|row| (trace.tables.string(row.name), row.start_ns, row.end_ns, row.first.0..row.end.0))
        .collect();
    assert_eq!(rows, [("early", Some(0), Some(11_000), 0..2), ("step 3", Some(11_000), Some(12_000), 1..3),]);
    let texts = [1, 2].map(|row| trace.tables.string(highwater_snapshots::StringId(trace.events.subject[row])));
    assert_eq!(texts, ["step 3 begins", "step 3 ends"]);
}

#[test]
fn annotations_of_a_snapshot_make_its_steps_and_phases() {
    let mut sample = Sample::of(&[("alloc", 0x1000, 100), ("alloc", 0x2000, 100), ("alloc", 0x3000, 100)]);
    for (name, start, end) in [("ProfilerStep#4", 1, 2), ("Optimizer.step#SGD.step", 2, 2)] {
        sample.annotation(name, true, 1_000_000 + start);
        sample.annotation(name, false, 1_000_000 + end);
    }
    let spans = sample.assemble().spans.clone();
    let rows: Vec<_> = spans.rows().iter().map(|span| (span.step, span.phase, span.first.0)).collect();
    assert_eq!(rows, [(None, Phase::Setup, 0), (Some(4), Phase::Other, 1), (Some(4), Phase::Optimizer, 2)]);
}

#[test]
fn files_without_times_have_all_events_at_the_origin() {
    let mut sample = Sample::of(&[]);
    for device in [1, 0, 1] {
        sample.event_with(device, "alloc", 0x1000 + sample.clock, 1, |_, draft| draft.time_us = 0);
    }
    let trace = sample.assemble();
    assert_eq!((trace.header.started_unix_us, &trace.events.time_ns[..]), (0, &[0, 0, 0][..]));
    assert_eq!(trace.events.device.iter().map(|device| device.0).collect::<Vec<_>>(), [0, 1, 1]);
}

#[test]
fn an_empty_snapshot_is_an_empty_trace() {
    let trace = Sample::default().assemble();
    assert!(trace.events.is_empty() && trace.devices.is_empty() && trace.problems.is_empty());
    assert!(trace.trust.is_complete());
    assert_eq!(trace.header.level, "state");
}

#[test]
fn numbers_at_the_edge_of_what_can_be_neither_panic_nor_overflow() {
    let edges = [0, 1, u64::MAX - 1, u64::MAX];
    let actions = [
        "alloc",
        "free_requested",
        "free_completed",
        "segment_alloc",
        "segment_free",
        "segment_map",
        "segment_unmap",
        "snapshot",
        "oom",
        "free",
    ];
    let mut sample = Sample::of(&[]);
    for action in actions {
        for address in edges {
            for size in edges {
                sample.clock = address;
                sample.event_with(0, action, address, size, |_, draft| draft.device_free = Some(size));
                sample.clock = 0;
            }
        }
    }
    for address in edges {
        sample.segment_with(address, &[], |made| {
            made.total_size = u64::MAX;
            made.is_expandable = address > 1;
        });
        sample.segment_with(address, &[(u64::MAX / 3, u64::MAX, LIVE)], |_| {});
    }
    let events = actions.len() * edges.len() * edges.len();
    assert_eq!(sample.assemble().events.len(), events);
}

#[test]
fn totals_of_the_file_that_are_not_the_sums_of_its_blocks_are_a_problem() {
    let problems = |total: u64, allocated: Option<u64>, active: Option<u64>| -> Vec<String> {
        let mut sample = Sample::of(&[]);
        sample.segment_with(0x1000, &[(MIB, MIB, LIVE), (MIB, MIB, BlockState::Inactive)], |made| {
            made.total_size = total;
            (made.allocated_size, made.active_size) = (allocated, active);
        });
        let problems = sample.assemble().problems.clone();
        assert!(problems.iter().all(|problem| problem.is_of_sums), "{problems:?}");
        problems.into_iter().map(|problem| problem.what).collect()
    };
    let none: [&str; 0] = [];
    assert_eq!(problems(2 * MIB, Some(MIB), Some(MIB)), none);
    assert_eq!(problems(3 * MIB, None, None), none, "free blocks may be left out");
    let total =
        "device 0: in 1 segment, total_size is not the sum of the blocks: 512 KiB in the file, 2 MiB in the blocks";
    let state = "device 0: live blocks exceed the segments before the first event, by up to 512 KiB: 1 MiB active, \
                 512 KiB reserved";
    assert_eq!(problems(MIB / 2, Some(MIB), None), [total, state]);
    let active =
        "device 0: in 1 segment, active_size is not the sum of the blocks: 3 MiB in the file, 1 MiB in the blocks";
    assert_eq!(problems(2 * MIB, Some(MIB), Some(3 * MIB)), [active]);
}

#[test]
fn requested_bytes_and_addresses_that_contradict_their_segment_are_a_problem() {
    let problems = |change: &dyn Fn(&mut RawSnapshot)| -> Vec<String> {
        let mut sample = Sample::of(&[]);
        sample.segment(0x1000, &[(MIB, MIB / 2, LIVE), (MIB, MIB, BlockState::Inactive)]);
        let mut raw = sample.intake.finish();
        change(&mut raw);
        let problems = assemble(raw).problems.clone();
        assert!(problems.iter().all(|problem| problem.is_of_sums), "{problems:?}");
        problems.into_iter().map(|problem| problem.what).collect()
    };
    let blocks = |change: fn(&mut [RawBlock])| problems(&|raw| change(&mut raw.blocks));
    let none: [&str; 0] = [];
    assert_eq!(problems(&|_| {}), none);
    assert_eq!(problems(&|raw| raw.segments[0].requested_size = Some(MIB / 2)), none);
    assert_eq!(
        problems(&|raw| raw.segments[0].requested_size = Some(9 * MIB)),
        ["device 0: in 1 segment, requested_size is not the sum of the blocks: 9 MiB in the file, 512 KiB in the \
             blocks"]
    );
    assert_eq!(
        blocks(|blocks| blocks[1].address += 1 << 32),
        ["device 0: blocks that lie outside the addresses of their segment: 1"]
    );
    assert_eq!(
        blocks(|blocks| blocks[1].address -= 1),
        ["device 0: blocks that begin before the previous block ends: 1"]
    );
    let larger = blocks(|blocks| blocks[0].requested_size = 3 * MIB);
    assert_eq!(larger[0], "device 0: blocks that are smaller than requested: 1");
    assert_eq!(blocks(|blocks| blocks[1].requested_size = 3 * MIB), none, "of a free block, it means nothing");
}

#[test]
fn sizes_replayed_while_a_long_trace_is_written_are_those_replayed_before() {
    let sample = || {
        let (first, second) = (1 << 40, 2 << 40);
        let mut sample = Sample::of(&[("segment_alloc", first, 12 * MIB), ("segment_alloc", second, 2 * MIB)]);
        for round in 0..12_000 {
            // A block that takes the rest of its segment, small ones, and some where no free block begins.
            let (large, at) = (11 * MIB + round % 7 * MIB / 8, second + round % 3 * 512);
            for (address, size) in [(first, large), (at, 100)] {
                for action in ["alloc", "free_requested", "free_completed"] {
                    sample.event(0, action, address, size);
                }
            }
        }
        sample.event(0, "alloc", second, 100);
        sample.segment(first, &[(12 * MIB, 0, BlockState::Inactive)]);
        sample.segment(second, &[(4096, 100, BlockState::Allocated), (2 * MIB - 4096, 0, BlockState::Inactive)]);
        sample
    };
    let meanwhile = sample().assemble();
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    let before = pool.install(|| sample().assemble());
    assert_eq!(meanwhile.blocks.allocated, before.blocks.allocated);
    assert_eq!(meanwhile.problems, before.problems);
    assert_eq!(meanwhile.problems, []);
    assert!(meanwhile.header.notes().eq(before.header.notes()));
    assert_eq!(meanwhile.header.notes().count(), 1);
    assert_eq!(format!("{:?}", meanwhile.trust), format!("{:?}", before.trust));
    assert_eq!(meanwhile.events.len(), before.events.len());
}
