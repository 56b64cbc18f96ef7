//! Checks small traces in text notation against expected values computed by hand.

pub(crate) mod fixture;

use super::*;
use highwater_notation::{text_from_trace, trace_from_text};
use highwater_snapshots::event::{Event, EventKind};
use highwater_snapshots::trace::{DeviceFacts, PINNED_DRIVER};
use highwater_snapshots::{BlockId, DeviceId, EventId, Phase, StackId, Trace, TraceBuilder};

use crate::question::phases::phases_of;
use fixture::watch;
use peak::Query;
use summary::summarize;

/// A baseline weight, two steps, a spike in the second step's optimizer, a gradient that waits for a stream.
const TWO_STEPS: &str = "
baseline w 1000/1024 parameter @net
baseline_segment 0x0 2048
step 0
phase forward
alloc a 100/512 activation #linear @net.fc < forward < main
phase backward
segment_alloc 0x1000 8192
alloc g 1000/1024 gradient #linear @net.fc < backward < main
free a
phase optimizer
alloc m 1000/1024 optimizer_state #adam @net
free_requested g
step 1
phase optimizer
free_completed g
alloc t 3000/3072 temporary #adam @net
device_used 20000
free t
segment_free 0x1000 8192
";

fn two_steps() -> Trace {
    trace_from_text(TWO_STEPS).expect("the text is right")
}

/// The totals after every event, recomputed from the blocks live then: slow, and independent of replay.
fn totals_by_hand(trace: &Trace, device: DeviceId, position: usize) -> Totals {
    let is_past = |event: EventId| event.index().is_some_and(|index| index < position);
    let mut totals = Totals::default();
    for id in trace.blocks.ids() {
        let block = trace.blocks.get(id);
        let has_begun = block.is_baseline() || is_past(block.alloc);
        if block.device != device || !has_begun {
            continue;
        }
        let waits = block.is_baseline() && trace.was_waiting_at_start(id);
        if !is_past(block.free_requested) && !waits {
            totals.requested += block.requested;
            totals.allocated += block.allocated;
        }
        if !is_past(block.free_completed) {
            totals.active += block.allocated;
        }
    }
    for id in trace.segments.ids() {
        let segment = trace.segments.get(id);
        let has_begun = !segment.alloc.is_some() || is_past(segment.alloc);
        if segment.device == device && has_begun && !is_past(segment.free) {
            totals.reserved += segment.range.bytes;
        }
    }
    for index in 0..position {
        if trace.events.kind[index] == EventKind::DeviceUsed && trace.events.device[index] == device {
            totals.device_used = trace.device_used[trace.events.subject[index] as usize];
        }
    }
    totals
}

#[test]
fn totals_equal_the_live_blocks_after_every_event() {
    let trace = two_steps();
    let series = Series::build(&trace, DeviceId(0));
    for position in 0..=trace.events.len() {
        let by_hand = totals_by_hand(&trace, DeviceId(0), position);
        assert_eq!(series.before_position(&trace, position), by_hand, "before event {position}");
    }
}

#[test]
fn each_metric_has_its_own_peak() {
    let trace = two_steps();
    let source = Source::in_memory(&trace);
    let peaks: Vec<(u64, Option<u32>, Phase)> = Metric::ALL
        .iter()
        .map(|&metric| source.peak(DeviceId(0), metric).unwrap())
        .map(|moment| (moment.bytes, moment.step, moment.phase))
        .collect();
    let optimizer = |bytes| (bytes, Some(1), Phase::Optimizer);
    assert_eq!(peaks[0], optimizer(1000 + 1000 + 3000));
    assert_eq!(peaks[1], optimizer(1024 + 1024 + 3072));
    assert_eq!(peaks[2], optimizer(1024 + 1024 + 3072));
    assert_eq!(peaks[3], (2048 + 8192, Some(0), Phase::Backward));
    assert_eq!(peaks[4], optimizer(20_000));
}

