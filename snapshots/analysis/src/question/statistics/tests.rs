//! Tests of statistics: exact sums, and growth.

use super::*;
use crate::question::between::Sum;
use crate::question::growth::StepRange;
use crate::{Filter, Source};
use highwater_notation::trace_from_text;
use highwater_snapshots::Category;
use highwater_snapshots::trace::Trust;

/// Four steps over one weight. Each keeps a buffer of 10 bytes that nothing frees; step 0 allocates the optimizer's
/// state.
const LEAKING: &str = "
    baseline w 400/512 parameter @net
    baseline_segment 0x1000000 2097152
    alloc s0 100/512 input
    step 0
    phase forward
    alloc a0 300/512 activation @net.fc
    alloc k0 10/512 buffer @net.cache
    phase optimizer
    alloc m 400/512 optimizer_state @net
    free a0
    step 1
    alloc a1 300/512 activation @net.fc
    alloc k1 10/512 buffer @net.cache
    alloc x 999/1024 temporary device=1
    free a1
    step 2
    alloc a2 300/512 activation @net.fc
    alloc k2 20/512 buffer @net.cache
    free a2
    segment_alloc 0x2000000 2097152
    step 3
    alloc a3 300/512 activation @net.fc
    free s0
    free w
";

fn told(text: &str, metric: Metric, filter: &str) -> (Trace, Statistics) {
    let trace = trace_from_text(text).unwrap();
    let statistics = of(&trace, metric, filter);
    (trace, statistics)
}

fn of(trace: &Trace, metric: Metric, filter: &str) -> Statistics {
    let device = DeviceId(0);
    let live = LiveIndex::build(trace, device);
    let filter: Filter = filter.parse().unwrap();
    let source = Source::in_memory(trace);
    let peak = source.peak(device, metric).unwrap();
    let window = StepWindow::of(&source, device, StepRange::default()).unwrap().ok();
    let (matches, window) = (&Matches::of(trace, &filter), window.as_ref());
    Statistics::of(trace, &StatisticsQuery { peak, live: &live, matches, window })
}

fn total(bins: impl IntoIterator<Item = Bin>) -> Bin {
    bins.into_iter().fold(Bin::default(), |mut sum, bin| {
        sum.join(&bin);
        sum
    })
}

/// Checks the invariants of the sums.
fn check(trace: &Trace, statistics: &Statistics, matches: &Matches) {
    let metric = statistics.metric;
    let counted = |id: &BlockId| trace.blocks.get(*id).device == statistics.device && matches.contains(*id);
    let mut all = Sum::default();
    trace.blocks.ids().filter(counted).for_each(|id| {
        let block = trace.blocks.get(id);
        all.add(if metric == Metric::Requested { block.requested } else { block.allocated });
    });
    assert_eq!(statistics.blocks.all, all);
    assert_eq!(total(statistics.sizes.iter().map(|row| row.bin)), statistics.blocks);
    assert_eq!(total(statistics.lifetimes.iter().map(|row| row.bin)), statistics.blocks);
    let lived = &statistics.lived;
    assert_eq!(total(lived.by_events.iter().map(|row| row.bin).chain([lived.open])), statistics.blocks);
    let steps = &statistics.steps;
    let baseline = trace.blocks.ids().filter(counted).filter(|id| trace.blocks.get(*id).is_baseline()).count();
    assert_eq!(steps.iter().map(|row| row.allocations).sum::<u64>() + baseline as u64, all.blocks);
    for pair in steps.windows(2) {
        assert_eq!((pair[0].end, pair[0].range.end), (pair[1].start, pair[1].range.start));
    }
    let mut kept = Sum::default();
    steps.iter().for_each(|row| kept.join(&row.kept));
    let life = |life: Lifetime| statistics.lifetimes.iter().find(|row| row.life == life).unwrap().bin.all;
    assert_eq!(kept, life(Lifetime::Kept));
    let mut groups = Sum::default();
    statistics.growth.iter().for_each(|group| groups.join(&group.total));
    assert_eq!(groups, kept);
    let ended = life(Lifetime::Phase).blocks + life(Lifetime::Step).blocks + life(Lifetime::Steps).blocks;
    let freed = ended + life(Lifetime::FreedBaseline).blocks;
    assert_eq!(steps.iter().map(|row| row.frees).sum::<u64>(), freed);
}

