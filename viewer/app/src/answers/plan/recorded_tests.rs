//! Tests of plans that are made by replaying a recording.

use std::sync::Arc;

use highwater_notation::trace_from_text;
use highwater_snapshots::{DeviceId, Trace};

use super::change::{Change, Forbidden, Setup};
use super::line::{PlanLine, composition};
use super::recorded::Recorded;
use super::search::{Query, search};
use super::step::{Reach, TrainingStep, Trial};

const MIB: u64 = 1 << 20;

fn pytorch(text: &str) -> Trace {
    trace_from_text(text).unwrap().edited(|trace| trace.header.recorder = "PyTorch 2.15".to_owned())
}

fn recorded(trace: Trace) -> Recorded {
    Recorded::new(Arc::new(trace), DeviceId(0), &[]).unwrap()
}

fn trial(step: &Recorded, change: Option<Change>, capacity: Option<u64>) -> Trial {
    step.trial(&Setup { changes: change.into_iter().collect(), ..Setup::default() }, capacity).unwrap()
}

/// An optimizer step over two modules of `states` states each, with a temporary of 9,000 bytes.
fn optimizer_step(states: &[(&str, u64)]) -> String {
    let mut text = "step 0\nphase forward\nalloc x 512\nfree x\nphase backward\nphase optimizer\n".to_owned();
    for (row, (scope, bytes)) in states.iter().enumerate() {
        text += &format!("alloc s{row} {bytes} optimizer_state @{scope}\n");
    }
    text + "alloc t 9000 temporary\nfree t\n"
}

#[test]
fn a_fused_adam_of_pytorch_has_a_counter_of_four_bytes_for_each_parameter() {
    let adam = optimizer_step(&[("a", 4000), ("a", 4000), ("b", 800), ("b", 800)]);
    let fused = |trace: Trace| trial(&recorded(trace), Some(Change::Fused), None);
    let found = fused(pytorch(&adam));
    assert_eq!((found.requested, found.allocated), (9600 + 2 * 4, 2 * 4096 + 2 * 1024 + 2 * 512));
    let engine = fused(trace_from_text(&adam).unwrap());
    assert_eq!(engine.requested, 9600, "the engine's counter is on the host");
    let momentum = fused(pytorch(&optimizer_step(&[("a", 4000), ("a", 40), ("b", 800)])));
    assert_eq!(momentum.requested, 4840, "an optimizer with one state for each parameter has none");
    let counted =
        fused(pytorch(&optimizer_step(&[("a", 4), ("a", 4), ("a", 4000), ("a", 4000), ("a", 4000), ("a", 4000)])));
    assert_eq!(counted.requested, 16_008, "they are there already");
    let many: Vec<(String, u64)> = (0..1600).map(|row| (format!("m{}", row / 2), 16)).collect();
    let many: Vec<(&str, u64)> = many.iter().map(|(scope, bytes)| (scope.as_str(), *bytes)).collect();
    let step = recorded(pytorch(&optimizer_step(&many).replace("9000", "1000")));
    let [before, fused] = [None, Some(Change::Fused)].map(|change| trial(&step, change, None));
    assert!(fused.requested > before.requested && fused.allocated > before.allocated, "{before:?} {fused:?}");
}

/// Three modules of which the first keeps running statistics and saves less.
const NORM: &str = "
    baseline m 256 buffer @net.0.bn
    baseline v 256 buffer @net.0.bn
    baseline n 8 buffer @net.0.bn
    baseline w 1048576 parameter @net.0.conv
    step 0
    phase forward
    alloc s0 67108864 activation @net.0.conv
    alloc r0 4194304 activation @net.0.bn
    alloc s1 134217728 activation @net.1.fc
    alloc r1 4194304 activation @net.1.fc
    alloc s2 134217728 activation @net.2.fc
    alloc r2 4194304 activation @net.2.fc
    phase backward
    alloc g2 4194304 gradient @net.2.fc
    free s2
    free r2
    alloc g1 4194304 gradient @net.1.fc
    free s1
    free r1
    alloc g0 4194304 gradient @net.0.conv
    free s0
    free r0
";

#[test]
fn modules_with_batch_normalization_are_recomputed_last_and_their_statistics_are_kept() {
    let plan = |trace: Trace, mebibytes: u64| {
        let step = recorded(trace);
        let query = Query { capacity: mebibytes * MIB, ..Query::default() };
        let setup = search(&step, &query).unwrap().best().unwrap().setup.clone();
        let lines = step.code(&setup).unwrap().lines.join("\n");
        (setup.recomputed.clone().unwrap(), lines, step.assumptions(&setup))
    };
    let (modules, lines, assumptions) = plan(pytorch(NORM), 310);
    assert_eq!(modules, ["net.1"], "though recomputing net.0 would cost less");
    let is_of_statistics = |text: &String| text.contains("batch normalization");
    assert!(!lines.contains("keep_statistics") && !assumptions.iter().any(is_of_statistics), "{lines}");
    let engine = plan(trace_from_text(NORM).unwrap(), 310);
    assert_eq!(engine.0, ["net.0"], "the engine does not update statistics in a recomputation");
    let (modules, lines, assumptions) = plan(pytorch(NORM), 180);
    assert!(modules.contains(&"net.0".to_owned()), "{modules:?}");
    assert!(lines.contains("context_fn=contexts") && assumptions.iter().any(is_of_statistics), "{assumptions:?}");
}

