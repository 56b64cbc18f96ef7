//! Tests that a window of a recording has the same totals, lifetimes and origins as the whole recording.

mod program;
mod counted;
mod comparisons;
mod budgets;
mod growth;
mod computed;
mod explanations;
mod rotated;
mod soundness;
mod steps;

use std::ops::ControlFlow;

use highwater_analysis::peak::Query;
use highwater_analysis::phases::{peak_of, phases, reached_elsewhere};
use highwater_analysis::replay::Replay;
use highwater_analysis::summary::summarize;
use highwater_analysis::{Filter, GroupKey, Lifetime, Metric, Origin, Peak, Siblings, Source, Totals};
use highwater_notation::{text_from_trace, trace_from_text};
use highwater_snapshots::format::{Windows, read_bytes, write_trace};
use highwater_snapshots::text::event_text;
use highwater_snapshots::trace::Trace;
use highwater_snapshots::{BlockId, Category, DeviceId, EventId};

use program::{Numbers, open, recording, watch};

/// The totals of a device before the first event and after each.
fn totals(trace: &Trace, device: DeviceId) -> Vec<Totals> {
    let mut replay = Replay::new(trace, device);
    let mut all = vec![replay.totals()];
    while replay.step().is_some() {
        all.push(replay.totals());
    }
    all
}

/// What an analysis tells of a block.
fn facts(trace: &Trace, id: BlockId) -> (DeviceId, u64, u64, Category, Lifetime, Origin, String) {
    let block = trace.blocks.get(id);
    let waits = trace.was_waiting_at_start(id);
    // When the free of a block that waits was requested is not known in a window.
    let lifetime = if waits { Lifetime::Always } else { Lifetime::of(trace, &block) };
    let op = trace.tables.op_name(block.op).to_owned();
    (block.device, block.address, block.requested, block.category, lifetime, Origin::of(trace, &block), op)
}

/// The rows of the blocks that are live or waiting before event `start`, or allocated before event `end`.
fn rows(trace: &Trace, start: usize, end: usize) -> Vec<BlockId> {
    let is_in = |id: &BlockId| {
        let block = trace.blocks.get(*id);
        let is_over = block.free_completed.index().is_some_and(|event| event < start);
        block.alloc.index().is_none_or(|event| event < end) && !is_over
    };
    trace.blocks.ids().filter(is_in).collect()
}

fn compare(whole: &Trace, windows: &Windows, start: usize, end: usize) {
    let window = windows.window(start as u64..end as u64).unwrap();
    assert_eq!(window.events.kind, whole.events.kind[start..end], "{start}..{end}");
    assert_eq!(window.events.time_ns, whole.events.time_ns[start..end]);
    for device in whole.device_ids() {
        let (found, expected) = (totals(&window, device), totals(whole, device));
        let wrong = found.iter().zip(&expected[start..=end]).position(|(found, expected)| found != expected);
        assert_eq!(wrong, None, "{start}..{end} of {device:?}");
    }
    for row in start..end {
        let (id, number) = (EventId::from_index(row - start), EventId::from_index(row));
        assert_eq!(window.stage_at(id), whole.stage_at(number), "event {row} of {start}..{end}");
    }
    let mut expected: Vec<_> =
        rows(whole, start, end).into_iter().map(|id| (waiting_at(whole, id, start), id)).collect();
    let mut found: Vec<_> = window.blocks.ids().map(|id| (window.was_waiting_at_start(id), id)).collect();
    assert_eq!(found.len(), expected.len(), "{start}..{end}");
    let key = |trace: &Trace, id: BlockId| {
        let block = trace.blocks.get(id);
        (block.device, block.address, block.alloc, block.requested, block.category as u8)
    };
    expected.sort_by_key(|(_, id)| key(whole, *id).0);
    found.sort_by_key(|(_, id)| key(&window, *id).0);
    let tell = |trace: &Trace, (waits, id): (bool, BlockId)| {
        let mut facts = facts(trace, id);
        if waits {
            facts.4 = Lifetime::Always;
        }
        (waits, facts)
    };
    let mut expected: Vec<_> = expected.into_iter().map(|row| format!("{:?}", tell(whole, row))).collect();
    let mut found: Vec<_> = found.into_iter().map(|row| format!("{:?}", tell(&window, row))).collect();
    expected.sort();
    found.sort();
    let wrong = found.iter().zip(&expected).find(|(found, expected)| found != expected);
    assert_eq!(wrong, None, "{start}..{end}");
}

