//! Tests that the explanation of the peak is the same for a recording read in parts as for the whole recording.

use highwater_analysis::explain::{Advice, Remedy};
use highwater_analysis::peak::Query;
use highwater_analysis::{Explanation, Filter, GroupKey, Metric, Siblings, Source};
use highwater_notation::trace_from_text;
use highwater_snapshots::format::{read_bytes, write_trace};

use crate::program::{open, recording, training, watch};

const KEYS: [&[GroupKey]; 4] = [
    &[GroupKey::Category, GroupKey::Phase],
    &[GroupKey::Scope, GroupKey::Op],
    &[GroupKey::Step, GroupKey::Size],
    &[GroupKey::Frame],
];

/// Compares the explanations of all devices, metrics and keys; returns the remedies that were seen.
fn compare(whole: &Source<'_>, windows: &Source<'_>) -> Vec<Remedy> {
    let mut remedies = Vec::new();
    let none = Filter::default();
    let some: Filter = "category=activation,gradient".parse().unwrap();
    for device in whole.facts().device_ids() {
        for metric in Metric::OF_BLOCKS {
            let filtered = KEYS[metric as usize % KEYS.len()];
            for (keys, filter) in KEYS.into_iter().map(|keys| (keys, &none)).chain([(filtered, &some)]) {
                let query = Query { keys, top: 7, filter, siblings: Siblings::Merged };
                // When the free of a block that waits for a stream was requested is not known in a window.
                let is_compared = |advice: &Advice| {
                    advice.remedy != Remedy::FreeAfterLastUse
                        && (metric != Metric::Active
                            || !matches!(advice.remedy, Remedy::StepInBackward | Remedy::FixLeak))
                };
                let [expected, found] = [whole, windows].map(|source| {
                    let mut explanation = Explanation::of(source, device, metric, &query, watch()).unwrap();
                    // Last uses are not looked for in windows.
                    explanation.idle = None;
                    explanation.advice.retain(is_compared);
                    explanation
                });
                assert!(found == expected, "{metric} of {device:?} by {keys:?}");
                remedies.extend(expected.advice.iter().map(|advice| advice.remedy));
            }
        }
    }
    remedies
}

#[test]
fn read_in_parts_a_peak_has_the_explanation_of_the_whole() {
    for seed in 0..2 {
        let bytes = recording(seed, 6, seed % 2 == 0);
        let windows = Source::in_windows(open(&bytes)).unwrap().in_windows_of(700 + seed);
        compare(&Source::in_memory(read_bytes(&bytes).unwrap()), &windows);
    }
}

#[test]
fn read_in_parts_a_training_run_has_the_advice_of_the_whole() {
    let leak = |step: u32| format!("alloc leak{step} 900 < train.py:7 step\n");
    let waiting = |step: u32| format!("alloc q{step} 9000 @model\nfree_requested q{step}\nfree_completed q{step}\n");
    let fails = |step: u32| if step == 4 { "oom 5000 free=1\nfree v\n".to_owned() } else { String::new() };
    let runs = [
        training(6, |_| String::new()),
        training(6, |_| String::new()).replace("400 activation", "4000 activation"),
        training(6, leak),
        training(6, waiting),
        training(5, fails),
        training(6, |_| String::new()).replace(" @model.layers.", " @l").replace("phase optimizer\n", ""),
        "alloc a 5000 activation\nalloc b 700 activation\nfree a\nalloc c 900\n".to_owned(),
    ];
    let mut remedies = Vec::new();
    for text in runs {
        let whole = trace_from_text(&text).unwrap();
        let windows = open(&write_trace(Vec::new(), &whole).unwrap());
        let (whole, windows) = (Source::in_memory(whole), Source::in_windows(windows).unwrap());
        for events in [7, 1000] {
            remedies.extend(compare(&whole, &windows.clone().in_windows_of(events)));
        }
    }
    let advised = [
        Remedy::FusedOptimizer,
        Remedy::StepInBackward,
        Remedy::Checkpoint,
        Remedy::FewerActivations,
        Remedy::SmallerState,
        Remedy::FixLeak,
    ];
    for remedy in advised {
        assert!(remedies.contains(&remedy), "{remedy:?} is not among the advice");
    }
}