#[test]
fn the_groups_of_a_moment_add_up_to_its_bytes_for_every_metric_and_key() {
    let trace = two_steps();
    let series = Series::build(&trace, DeviceId(0));
    let live = LiveIndex::build(&trace, DeviceId(0));
    let filter = Filter::default();
    for metric in Metric::ALL {
        for &key in GroupKey::ALL {
            for event in trace.events.ids() {
                let moment = Moment::at(&trace, &series, metric, Some(event));
                let query = Query { keys: &[key, GroupKey::Size], top: 1, filter: &filter, siblings: Siblings::Each };
                let Breakdown { total, groups, rest_bytes, .. } =
                    Peak::at(&trace, &live, &series, moment, &query).breakdown;
                let sum: u64 = groups.iter().map(|group| group.bytes).sum::<u64>() + rest_bytes;
                assert_eq!((total, sum), (moment.bytes, moment.bytes), "{metric} by {} at {event:?}", key.name());
            }
        }
    }
}

#[test]
fn a_peak_is_taken_apart_by_category_and_phase() {
    let trace = two_steps();
    let series = Series::build(&trace, DeviceId(0));
    let live = LiveIndex::build(&trace, DeviceId(0));
    let moment = Source::in_memory(&trace).peak(DeviceId(0), Metric::Requested).unwrap();
    let apart = |filter: &str| {
        let filter: Filter = filter.parse().expect("a filter");
        let keys = [GroupKey::Category, GroupKey::Phase];
        let query = Query { keys: &keys, top: 9, filter: &filter, siblings: Siblings::Each };
        let breakdown = Peak::at(&trace, &live, &series, moment, &query).breakdown;
        breakdown.groups.iter().map(|group| format!("{} {}", group.key.join(","), group.bytes)).collect::<Vec<_>>()
    };
    assert_eq!(
        apart(""),
        ["temporary,optimizer 3000", "parameter,before the recording 1000", "optimizer_state,optimizer 1000"]
    );
    assert_eq!(apart("op=adam size>2KiB"), ["temporary,optimizer 3000"]);
    assert_eq!(
        apart("category!=temporary scope~net"),
        ["parameter,before the recording 1000", "optimizer_state,optimizer 1000"]
    );
    assert_eq!(apart("step=0"), ["optimizer_state,optimizer 1000"]);
}

#[test]
fn a_phase_in_which_only_the_memory_in_use_was_read_is_none() {
    let trace =
        trace_from_text("step 0\nphase forward\nalloc a 100\nphase other\ndevice_used 900\nphase backward\nfree a")
            .unwrap();
    let phases =
        |metric| -> Vec<Phase> { phases_of(&trace, DeviceId(0), metric).iter().map(|row| row.phase).collect() };
    assert_eq!(phases(Metric::Requested), [Phase::Forward, Phase::Backward]);
    assert_eq!(phases(Metric::DeviceUsed), [Phase::Forward, Phase::Other, Phase::Backward]);
}

#[test]
fn phases_have_start_peak_and_end_and_say_what_the_peak_was_made_of() {
    let rows = phases_of(&two_steps(), DeviceId(0), Metric::Requested);
    let told: Vec<String> = rows
        .iter()
        .map(|row| {
            let made_of: Vec<String> =
                row.at_peak.ranked().iter().map(|(category, bytes)| format!("{category} {bytes}")).collect();
            let step = row.step.map_or("-".to_owned(), |step| step.to_string());
            format!(
                "{step} {}: {} {} {} [{}]",
                row.phase,
                row.start_bytes,
                row.peak_bytes,
                row.end_bytes,
                made_of.join(", ")
            )
        })
        .collect();
    assert_eq!(
        told,
        [
            "0 forward: 1000 1100 1100 [parameter 1000, activation 100]",
            "0 backward: 1100 2100 2000 [parameter 1000, gradient 1000, activation 100]",
            "0 optimizer: 2000 3000 2000 [parameter 1000, gradient 1000, optimizer_state 1000]",
            "1 optimizer: 2000 5000 2000 [temporary 3000, parameter 1000, optimizer_state 1000]",
        ]
    );
}