/// Whether the free of the block was requested before event `start`, and not completed.
fn waiting_at(trace: &Trace, id: BlockId, start: usize) -> bool {
    let block = trace.blocks.get(id);
    let is_requested = block.free_requested.index().is_some_and(|event| event < start);
    (is_requested || trace.was_waiting_at_start(id)) && block.free_completed.index().is_none_or(|event| event >= start)
}

#[test]
fn every_window_has_the_totals_lifetimes_and_origins_of_the_whole() {
    for seed in 0..4 {
        let bytes = recording(seed, 24, seed % 2 == 0);
        let (whole, windows) = (read_bytes(&bytes).unwrap(), open(&bytes));
        assert_eq!(windows.events() as usize, whole.events.len());
        assert_eq!(windows.main_device(), whole.main_device());
        assert_eq!(windows.base().trust, whole.trust);
        let count = whole.events.len() as u64;
        let mut numbers = Numbers(seed);
        for _ in 0..12 {
            let start = numbers.below(count + 1) as usize;
            let end = start + numbers.below(count + 1 - start as u64) as usize;
            compare(&whole, &windows, start, end);
        }
        compare(&whole, &windows, 0, count as usize);
        compare(&whole, &windows, count as usize, count as usize);
    }
}

#[test]
fn a_copy_is_the_recording_and_the_blocks_of_its_windows_have_the_numbers_of_the_whole() {
    for seed in 0..3 {
        let bytes = recording(seed, 8, seed % 2 == 0);
        let (whole, windows) = (read_bytes(&bytes).unwrap(), open(&bytes));
        let copy = windows.copy(Vec::new(), &mut |_| ControlFlow::Continue(())).unwrap();
        let copied = read_bytes(&copy).unwrap();
        assert!(text_from_trace(&copied) == text_from_trace(&whole) && copied.trust == whole.trust, "seed {seed}");
        let count = windows.events();
        let mut numbers = Numbers(seed);
        for _ in 0..6 {
            let start = numbers.below(count);
            let window = windows.window(start..start + numbers.below(900)).unwrap();
            let window = windows.number_blocks(window).unwrap();
            for id in window.events.ids() {
                let number = EventId::from_index(window.number(id) as usize);
                assert_eq!(event_text(&window, id), event_text(&whole, number), "event {}", number.0);
            }
            for id in window.blocks.ids() {
                let [found, expected] = [(&window, id), (&whole, window.block_number(id))].map(|(trace, id)| {
                    let block = trace.blocks.get(id);
                    (block.address, block.requested, trace.op_number(block.op), trace.alloc_number(id))
                });
                assert_eq!(found, expected, "block {}", window.block_number(id).0);
            }
        }
    }
}

