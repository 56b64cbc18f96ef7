//! Tests replays with blocks removed, shortened or reduced, and on smaller devices, against numbers calculated by hand.

use highwater_allocator::AllocConfig;
use highwater_allocator::replay::{BlockOverride, DeviceModel, Plan, Replay, Share, TieBreak, replay};
use highwater_analysis::{Metric, Series};
use highwater_notation::trace_from_text;
use highwater_recorder::snapshots::event::EventKind;
use highwater_recorder::snapshots::{Category, DeviceId, EventId, Trace};

const MIB: u64 = 1 << 20;

/// Two activations of 4 and 8 MiB, the first used no more before a gradient of 4 MiB comes; one segment holds all.
const STEP: &str = "
step 0
phase forward
segment_alloc 0x10000000 20971520 large
alloc a 4194304 activation large
alloc b 8388608 activation large
used a
phase backward
alloc c 4194304 gradient large
used b
used c
free a
free b
free c
";

fn trace(text: &str) -> Trace {
    trace_from_text(text).expect("the text is well formed")
}

fn run(trace: &Trace, answers: DeviceModel, block_override: impl Fn(Category) -> BlockOverride) -> Replay {
    let overrides: Vec<BlockOverride> =
        trace.blocks.category.iter().map(|category| block_override(*category)).collect();
    let plan = Plan {
        answers,
        overrides: Some(&overrides),
        ..Plan::unchanged(DeviceId(0), AllocConfig::default(), TieBreak::default())
    };
    replay(trace, &plan)
}

fn peaks(trace: &Trace) -> [u64; 2] {
    let series = Series::build(trace, DeviceId(0));
    [Metric::Allocated, Metric::Reserved].map(|metric| series.peak(trace, metric).0 / MIB)
}

fn changed(block_override: impl Fn(Category) -> BlockOverride) -> [u64; 2] {
    peaks(&run(&trace(STEP), DeviceModel::Modelled(None), block_override).trace)
}

#[test]
fn blocks_are_left_out_shortened_and_made_smaller() {
    let of = |wanted: Category, block_override: BlockOverride| {
        move |category| if category == wanted { block_override } else { BlockOverride::default() }
    };
    assert_eq!(changed(|_| BlockOverride::default()), [16, 20]);
    let removed = BlockOverride { is_removed: true, ..BlockOverride::default() };
    assert_eq!(changed(of(Category::Gradient, removed)), [12, 20]);
    assert_eq!(changed(|_| removed), [0, 0]);
    let ends_after = BlockOverride { ends_after: EventId(5), ..BlockOverride::default() };
    assert_eq!(changed(of(Category::Activation, ends_after)), [12, 20], "the gradient comes when all is gone");
    let half = BlockOverride { share: Share::new(1, 2).expect("2 is not 0"), ..BlockOverride::default() };
    assert_eq!(changed(of(Category::Activation, half)), [10, 20]);
    let four = BlockOverride { share: Share::new(4, 1).expect("1 is not 0"), ..BlockOverride::default() };
    assert_eq!(
        changed(of(Category::Activation, four)),
        [16 + 32 + 4, 16 + 32 + 20],
        "each has a segment of its own now"
    );
}

#[test]
fn a_replay_keeps_steps_and_phases_and_says_which_event_is_which() {
    let recorded = trace(STEP);
    let Replay { trace: replayed, source, .. } =
        run(&recorded, DeviceModel::Modelled(None), |_| BlockOverride::default());
    assert_eq!(replayed.events.kind, recorded.events.kind);
    assert_eq!(
        source,
        recorded.events.ids().map(|id| if id == EventId(2) { EventId(3) } else { id }).collect::<Vec<_>>()
    );
    assert_eq!(replayed.spans.steps().len(), 1);
    assert!(replayed.is_complete() && replayed.problems.is_empty());
}

#[test]
fn a_device_that_is_too_small_is_reported_by_the_request_that_fails() {
    let text = STEP.replace("alloc b 8388608", "segment_alloc 0x20000000 18874368 large\nalloc b 18874368");
    let recorded = trace(&text);
    let bounded =
        |mebibytes: u64| run(&recorded, DeviceModel::Modelled(Some(mebibytes * MIB)), |_| BlockOverride::default());
    assert_eq!((bounded(38).outcome.death, peaks(&bounded(38).trace)), (None, [26, 38]));
    let replayed = bounded(37);
    let death = replayed.outcome.death.expect("18 MiB do not fit beside 20");
    assert_eq!((death.event, death.requested, death.reserved, death.allocated), (5, 18 * MIB, 20 * MIB, 4 * MIB));
    assert!(death.report.contains("18 MiB requested"), "{}", death.report);
    let last = replayed.trace.events.kind.last().copied();
    assert_eq!((replayed.trace.events.len(), last), (5, Some(EventKind::Oom)), "nothing comes after it");
}

