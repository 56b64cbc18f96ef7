//! Tests that growth per step is the same for a recording read in parts as for the whole recording.

use highwater_analysis::growth::{Between, Growth, GrowthQuery, NoWindow, StepRange, growth};
use highwater_analysis::{Filter, GroupKey, Metric, Source};
use highwater_notation::trace_from_text;
use highwater_snapshots::DeviceId;
use highwater_snapshots::format::{read_bytes, write_trace};

use crate::program::{open, recording, training, watch};

const KEYS: [&[GroupKey]; 4] = [
    &[GroupKey::Category, GroupKey::Scope],
    &[GroupKey::Stack],
    &[GroupKey::Frame, GroupKey::Step],
    &[GroupKey::Lifetime, GroupKey::Phase],
];

/// Compares the growth on all devices, by all keys, over the requested steps; returns what was found on each.
fn compare(whole: &Source<'_>, windows: &Source<'_>, range: StepRange) -> Vec<Result<Growth, NoWindow>> {
    let devices: Vec<DeviceId> = whole.facts().device_ids();
    let filters: [Filter; 2] = [Filter::default(), "category=activation,unknown".parse().unwrap()];
    let mut all = Vec::new();
    for metric in Metric::OF_BLOCKS.into_iter().chain([Metric::Reserved]) {
        // When the free of a block that waits for a stream was requested is not known in a window.
        let keys = KEYS.into_iter().filter(|keys| metric != Metric::Active || !keys.contains(&GroupKey::Lifetime));
        for (keys, filter) in keys.zip(filters.iter().cycle()) {
            let query = GrowthQuery { metric, keys, top: 3, filter };
            let [expected, found] = [whole, windows].map(|source| {
                let mut found = growth(source, &devices, range, &[query], watch()).unwrap().remove(0);
                // Stacks of windows have the same numbers, but the traces are others.
                let sorted = |growth: &mut Growth| growth.groups.sort_by(|a, b| a.key.cmp(&b.key));
                found.iter_mut().flatten().for_each(sorted);
                found
            });
            assert_eq!(found, expected, "{metric} by {keys:?}");
            all.extend(found);
        }
    }
    all
}

#[test]
fn read_in_parts_a_recording_has_the_growth_of_the_whole() {
    let bytes = recording(2, 5, true);
    let whole = Source::in_memory(read_bytes(&bytes).unwrap());
    let windows = Source::in_windows(open(&bytes)).unwrap().in_windows_of(500);
    for range in [(None, None), (Some(1), Some(3)), (Some(9999), None)] {
        for between in [Between::Steps, Between::Idle] {
            compare(&whole, &windows, StepRange { from: range.0, to: range.1, between });
        }
    }
}

#[test]
fn read_in_parts_a_training_run_has_the_leaks_of_the_whole() {
    let leak = |step: u32| format!("alloc leak{step} 900 < train.py:7 step\n");
    let fails = |step: u32| if step == 4 { "oom 5000 free=1\nfree v\n".to_owned() } else { leak(step) };
    let runs = [
        training(6, leak),
        training(5, fails),
        training(6, leak).replace("step ", "step 4"),
        "alloc a 5000 activation\nalloc b 700 activation\nfree a\nalloc c 900\n".to_owned(),
    ];
    let (mut leaks, mut bursts) = (0, 0);
    for text in runs {
        let whole = trace_from_text(&text).unwrap();
        let windows = open(&write_trace(Vec::new(), &whole).unwrap());
        let (whole, windows) = (Source::in_memory(whole), Source::in_windows(windows).unwrap());
        for events in [3, 17, 1000] {
            let found = compare(&whole, &windows.clone().in_windows_of(events), StepRange::default());
            leaks += found.iter().flatten().filter(|growth| !growth.leaks.is_empty()).count();
            let idle = StepRange { between: Between::Idle, ..StepRange::default() };
            bursts += compare(&whole, &windows.clone().in_windows_of(events), idle).iter().flatten().count();
        }
    }
    assert!(leaks > 0 && bursts > 0, "no leak was found, or no bursts");
}
