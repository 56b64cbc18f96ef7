//! Budgets are measured in a recording that is read in parts as in the whole, and the same causes are named.

use std::ops::ControlFlow;

use highwater_analysis::budget::{Allowance, Budget, Checked, Outcome, check};
use highwater_analysis::diff::Asked;
use highwater_analysis::long::Parts;
use highwater_analysis::{LiveIndex, Metric, Series};
use highwater_snapshots::format::{Windows, read_bytes, write_trace};
use highwater_snapshots::text::trace_from_text;
use highwater_snapshots::trace::Trace;
use highwater_snapshots::{Category, DeviceId, Phase};

use crate::program::{open, recording, training};

/// Budgets that are exceeded.
fn budgets() -> Vec<Budget> {
    let mut all =
        vec![Budget::Peak(1), Budget::Reserved(1), Budget::Growth(Allowance::Bytes(0)), Budget::StepGrowth(0)];
    all.extend(Category::ALL.iter().map(|category| Budget::Category(*category, 1)));
    all.extend([Phase::Setup, Phase::Forward, Phase::Optimizer].map(|phase| Budget::Phase(phase, 1)));
    all
}

/// Compares the outcomes on all devices, without a baseline and with one; returns those with it.
fn compare([whole, baseline]: [(&Trace, &Windows); 2], events: u64) -> Vec<Outcome> {
    let mut all = Vec::new();
    for device in whole.0.device_ids() {
        for metric in [Metric::Requested, Metric::Allocated, Metric::Reserved] {
            let index = |trace: &Trace| (Series::build(trace, device), LiveIndex::build(trace, device));
            let indexes = [index(whole.0), index(baseline.0)];
            let [own, other] =
                [(whole, &indexes[0]), (baseline, &indexes[1])].map(|((trace, windows), (series, live))| {
                    let parts = Parts { windows, events };
                    let mut watch = |_| ControlFlow::Continue(());
                    let in_parts = Checked::in_parts(parts, device, metric, &budgets(), &mut watch).unwrap();
                    (Checked::in_memory(Asked { trace, series, live }, metric), in_parts)
                });
            let expected = check(&own.0, None, &budgets()).unwrap();
            let found = check(&own.1, None, &budgets()).unwrap();
            assert_eq!(found, expected, "{metric} of {device:?} in parts of {events} events");
            let expected = check(&own.0, Some(&other.0), &budgets()).unwrap();
            let found = check(&own.1, Some(&other.1), &budgets()).unwrap();
            assert_eq!(found, expected, "{metric} of {device:?} in parts of {events} events, with a baseline");
            let mixed = check(&own.0, Some(&other.1), &budgets()).unwrap();
            assert_eq!(mixed, expected, "{metric} of {device:?} against a baseline in parts of {events} events");
            all.extend(found.into_iter().flatten());
        }
    }
    all
}

#[test]
fn read_in_parts_a_recording_has_the_outcomes_of_the_whole() {
    let [first, second] = [3, 4].map(|seed| recording(seed, 6, seed % 2 == 0));
    let [whole, baseline] = [&first, &second].map(|bytes| (read_bytes(bytes).unwrap(), open(bytes)));
    compare([(&whole.0, &whole.1), (&baseline.0, &baseline.1)], 500);
}

#[test]
fn read_in_parts_a_training_run_names_the_causes_of_the_whole() {
    let leak = |step: u32| format!("alloc leak{step} 900 < train.py:7 step\n");
    let texts = [training(6, leak), training(6, |_| String::new()).replace("400 activation", "300 activation")];
    let [whole, baseline] = texts.map(|text| {
        let trace = trace_from_text(&text).unwrap();
        let windows = open(&write_trace(Vec::new(), &trace).unwrap());
        (trace, windows)
    });
    for events in [3, 17, 1000] {
        let outcomes = compare([(&whole.0, &whole.1), (&baseline.0, &baseline.1)], events);
        let is_named = |outcome: &&Outcome| outcome.moment.device == DeviceId(0) && outcome.culprit.is_some();
        assert!(outcomes.iter().filter(is_named).count() > 6, "{outcomes:?}");
    }
}