#[test]
fn every_sum_adds_up_to_all_blocks_for_every_total_and_filter() {
    let trace = trace_from_text(LEAKING).unwrap();
    for metric in Metric::ALL {
        for filter in ["", "category=activation", "size>=300 scope~net", "category=workspace"] {
            let statistics = of(&trace, metric, filter);
            check(&trace, &statistics, &Matches::of(&trace, &filter.parse().unwrap()));
        }
    }
}

#[test]
fn steps_show_what_they_did_and_what_they_keep() {
    let (trace, statistics) = told(LEAKING, Metric::Requested, "");
    let steps = &statistics.steps;
    assert_eq!(steps.iter().map(|row| row.step).collect::<Vec<_>>(), [None, Some(0), Some(1), Some(2), Some(3)]);
    let of_device = trace.events.device.iter().filter(|device| device.0 == 0).count() as u64;
    assert_eq!(statistics.events, of_device, "steps and phases carry device 0");
    assert_eq!(steps[1].range, 1..9);
    assert_eq!((steps[1].allocations, steps[1].requested, steps[1].allocated, steps[1].frees), (3, 710, 1536, 1));
    assert_eq!((steps[1].start.requested, steps[1].peak.requested, steps[1].end.requested), (500, 1210, 910));
    assert_eq!(steps[1].kept, Sum { blocks: 2, bytes: 410 });
    assert_eq!(steps[2].allocations, 2, "the other device's block is not ours");
    assert_eq!(steps[2].peak.requested, 1220);
    assert_eq!((steps[2].growth(Metric::Requested), steps[2].peak_growth(&steps[1], Metric::Requested)), (10, 10));
    assert_eq!(steps[4].growth(Metric::Requested), 300 - 100 - 400);
    assert_eq!((steps[3].start.reserved, steps[3].end.reserved), (2 << 20, 4 << 20));
    assert_eq!(
        (statistics.first_time_ns, statistics.last_time_ns),
        (trace.events.time_ns.first().copied(), trace.events.time_ns.last().copied())
    );
}

#[test]
fn what_comes_again_with_every_step_and_stays_is_named_first() {
    let (_, statistics) = told(LEAKING, Metric::Requested, "");
    let cache = &statistics.growth[0];
    assert_eq!((cache.category, cache.scope.as_str(), cache.is_growing), (Category::Buffer, "net.cache", true));
    assert_eq!((cache.least_bytes, cache.total), (10, Sum { blocks: 3, bytes: 40 }));
    let by_step: Vec<(Option<u32>, u64)> = cache.by_step.iter().map(|kept| (kept.step, kept.sum.bytes)).collect();
    assert_eq!(by_step, [(Some(0), 10), (Some(1), 10), (Some(2), 20)]);
    assert!(statistics.growth[1..].iter().all(|group| !group.is_growing && group.least_bytes == 0));
    let state = statistics.growth.iter().find(|group| group.category == Category::OptimizerState).unwrap();
    assert_eq!(state.total.bytes, 400, "what the first step makes is kept, but does not grow");
}

#[test]
fn what_grows_is_what_growth_calls_a_leak() {
    // Its category alternates, as guesses do, and the last step is cut short.
    let step = |step: u32, category: &str| format!("step {step}\nphase forward\nalloc k{step} 10 {category} < keep\n");
    let mut text: String = (0..5)
        .map(|at| step(at, ["activation", "unknown"][at as usize % 2]) + "phase backward\nalloc g 1\nfree g\n")
        .collect();
    text += "step 5\nphase forward\n";
    let (_, statistics) = told(&text, Metric::Requested, "");
    assert!(statistics.growth.iter().filter(|group| group.total.bytes >= 20).all(|group| group.is_growing));
    assert_eq!(statistics.growth.len(), 2);
}