#[test]
fn a_peak_that_every_step_reaches_is_that_of_the_second_and_the_others_are_reported() {
    let step = |n| format!("step {n}\nphase optimizer\nalloc t{n} 3000\nfree t{n}\n");
    let peak = |text: &str| {
        let trace = trace_from_text(text).expect("the text is right");
        let peak = Source::in_memory(&trace).peak(DeviceId(0), Metric::Requested).unwrap();
        let elsewhere = phases::reached_elsewhere(&phases_of(&trace, peak.device, peak.metric), &peak);
        (peak.bytes, peak.step, elsewhere.iter().map(|moment| moment.step).collect::<Vec<_>>())
    };
    let same = format!("{}{}{}", step(0), step(1), step(2));
    assert_eq!(peak(&same), (3000, Some(1), vec![Some(0), Some(2)]));
    let last_is_higher = format!("{}{}phase forward\nalloc x 5\n{}", step(0), step(1), step(2));
    assert_eq!(peak(&last_is_higher), (3005, Some(2), vec![]));
    let first_is_higher = format!("alloc x 5\n{}step 1\nfree x\n{}", step(0), step(2));
    assert_eq!(peak(&first_is_higher), (3005, Some(0), vec![]));
    let stays = "step 0\nalloc a 70\nstep 1\nmark still there\nfree a";
    assert_eq!(peak(stays), (70, Some(0), vec![]), "step 1 begins as high, but does not climb there");
}

#[test]
fn lifetimes_show_where_a_block_ends() {
    let trace = two_steps();
    let lifetimes: Vec<&str> =
        trace.blocks.ids().map(|id| Lifetime::of(&trace, &trace.blocks.get(id)).name()).collect();
    assert_eq!(lifetimes, ["whole recording", "within a step", "within a step", "kept to the end", "within a phase"]);
}

#[test]
fn a_summary_counts_what_the_events_say() {
    let summary = &summarize(&Source::in_memory(two_steps()), watch()).unwrap()[0];
    assert_eq!((summary.events, summary.allocs, summary.frees, summary.segments), (13, 4, 3, 2));
    assert_eq!((summary.baseline_bytes, summary.steps, summary.oom_events), (1000, 2, 0));
    assert_eq!(
        summary.end,
        Totals { requested: 2000, allocated: 2048, active: 2048, reserved: 2048, device_used: 20_000 }
    );
}

#[test]
fn a_summary_counts_a_mark_on_the_device_that_it_carries() {
    let trace = trace_from_text("alloc a 100\nalloc b 100 device=1\nmark snapshot device=1\nstep 0\nphase forward");
    let counts: Vec<u64> = summarize(&Source::in_memory(trace.expect("the text")), watch())
        .unwrap()
        .iter()
        .map(|summary| summary.events)
        .collect();
    assert_eq!(counts, [1, 2]);
}

#[test]
fn only_our_own_recorders_marks_concern_every_device() {
    let trace = trace_from_text("mark a\nmark b device=1\nstep 0\nalloc a 1").expect("the text is right");
    let everywhere = |trace: &Trace| trace.events.ids().map(|id| trace.is_everywhere(id)).collect::<Vec<_>>();
    assert_eq!(everywhere(&trace), [false, false, true, false]);
    let trace = trace.edited(|trace| trace.header.recorder = "highwater 0.1.0".to_owned());
    assert_eq!(everywhere(&trace), [true, false, true, false]);
}

#[test]
fn the_last_use_of_a_block_is_that_of_its_last_life() {
    let text = "
        baseline w 10
        alloc a 100
        used a
        used w
        used a < f
        free a
        used a
        alloc a 200
        alloc b 300
        used nobody
        used b device=1
    ";
    let trace = trace_from_text(text).expect("the text is right");
    let event = |number| EventId(number);
    assert_eq!(trace.blocks.last_use, [event(2), event(3), EventId::NONE, EventId::NONE]);
    assert!(trace.records_uses() && !trace_from_text("alloc a 1").expect("the text is right").records_uses());
    assert_eq!((trace.uses, trace.trust.unmatched_uses), (6, 3));
    assert!(!trace.trust.is_complete() && trace.trust.sentences().len() == 1, "{:?}", trace.trust.sentences());
    assert_eq!(verify::verify_trace(&trace), []);
    let again = trace_from_text(&text_from_trace(&trace)).expect("the text is right");
    assert_eq!(again.blocks.last_use, trace.blocks.last_use);
    assert_eq!(again.events.subject, trace.events.subject);
}