#[test]
fn read_in_parts_a_recording_has_the_phases_and_peaks_of_the_whole() {
    for seed in 0..4 {
        let bytes = recording(seed, 12, seed % 2 == 0);
        let (whole, windows) = (read_bytes(&bytes).unwrap(), open(&bytes));
        assert_eq!(windows.device_ids(), whole.device_ids());
        let whole = Source::in_memory(whole);
        let source = Source::in_windows(windows).unwrap().in_windows_of(700 + seed);
        assert_eq!(summarize(&source, watch()).unwrap(), summarize(&whole, watch()).unwrap());
        for device in whole.facts().device_ids() {
            for metric in Metric::ALL {
                let [expected, found] = [&whole, &source].map(|source| {
                    let rows = source.stages(device, metric, watch()).unwrap();
                    let rows = phases(source.facts(), device, metric, rows);
                    let peak = source.peak(device, metric).unwrap();
                    let elsewhere = reached_elsewhere(&rows, &peak);
                    (rows, peak, elsewhere)
                });
                assert!(found == expected, "{metric} of {device:?}");
                let keys = [GroupKey::Category, GroupKey::Phase, GroupKey::Step, GroupKey::Lifetime, GroupKey::Op];
                let query = Query { keys: &keys, top: 1000, filter: &Filter::default(), siblings: Siblings::Merged };
                // The lifetime of a block that waits for a stream depends on when its free was requested, which a
                // window does not know.
                if metric != Metric::Active && metric != Metric::Reserved && metric != Metric::DeviceUsed {
                    let [expected, found] = [(&whole, expected.1), (&source, found.1)].map(|(source, peak)| {
                        let window = source.window_at(peak.number()).unwrap();
                        let index = window.index(device);
                        named(&Peak::at(&window.trace, &index.live, &index.series, peak, &query))
                    });
                    assert_eq!(found, expected, "{metric} of {device:?}");
                }
            }
        }
    }
}

/// The groups in the order of their names.
fn named(peak: &Peak) -> Vec<(Vec<String>, u64, u64)> {
    let groups = peak.breakdown.groups.iter();
    let mut named: Vec<_> = groups.map(|group| (group.key.clone(), group.bytes, group.blocks)).collect();
    named.sort();
    named
}

#[test]
fn a_peak_that_repeats_is_reported_at_the_step_of_the_whole() {
    // Steps of two phases with these sizes, and the steps' numbers; some work on another device alone.
    let step = |number: u32, sizes: [u64; 2], device: u16| {
        format!(
            "step {number}\nphase forward\nalloc a{number} {} device={device}\nfree a{number} device={device}\n\
             phase backward\nalloc b{number} {} device={device}\nfree b{number} device={device}\n",
            sizes[0], sizes[1]
        )
    };
    let recordings = [
        vec![step(0, [10, 50], 0), step(1, [10, 50], 0), step(2, [10, 50], 0)],
        vec![step(0, [50, 10], 0), step(1, [10, 50], 0), step(2, [50, 10], 0)],
        vec![step(0, [10, 20], 0), step(1, [10, 50], 0), step(2, [10, 50], 0)],
        vec![step(0, [9, 9], 1), step(1, [10, 50], 0), step(2, [10, 50], 0)],
        vec![step(0, [10, 50], 0), step(1, [9, 9], 1), step(2, [10, 50], 0)],
        vec![step(0, [10, 50], 0), "phase setup\nalloc x 50\nfree x\n".to_owned(), step(1, [10, 50], 0)],
        vec![step(0, [10, 50], 0), "alloc kept 50\n".to_owned(), step(1, [10, 0], 0)],
        vec![step(4, [10, 50], 0), step(1, [1, 2], 0), step(4, [10, 50], 0), step(5, [10, 50], 0)],
        vec![step(4, [10, 50], 0), step(1, [1, 2], 0), step(4, [10, 3], 0)],
        vec!["baseline w 50\nfree w\n".to_owned(), step(0, [10, 50], 0), step(1, [10, 50], 0)],
    ];
    for text in recordings.map(|steps| steps.concat()) {
        let whole = trace_from_text(&text).unwrap();
        let windows = open(&write_trace(Vec::new(), &whole).unwrap());
        let whole = Source::in_memory(whole);
        let source = Source::in_windows(windows).unwrap().in_windows_of(4);
        assert_eq!(summarize(&source, watch()).unwrap(), summarize(&whole, watch()).unwrap(), "{text}");
        for device in whole.facts().device_ids() {
            let rows = source.stages(device, Metric::Requested, watch()).unwrap();
            let found = source.moment(device, Metric::Requested, peak_of(&rows).map(|(event, _)| event)).unwrap();
            let peak = whole.peak(device, Metric::Requested).unwrap();
            assert_eq!(found, peak, "{text}");
        }
    }
}