#[test]
fn two_steps_are_too_few_to_call_anything_growing() {
    let text = "step 0\nalloc a 10\nstep 1\nalloc b 10";
    let (_, statistics) = told(text, Metric::Requested, "");
    assert_eq!(statistics.growth.len(), 1);
    assert!(!statistics.growth[0].is_growing);
}

#[test]
fn sizes_lie_in_powers_of_two_without_gaps() {
    let text = "alloc z 0\nalloc a 1\nalloc b 4\nalloc c 7\nalloc d 8\nfree d";
    let (_, statistics) = told(text, Metric::Requested, "");
    let sizes: Vec<(u64, u64, u64)> =
        statistics.sizes.iter().map(|row| (row.from, row.to, row.bin.all.blocks)).collect();
    assert_eq!(sizes, [(0, 0, 1), (1, 1, 1), (2, 3, 0), (4, 7, 2), (8, 15, 1)]);
    assert_eq!(statistics.sizes[4].bin.at_peak, Sum { blocks: 1, bytes: 8 });
    let mut bins = [Bin::default(); 65];
    bins[bins::bin_of(u64::MAX)].all.add(u64::MAX);
    let huge = bins::trimmed(&bins);
    assert_eq!((huge.len(), huge[0].from, huge[0].to), (1, 1 << 63, u64::MAX));
}

#[test]
fn lives_are_counted_in_events_where_both_ends_are_known() {
    let text = "baseline w 5\nalloc a 10\nalloc b 20\nfree_requested a\nfree_completed a\nfree w";
    let (_, statistics) = told(text, Metric::Requested, "");
    let lived = &statistics.lived;
    assert_eq!(lived.by_events.len(), 1);
    assert_eq!((lived.by_events[0].from, lived.by_events[0].to), (2, 3));
    assert_eq!(lived.open.all, Sum { blocks: 2, bytes: 25 });
}

#[test]
fn the_allocator_is_counted_whatever_the_filter() {
    let text = "
        segment_alloc 0x1000 2097152
        alloc a 100/512
        free a
        alloc b 200/512
        segment_free 0x1000 2097152
        segment_alloc 0x9000 4194304
        oom 4096 free=1024
    ";
    let (_, statistics) = told(text, Metric::Requested, "size>150");
    let allocator = &statistics.allocator;
    assert_eq!((allocator.segment_allocs, allocator.segment_frees, allocator.ooms), (2, 1, 1));
    assert_eq!((allocator.obtained_bytes, allocator.returned_bytes), (6 << 20, 2 << 20));
    assert_eq!(allocator.obtained_after_release, 1);
    assert_eq!((allocator.requested_bytes, allocator.allocated_bytes, allocator.rounding_at_peak), (200, 512, 312));
    assert_eq!(allocator.addresses, 1);
}

#[test]
fn every_fact_that_limits_trust_is_reported_with_what_it_means() {
    let trace = Trace::default().edited(|trace| {
        trace.trust = Trust {
            events_lost: 1,
            unmatched_frees: 2,
            repeated_allocs: 3,
            unmatched_uses: 6,
            unmatched_releases: 4,
            baseline_inferred: true,
            sizes_inferred: 5,
            categories_guessed: true,
            unfinished: true,
        }
    });
    let notes = trust_notes(&trace);
    let facts: Vec<String> = notes.iter().map(|note| note.fact.clone()).collect();
    assert_eq!(facts, trace.trust_sentences());
    assert!(notes.iter().all(|note| note.means.ends_with('.')));
    assert!(trust_notes(&Trace::default()).is_empty());
    let guessed = trace_from_text("begin forward guessed\nalloc a 1\nend forward").unwrap();
    let notes: Vec<String> = trust_notes(&guessed).into_iter().map(|note| note.fact).collect();
    assert!(guessed.phases_are_guessed() && notes == guessed.trust_sentences(), "{notes:?}");
}

#[test]
fn an_empty_recording_has_empty_statistics() {
    let statistics = of(&Trace::default(), Metric::Requested, "");
    assert!(statistics.steps.is_empty() && statistics.sizes.is_empty() && statistics.growth.is_empty());
    assert_eq!((statistics.events, statistics.first_time_ns), (0, None));
}