#[test]
fn frees_that_were_not_recorded_are_counted_and_totals_stay_right() {
    let text = "
        baseline x 10 waiting
        alloc a 100
        free_completed a
        alloc b 200
        alloc b 300
        free_requested nobody
        free_completed x
        free b
    ";
    let trace = trace_from_text(text).expect("the text is right");
    assert_eq!((trace.trust.unmatched_frees, trace.trust.repeated_allocs), (1, 1));
    let series = Series::build(&trace, DeviceId(0));
    for position in 0..=trace.events.len() {
        assert_eq!(
            series.before_position(&trace, position),
            totals_by_hand(&trace, DeviceId(0), position),
            "{position}"
        );
    }
    assert_eq!(series.peak(&trace, Metric::Requested), (300, Some(EventId(3))));
    assert_eq!(verify::verify_trace(&trace), []);
    assert_eq!(text_from_trace(&trace).lines().filter(|line| line.contains('?')).count(), 1);
    let trace = trace_from_text("baseline x 10 waiting\nalloc x 5").expect("the text is right");
    let series = Series::build(&trace, DeviceId(0));
    let [before, after] = [0, 1].map(|position| series.before_position(&trace, position));
    assert_eq!([before.active, after.active, before.requested, after.requested], [10, 5, 0, 5]);
}

#[test]
fn the_live_index_and_the_series_agree_far_from_any_checkpoint() {
    // Forty thousand events: a growing base of blocks with a sawtooth on top.
    let mut text = String::new();
    for i in 0..10_000 {
        text += &format!("alloc k{i} {}\nalloc s{i} {}\nfree s{i}\n", 1 + i % 7, 100 + (i * 37) % 1000);
        if i % 3 == 0 {
            text += &format!("free k{i}\n");
        }
    }
    let trace = trace_from_text(&text).expect("the text is right");
    let series = Series::build(&trace, DeviceId(0));
    let live = LiveIndex::build(&trace, DeviceId(0));
    let mut largest = (0, EventId(0));
    let mut replay = replay::Replay::new(&trace, DeviceId(0));
    for position in 0..trace.events.len() {
        let event = replay.step().expect("an event");
        if replay.totals().requested > largest.0 {
            largest = (replay.totals().requested, event);
        }
        if position % 997 == 0 {
            let ids = live.after(&trace, Metric::Requested, event);
            let sum: u64 = ids.iter().map(|id| trace.blocks.requested[id.0 as usize]).sum();
            assert_eq!(sum, series.after(&trace, event).requested, "at {position}");
            assert!(ids.is_sorted(), "in block order at {position}");
        }
    }
    assert_eq!(series.peak(&trace, Metric::Requested), (largest.0, Some(largest.1)));
    for (start, end) in [(0, 1), (5, 5000), (1024, 2048), (1023, 30_000), (17_000, 17_001), (0, trace.events.len())] {
        let by_hand = (start..end)
            .map(|position| (series.before_position(&trace, position + 1).allocated, position))
            .fold((0, 0), |best, next| if next.0 > best.0 { next } else { best });
        let found = series.largest(&trace, Metric::Allocated, start..end);
        assert_eq!(found, Some((by_hand.0, EventId::from_index(by_hand.1))), "{start}..{end}");
    }
}

#[test]
fn verify_names_overlaps_and_sizes_that_cannot_be() {
    let trace = trace_from_text("alloc a 512\nalloc b 512").expect("the text is right").edited(|trace| {
        trace.blocks.address[1] = 256;
        trace.blocks.allocated[0] = 400;
    });
    let told: Vec<String> = verify::verify_trace(&trace).iter().map(ToString::to_string).collect();
    assert_eq!(told, ["block 0 has 400 bytes, but 512 were requested", "blocks 0 and 1 overlap at address 0x100",]);
}