#[test]
fn the_cache_of_keys_and_values_is_disabled_where_modules_are_recomputed() {
    let lines = |text: &str| {
        let step = recorded(pytorch(text));
        let query = Query { capacity: 310 * MIB, ..Query::default() };
        let setup = search(&step, &query).unwrap().best().unwrap().setup.clone();
        (step.code(&setup).unwrap().lines.join("\n"), step.assumptions(&setup))
    };
    let (without, _) = lines(NORM);
    assert!(!without.contains("use_cache"), "{without}");
    let update = "@net.1.fc < site-packages/transformers/cache_utils.py:120 update";
    let (with, assumptions) = lines(&NORM.replacen("@net.1.fc", update, 1));
    assert!(with.contains("module.config.use_cache = False"), "{with}");
    assert!(assumptions.iter().any(|text| text.contains("use_cache")), "{assumptions:?}");
}

#[test]
fn releases_of_the_cache_are_counted_on_a_device_that_is_just_large_enough() {
    let text = format!("alloc a {}\nfree a\nalloc b {}\nfree b\n", 30 * MIB, 31 * MIB);
    let step = recorded(pytorch(&text));
    let retries = |mebibytes: u64| trial(&step, None, Some(mebibytes * MIB));
    assert_eq!((retries(32).fits, retries(32).retries), (true, 1));
    assert_eq!((retries(80).fits, retries(80).retries), (true, 0));
}

#[test]
fn what_is_reserved_beside_a_budget_is_what_meets_it_once_cached_memory_was_released() {
    let text = format!("alloc a {}\nfree a\nalloc b {}\nfree b\n", 30 * MIB, 31 * MIB);
    let step = recorded(pytorch(&text));
    let capacity = 32 * MIB;
    assert!(trial(&step, None, None).reserved > capacity, "without a budget both segments stay");
    let query = Query { capacity, forbidden: vec![Forbidden::Settings], ..Query::default() };
    let found = search(&step, &query).unwrap();
    assert!(found.fits_as_is && found.as_is.reserved <= capacity, "{:?}", found.as_is);
    let setup =
        Setup { changes: vec![Change::Fused], settings: Some("max_split_size_mb:64".to_owned()), ..Setup::default() };
    let lines = PlanLine::all(&step, &setup, capacity).unwrap();
    assert_eq!(lines.len(), 2);
    assert!(lines.iter().all(|line| line.trial.reserved <= capacity && line.trial.retries == 1), "{lines:?}");
    let too_small = PlanLine::all(&step, &setup, 20 * MIB).unwrap();
    assert!(too_small.iter().all(|line| line.trial.reserved > capacity), "on a device that is large enough");
}

#[test]
fn a_plan_of_a_recording_with_a_failed_request_never_says_that_it_fits_and_its_figures_include_the_request() {
    let forward = NORM.split("phase backward").next().unwrap();
    let step = recorded(pytorch(&format!("{forward}oom 104857600 free=0\n")));
    let found = |mebibytes: u64| search(&step, &Query { capacity: mebibytes * MIB, ..Query::default() }).unwrap();
    let enough = found(600);
    assert_eq!((enough.fits(), enough.reach, enough.fits_as_is), (None, Reach::FailedRequest, true));
    let least = found(64);
    assert_eq!(least.fits(), Some(false));
    let parts = composition(&step.recording(&least.minimum.setup).unwrap());
    assert_eq!(parts.iter().map(|(_, bytes)| bytes).sum::<u64>(), least.minimum.requested, "{parts:?}");
    assert!(least.minimum.device_bytes.is_some_and(|bytes| bytes >= least.minimum.requested));
    let whole = search(&recorded(pytorch(NORM)), &Query { capacity: 600 * MIB, ..Query::default() }).unwrap();
    assert_eq!((whole.fits(), whole.reach), (Some(true), Reach::End));
}

#[test]
fn settings_are_not_changed_of_an_allocator_that_has_none() {
    let arena = "alloc a 1048576\noom 8388608 free=4194304\n";
    assert!(!recorded(trace_from_text(arena).unwrap()).has_settings());
    assert!(recorded(pytorch(arena)).has_settings());
}

#[test]
fn a_plan_of_a_part_of_a_run_never_says_that_it_fits_and_of_a_state_there_is_none() {
    let query = |mebibytes: u64| Query { capacity: mebibytes * MIB, ..Query::default() };
    let step = recorded(pytorch(NORM).edited(|trace| trace.trust.unfinished = true));
    let found = search(&step, &query(600)).unwrap();
    let why = "the recording was cut off, or is still being written";
    assert_eq!((found.fits(), found.fits_as_is, found.reach.doubt()), (None, true, Some(why)));
    assert_eq!(search(&step, &query(64)).unwrap().fits(), Some(false), "what is recorded does not fit");
    let state = trace_from_text("baseline w 4096 parameter\nbaseline_segment 0x0 2097152 small\n").unwrap();
    let refused = Recorded::new(Arc::new(state), DeviceId(0), &[]).err().unwrap();
    assert!(refused.starts_with("the recording has no events, only the state at its end"), "{refused}");
}