#[test]
fn summaries_have_the_extremes_of_their_events() {
    let bytes = recording(11, 60, true);
    let (whole, windows) = (read_bytes(&bytes).unwrap(), open(&bytes));
    let mut next = 0;
    for row in windows.summaries() {
        assert_eq!(row.first, next);
        next += u64::from(row.events);
        for summary in &row.devices {
            let all = totals(&whole, summary.device);
            let states = &all[row.first as usize..=next as usize];
            assert_eq!(summary.end, states[states.len() - 1]);
            for metric in Metric::ALL {
                let values = states.iter().map(|totals| totals.get(metric));
                let (largest, smallest) = (values.clone().max().unwrap(), values.clone().min().unwrap());
                let first = |bytes| values.clone().position(|value| value == bytes).unwrap() as u32;
                let found = summary.largest(metric);
                assert_eq!((found.bytes, found.after), (largest, first(largest)), "{metric} of {}", row.first);
                let found = summary.smallest[metric as usize];
                assert_eq!((found.bytes, found.after), (smallest, first(smallest)), "{metric} of {}", row.first);
            }
            assert_eq!(summary.by_category.iter().sum::<u64>(), summary.largest[0].bytes, "of {}", row.first);
        }
    }
    assert_eq!(next, windows.events());
}

#[test]
fn a_damaged_summary_or_checkpoint_is_computed_again() {
    use highwater_snapshots::format::{Index, SectionKind};
    let bytes = recording(3, 14, true);
    let whole = open(&bytes);
    let index = Index::from_bytes(&bytes).unwrap();
    let kinds = [SectionKind::Summaries, SectionKind::Checkpoint, SectionKind::StepActivity].map(SectionKind::code);
    let rows: Vec<_> = index.rows.iter().filter(|row| kinds.contains(&row.kind)).collect();
    assert!(rows.len() > 8, "{} summaries and checkpoints", rows.len());
    for row in rows {
        let mut damaged = bytes.clone();
        damaged[row.offset as usize + 60] ^= 4;
        let trace = read_bytes(&damaged).unwrap();
        assert!(trace.lacks_index_only(), "{:?}", trace.problems);
        let windows = open(&damaged);
        let end = |windows: &Windows| {
            windows.summaries().last().unwrap().devices.iter().map(|row| row.end).collect::<Vec<_>>()
        };
        assert_eq!(end(&windows), end(&whole));
        for start in [0, 700, 2000, 3500] {
            match windows.window(start..start + 300) {
                Ok(window) => {
                    let expected = whole.window(start..start + 300).unwrap();
                    assert!(totals(&window, DeviceId(0)) == totals(&expected, DeviceId(0)));
                }
                // A checkpoint before the last is read only when it is needed.
                Err(why) => assert!(why.to_string().contains("checkpoint"), "{why}"),
            }
        }
    }
}

#[test]
fn what_is_read_in_windows_has_no_stacks_where_they_are_omitted() {
    let whole = trace_from_text("alloc a 10 < f < main\nalloc b 20 < g < main\nfree a\nalloc c 30 < f < main").unwrap();
    let source = Source::in_windows(open(&write_trace(Vec::new(), &whole).unwrap())).unwrap().in_windows_of(2);
    let (source, whole) = (source.without_stacks(), Source::in_memory(whole).without_stacks());
    let is_bare =
        |trace: &Trace| trace.tables.stacks.is_empty() && trace.events.stack.iter().all(|stack| !stack.is_some());
    let mut windows = 0;
    let take = |is_bare: bool| {
        assert!(is_bare);
        windows += 1;
    };
    source.each_window(is_bare, take, watch()).unwrap();
    assert!(windows > 1 && is_bare(source.facts()), "{windows} windows");
    let written = |source: &Source<'_>| source.write(Vec::new(), &mut |_| ControlFlow::Continue(()));
    assert!(is_bare(&read_bytes(&written(&whole).unwrap()).unwrap()));
    assert!(written(&source).is_err(), "the sections of the file have stacks, and it is too long to be written anew");
}
