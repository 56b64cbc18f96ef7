//! Tests that replays of PyTorch's recordings give the recorded segments and addresses, and with other settings those
//! that PyTorch's allocator gives.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use highwater_allocator::AllocConfig;
use highwater_allocator::replay::{DeviceModel, Plan, Replay, TieBreak, recorded_config, replay};
use highwater_analysis::{Metric, Series};
use highwater_pytorch::open::open_file;
use highwater_recorder::snapshots::trace::PINNED_DEVICE;
use highwater_recorder::snapshots::{DeviceId, Trace};

use crate::{decisions, first_difference};

fn open(file: &Path) -> Trace {
    let opened = open_file(file, &mut |_| ControlFlow::Continue(()));
    opened.unwrap_or_else(|why| panic!("{}: {why}", file.display())).trace
}

/// The recordings in a folder, by name.
fn recordings(folder: &Path) -> Vec<(String, PathBuf)> {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|why| panic!("{}: {why}", folder.display()));
    let mut found: Vec<(String, PathBuf)> = entries
        .map(|entry| entry.expect("a folder lists its entries").path())
        .map(|path| (path.file_name().unwrap_or_default().to_string_lossy().into_owned(), path))
        .filter(|(name, _)| {
            let is_recording =
                [".pickle", ".pickle.gz", ".json", ".json.gz", ".html"].iter().any(|end| name.ends_with(end));
            is_recording && name != "expected.json"
        })
        .collect();
    found.sort();
    found
}

/// The replay with nothing changed, by the tie-break rule that the recording follows.
fn unchanged(trace: &Trace, device: DeviceId) -> (Replay, TieBreak) {
    let (config, _) = recorded_config(trace.device_facts(device));
    let run = |tie_break| (replay(trace, &Plan::unchanged(device, config.clone(), tie_break)), tie_break);
    let newer = run(TieBreak::OldestSegment);
    if newer.0.outcome.divergence.is_none() { newer } else { run(TieBreak::LowestAddress) }
}

/// Replays every device of every recording; gives how many, and those that differ.
fn check(folder: &Path) -> (usize, Vec<String>) {
    let mut differing = Vec::new();
    let mut count = 0;
    for (name, path) in recordings(folder) {
        let trace = open(&path);
        for device in trace.device_ids().into_iter().filter(|device| *device != PINNED_DEVICE) {
            let (replayed, tie_break) = unchanged(&trace, device);
            count += 1;
            match replayed.outcome.divergence {
                Some(divergence) => differing.push(format!("{name} {divergence:?} {tie_break:?}")),
                None => assert_eq!(
                    (replayed.outcome.largest_difference, replayed.outcome.placed_elsewhere),
                    (0, 0),
                    "{name}"
                ),
            }
        }
    }
    (count, differing)
}

#[test]
fn every_recorded_form_is_replayed_to_the_byte() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../snapshots/pytorch/testdata");
    let (count, differing) = check(&folder);
    assert!(count > 50, "{count} replays");
    // That trace was recorded without the events of segments, so that nothing says which were obtained.
    assert_eq!(differing.len(), 1, "{differing:#?}");
    assert!(differing[0].starts_with("skipped_segments.pickle"), "{differing:?}");
}

#[test]
#[expect(clippy::print_stdout, reason = "a test that is skipped says so")]
fn real_snapshots_of_other_people_are_replayed_to_the_byte() {
    let Some(folder) = std::env::var_os("HIGHWATER_TORCH_SAMPLES") else {
        println!("skipped: HIGHWATER_TORCH_SAMPLES names no folder of PyTorch's snapshots");
        return;
    };
    let (count, differing) = check(Path::new(&folder));
    assert!(count > 0, "the folder holds recordings");
    assert_eq!(differing, [""; 0]);
}

/// The recordings of one program, run with the default settings and with others.
const PAIRS: &str = "tests/data/replay";

#[test]
fn other_settings_are_predicted_as_pytorch_really_follows_them() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(PAIRS);
    let files = recordings(&folder);
    let expected = std::fs::read_to_string(folder.join("expected.json")).expect("the folder says what to expect");
    let expected: serde_json::Value = serde_json::from_str(&expected).expect("the file is JSON");
    let (mut compared, mut differing) = (0, Vec::new());
    for (program, base) in
        files.iter().filter_map(|(name, path)| Some((name.strip_suffix("-default.pickle.gz")?, path)))
    {
        let trace = open(base);
        let device = DeviceId(0);
        let (same, tie_break) = unchanged(&trace, device);
        assert_eq!(same.outcome.divergence, None, "{program}");
        let others = files.iter().filter(|(name, path)| name.starts_with(&format!("{program}-")) && path != base);
        for (name, path) in others {
            let real = open(path);
            let (config, strange) = recorded_config(real.device_facts(device));
            assert_eq!(strange, [""; 0], "{name}");
            assert_ne!(config, AllocConfig::default(), "{name} was recorded with other settings");
            let plan = Plan {
                config,
                answers: DeviceModel::Modelled(None),
                cache_flushes: &same.outcome.cache_flushes,
                reallocates_start: true,
                ..Plan::unchanged(device, AllocConfig::default(), tie_break)
            };
            let predicted = replay(&trace, &plan).trace;
            let peaks = &expected[name.strip_suffix(".pickle.gz").unwrap_or(name)];
            let series = Series::build(&predicted, device);
            for metric in [Metric::Requested, Metric::Allocated, Metric::Active, Metric::Reserved] {
                let (peak, real) = (series.peak(&predicted, metric).0, peaks[metric.name()].as_u64());
                assert_eq!(Some(peak), real, "{name}: {} against PyTorch's own counter", metric.name());
            }
            if let Some(difference) = first_difference(&decisions(&real, device), &decisions(&predicted, device)) {
                differing.push(format!("{name}: {difference:?} (place, real, predicted)"));
            }
            compared += 1;
        }
    }
    assert_eq!(differing, [""; 0]);
    assert_eq!(compared, 21, "pairs");
}