#[test]
fn devices_are_kept_apart() {
    let text = "alloc a 100\nalloc b 200 device=1\nfree b device=1\nalloc c 50 device=1";
    let trace = trace_from_text(text).expect("the text is right");
    let peak = |device| Series::build(&trace, DeviceId(device)).peak(&trace, Metric::Requested);
    assert_eq!((peak(0), peak(1)), ((100, Some(EventId(0))), (200, Some(EventId(1)))));
    assert_eq!(trace.device_ids(), [DeviceId(0), DeviceId(1)]);
    let live = LiveIndex::build(&trace, DeviceId(1));
    assert_eq!(live.before_position(&trace, Metric::Active, trace.events.len()), [BlockId(2)]);
}

#[test]
fn the_default_device_ran_out_of_memory_or_has_the_highest_peak() {
    let main = |text: &str| trace_from_text(text).expect("the text is right").main_device().0;
    // Many small blocks on device 0, few large ones on the others; the baseline counts.
    let small = "alloc a 10\nalloc b 10\nalloc c 10\nfree a\nfree b\n";
    assert_eq!(main(small), 0);
    assert_eq!(main(&format!("{small}alloc d 100 device=1\nfree d device=1\n")), 1);
    assert_eq!(main(&format!("baseline w 90 device=2\n{small}alloc d 80 device=1\nalloc e 20 device=2\n")), 2);
    assert_eq!(main("alloc a 10 device=1\nfree a device=1\nalloc b 10 device=1\nalloc c 15 device=2\n"), 2, "no sum");
    assert_eq!(main("alloc a 10 device=1\nalloc b 10 device=2\n"), 1, "the first of equal ones");
    // A failed request decides; among several devices that ran out, the one with the higher peak.
    let failed = "alloc d 50 device=1\nalloc e 40 device=2\nalloc f 70 device=3\noom 100 free=1 device=2\n";
    assert_eq!(main(failed), 2);
    assert_eq!(main(&format!("{failed}oom 100 free=1 device=1\n")), 1);
    assert_eq!(main("alloc a 10\noom 100 free=1 device=1\n"), 1, "the first request may fail");
    assert_eq!(trace_from_text("").expect("no line is wrong").main_device(), DeviceId(0));
}

#[test]
fn host_memory_is_the_default_device_only_where_there_is_nothing_else() {
    let text = "alloc a 10\nalloc b 500 device=1\noom 900 free=1 device=1";
    let trace = trace_from_text(text).expect("the text is right");
    let main = |drivers: [&str; 2]| {
        let mut builder = TraceBuilder::default();
        for (device, driver) in (0..).zip(drivers) {
            let device = DeviceId(device);
            builder.set_device(DeviceFacts { device, driver: driver.to_owned(), ..DeviceFacts::default() });
        }
        for id in trace.events.ids() {
            let (device, time_ns) = (trace.events.device[id.0 as usize], trace.events.time_ns[id.0 as usize]);
            builder.push(&Event { device, time_ns, stack: StackId::NONE, what: trace.what(id) });
        }
        builder.finish().main_device().0
    };
    assert_eq!(main(["cuda", PINNED_DRIVER]), 0);
    assert_eq!(main(["cuda", "cuda"]), 1);
    assert_eq!(main([PINNED_DRIVER, PINNED_DRIVER]), 1);
}

#[test]
fn blocks_that_exceed_their_segments_and_segments_that_overlap_are_problems() {
    let problems = |text: &str| -> Vec<String> {
        let trace = trace_from_text(text).expect("the text is right");
        assert!(trace.problems.iter().all(|problem| problem.is_of_sums));
        trace.problems.iter().map(|problem| problem.what.clone()).collect()
    };
    let none: [&str; 0] = [];
    assert_eq!(problems("segment_alloc 0x0 2048\nalloc a 2048\nfree a\nsegment_free 0x0 2048"), none);
    assert_eq!(problems("alloc a 5000"), none, "a recorder may know no segments");
    let exceeded =
        "device 0: live blocks exceed the segments from event 3 on, by up to 1 KiB: 2 KiB active, 1 KiB reserved";
    // A block that waits for a stream takes its place.
    let waiting = "segment_alloc 0x0 1024\nalloc a 1024\nfree_requested a\nalloc b 512\nalloc c 512\n";
    assert_eq!(problems(waiting), [exceeded]);
    assert_eq!(problems(&format!("{waiting}free_completed a\nfree b\nfree c")), [exceeded]);
    let released = problems("segment_alloc 0x0 1024\nalloc a 512\nsegment_free 0x0 1024");
    assert!(released[0].contains("from event 2 on, by up to 512 B: 512 B active, 0 B reserved"), "{released:?}");
    let overlap = "device 0: segments at 0x0 (2 KiB) and 0x400 (2 KiB) overlap: reserved is too high";
    assert_eq!(problems("segment_alloc 0x0 2048\nsegment_alloc 0x400 2048"), [overlap]);
    assert_eq!(problems("segment_alloc 0x400 2048\nsegment_alloc 0x0 1024"), none);
    assert_eq!(problems("segment_alloc 0x0 2048\nsegment_free 0x0 2048\nsegment_alloc 0x400 2048"), none);
    assert_eq!(problems("segment_alloc 0x0 2048\nsegment_alloc 0x400 2048 device=1"), none);
}

