//! Tests that budgets of a recording read in parts have the same measured values and causes as for the whole recording.

use highwater_analysis::budget::{Allowance, Budget, Checked, Outcome, check};
use highwater_analysis::{Metric, Source};
use highwater_notation::trace_from_text;
use highwater_snapshots::format::{read_bytes, write_trace};
use highwater_snapshots::{Category, DeviceId, Phase};

use crate::program::{open, recording, training, watch};

/// Budgets that are exceeded.
fn budgets() -> Vec<Budget> {
    let mut all =
        vec![Budget::Peak(1), Budget::Reserved(1), Budget::Growth(Allowance::Bytes(0)), Budget::StepGrowth(0)];
    all.extend(Category::ALL.iter().map(|category| Budget::Category(*category, 1)));
    all.extend([Phase::Setup, Phase::Forward, Phase::Optimizer].map(|phase| Budget::Phase(phase, 1)));
    all
}

/// Compares the outcomes on all devices, without a baseline and with one; returns those with it. Each recording is
/// given as a whole and in windows.
fn compare(recording: [&Source<'_>; 2], baseline: [&Source<'_>; 2]) -> Vec<Outcome> {
    let mut all = Vec::new();
    for device in recording[0].facts().device_ids() {
        for metric in [Metric::Requested, Metric::Allocated, Metric::Reserved] {
            let checked = |source| Checked::of(source, device, metric, &budgets(), watch()).unwrap();
            let (own, other) = (recording.map(checked), baseline.map(checked));
            let [expected, found] = [0, 1].map(|side| check(&own[side], None, &budgets()).unwrap());
            assert_eq!(found, expected, "{metric} of {device:?}");
            let [expected, found] = [0, 1].map(|side| check(&own[side], Some(&other[side]), &budgets()).unwrap());
            assert_eq!(found, expected, "{metric} of {device:?}, with a baseline");
            let mixed = check(&own[0], Some(&other[1]), &budgets()).unwrap();
            assert_eq!(mixed, expected, "{metric} of {device:?} against a baseline in windows");
            all.extend(found.into_iter().flatten());
        }
    }
    all
}

#[test]
fn read_in_parts_a_recording_has_the_outcomes_of_the_whole() {
    let [first, second] = [3, 4].map(|seed| recording(seed, 6, seed % 2 == 0));
    let whole = [&first, &second].map(|bytes| Source::in_memory(read_bytes(bytes).unwrap()));
    let windows = [&first, &second].map(|bytes| Source::in_windows(open(bytes)).unwrap().in_windows_of(500));
    compare([&whole[0], &windows[0]], [&whole[1], &windows[1]]);
}

#[test]
fn read_in_parts_a_training_run_names_the_causes_of_the_whole() {
    let leak = |step: u32| format!("alloc leak{step} 900 < train.py:7 step\n");
    let texts = [training(6, leak), training(6, |_| String::new()).replace("400 activation", "300 activation")];
    let [whole, baseline] = texts.map(|text| {
        let trace = trace_from_text(&text).unwrap();
        let windows = Source::in_windows(open(&write_trace(Vec::new(), &trace).unwrap())).unwrap();
        (Source::in_memory(trace), windows)
    });
    for events in [3, 17, 1000] {
        let windows = [&whole.1, &baseline.1].map(|source| source.clone().in_windows_of(events));
        let outcomes = compare([&whole.0, &windows[0]], [&baseline.0, &windows[1]]);
        let is_named = |outcome: &&Outcome| outcome.moment.device == DeviceId(0) && outcome.culprit.is_some();
        assert!(outcomes.iter().filter(is_named).count() > 6, "{outcomes:?}");
    }
}