#[test]
fn a_request_that_failed_is_met_where_there_is_room() {
    let text = format!("{}oom 33554432 free=1048576\n", STEP.split("free a").next().expect("there is a free"));
    let recorded = trace(&text)
        .edited(|trace| trace.blocks.address = [0, 4, 12].map(|mebibytes| 0x1000_0000 + mebibytes * MIB).to_vec());
    let bounded =
        |mebibytes: u64| run(&recorded, DeviceModel::Modelled(Some(mebibytes * MIB)), |_| BlockOverride::default());
    let oom = recorded.events.len() as u64 - 1;
    let poor = bounded(51);
    assert_eq!((poor.outcome.death.map(|death| death.event), poor.outcome.rescued), (Some(oom), vec![]));
    let rich = bounded(52);
    assert_eq!((rich.outcome.death, rich.outcome.rescued), (None, vec![oom]));
    assert_eq!(peaks(&rich.trace), [48, 52]);
    let unchanged = replay(&recorded, &Plan::unchanged(DeviceId(0), AllocConfig::default(), TieBreak::default()));
    assert_eq!((unchanged.outcome.divergence, unchanged.outcome.death), (None, None), "it failed, and fails again");
}

#[test]
fn blocks_that_wait_for_a_stream_are_given_up_by_it_when_memory_runs_out() {
    let text = "
segment_alloc 0x10000000 16777216 large
alloc a 16777216 large
free_requested a
segment_alloc 0x20000000 16777216 large
alloc b 16777216 large
free_completed a
";
    let recorded = trace(text);
    assert_eq!(peaks(&run(&recorded, DeviceModel::Modelled(None), |_| BlockOverride::default()).trace), [16, 32]);
    let bounded = run(&recorded, DeviceModel::Modelled(Some(20 * MIB)), |_| BlockOverride::default());
    assert_eq!((bounded.outcome.death, peaks(&bounded.trace)), (None, [16, 16]), "the stream is waited for");
}

#[test]
fn what_comes_between_a_free_and_its_completion_keeps_its_place() {
    let text = "
segment_alloc 0x10000000 20971520 large
alloc a 4194304 large
alloc b 4194304 large
free_requested a
step 1
segment_alloc 0x20000000 12582912 large
tag b gradient
alloc c 12582912 large
free_completed a
";
    let recorded = trace(text).edited(|trace| trace.blocks.address = vec![0x1000_0000, 0x1040_0000, 0x2000_0000]);
    let replayed = run(&recorded, DeviceModel::Modelled(None), |_| BlockOverride::default());
    assert!(replayed.source.is_sorted());
    let kinds: Vec<&str> = replayed.trace.events.kind.iter().map(|kind| kind.name()).collect();
    let end = ["free_requested", "step", "tag", "alloc", "free_completed"];
    assert_eq!(kinds[3..], end, "the third block fits beside the second");
    let unchanged = replay(&recorded, &Plan::unchanged(DeviceId(0), AllocConfig::default(), TieBreak::default()));
    assert!(unchanged.source.is_sorted() && unchanged.trace.events.time_ns.is_sorted());
}

#[test]
fn a_recording_that_begins_in_the_middle_goes_on_from_what_lay_there() {
    let text = "
baseline w 6291456 parameter large
baseline_segment 0x10000000 20971520 large
alloc a 6291456 activation large
segment_alloc 0x20000000 12582912 large
alloc b 12582912 activation large
free a
free b
";
    let recorded = trace(text).edited(|trace| trace.blocks.address = vec![0x1060_0000, 0x1000_0000, 0x2000_0000]);
    let config = AllocConfig::default();
    let unchanged = replay(&recorded, &Plan::unchanged(DeviceId(0), config.clone(), TieBreak::default()));
    assert_eq!(
        unchanged.outcome.divergence, None,
        "'a' lies in the hole before the parameter: {:?}",
        unchanged.outcome.divergence
    );
    assert_eq!(unchanged.trace.blocks.address, recorded.blocks.address);
    let anew = Plan {
        config: config.with("expandable_segments:True").expect("well formed"),
        answers: DeviceModel::Modelled(None),
        reallocates_start: true,
        ..Plan::unchanged(DeviceId(0), config, TieBreak::default())
    };
    let anew = replay(&recorded, &anew);
    assert_eq!(peaks(&anew.trace), [24, 40], "pages of 20 MiB hold all");
    assert!(anew.outcome.assumptions[0].contains("in address order"), "{:?}", anew.outcome.assumptions);
}

#[test]
fn a_difference_is_reported_with_its_event_and_size() {
    let text = STEP.replace("0x10000000 20971520", "0x10000000 33554432");
    let recorded = trace(&text);
    let unchanged = replay(&recorded, &Plan::unchanged(DeviceId(0), AllocConfig::default(), TieBreak::default()));
    let divergence = unchanged.outcome.divergence.expect("nobody obtains 32 MiB for 4");
    assert_eq!(divergence.event, 3);
    assert_eq!(divergence.difference.to_string(), "the replay reserves 20 MiB from the device, the recording 32 MiB");
    assert_eq!(unchanged.outcome.largest_difference, 12 * MIB);
    assert!(unchanged.outcome.placed_elsewhere > 0);
}