#[test]
fn text_reads_back_as_it_was_written_and_mistakes_name_their_line() {
    let once = text_from_trace(&two_steps());
    let again = text_from_trace(&trace_from_text(&once).expect("our own text"));
    assert_eq!(once, again);
    let why = trace_from_text("alloc a 512\nalloc b many").expect_err("no number").to_string();
    assert_eq!(why, "line 2: 'many' is not an integer");
    assert!(trace_from_text("allocate a 512").is_err_and(|why| why.to_string().contains("no event is called")));
}

#[test]
fn sizes_that_no_machine_has_are_refused_before_they_can_overflow() {
    let text = "alloc a 9223372036854775807\nalloc b 9223372036854775807\nsegment_alloc 0x0 18446744073709551615";
    let trace = trace_from_text(text).expect("the text is right");
    assert_eq!(trace.problems.len(), 5);
    let series = Series::build(&trace, DeviceId(0));
    assert!(series.end(&trace).requested < 1 << 62);
}

#[test]
fn gradients_that_are_zeroed_without_an_event_before_forward_belong_to_the_step_that_begins() {
    let zero = "begin \"Optimizer.zero_grad#SGD.zero_grad\"\nend \"Optimizer.zero_grad#SGD.zero_grad\"\n";
    let step = |number: u32| {
        format!(
            "begin \"highwater.step#{number}\"\nbegin \"forward\"\nalloc a{number} 50 activation\nend \"forward\"\n\
             begin \"backward\"\nfree a{number}\nend \"backward\"\nend \"highwater.step#{number}\"\n"
        )
    };
    let rows = |text: &str| -> Vec<(Option<u32>, Phase)> {
        let trace = trace_from_text(text).unwrap();
        let rows = phases_of(&trace, DeviceId(0), Metric::Requested);
        rows.iter().map(|row| (row.step, row.phase)).filter(|(step, _)| step.is_some()).collect()
    };
    let of_step = |number: u32, phases: [Phase; 3]| phases.map(|phase| (Some(number), phase));
    let (forward, backward, zeroed) = (Phase::Forward, Phase::Backward, Phase::ZeroGrad);
    let begins = rows(&format!("alloc w 100 parameter\n{zero}{}{zero}{}", step(0), step(1)));
    assert_eq!(begins, [0, 1].map(|number| of_step(number, [zeroed, forward, backward])).concat());
    let ends = rows(&format!("alloc w 100 parameter\n{}{zero}{}{zero}", step(0), step(1)));
    assert_eq!(ends, [0, 1].map(|number| of_step(number, [forward, backward, zeroed])).concat());

    // By the times of the program's own ranges.
    let text = format!("alloc w 100 parameter\n{}{zero}{}", step(0), step(1)).replace("highwater.step", "ProfilerStep");
    let trace = trace_from_text(&text).unwrap().edited(|trace| {
        for annotation in &mut trace.annotations {
            annotation.start_ns = match trace.tables.string(annotation.name) {
                "ProfilerStep#1" => Some(3000),
                text if text.starts_with("Optimizer") => Some(3500),
                _ => None,
            };
        }
    });
    let rows = phases_of(&trace, DeviceId(0), Metric::Requested);
    assert!(rows.iter().any(|row| (row.step, row.phase) == (Some(1), zeroed)), "{rows:?}");
}
