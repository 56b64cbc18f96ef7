//! Tests that replays of the engine's own scenarios give the recorded events, and with other settings those of a real
//! run.

use std::sync::{Mutex, PoisonError};

use highwater_allocator::replay::{DeviceModel, Plan, TieBreak, recorded_config, replay};
use highwater_engine::scenario::{self, Options};
use highwater_recorder::snapshots::format::read_file;
use highwater_recorder::snapshots::{DeviceId, Trace};

use crate::{decisions, first_difference};

const SETTINGS: [&str; 5] = [
    "expandable_segments:True",
    "max_split_size_mb:20",
    "roundup_power2_divisions:4",
    "large_segment_size_mb:64",
    "expandable_segments:True,roundup_power2_divisions:[64:2,>:8]",
];

/// A process has one recording at a time.
static RECORDING: Mutex<()> = Mutex::new(());

pub(crate) fn recorded(name: &str, alloc_conf: Option<&str>) -> Trace {
    let _one = RECORDING.lock().unwrap_or_else(PoisonError::into_inner);
    let file = tempfile::NamedTempFile::new().expect("a temporary file can be made");
    let options = Options { steps: 2, alloc_conf: alloc_conf.map(str::to_owned), ..Options::default() };
    scenario::record(name, &options, file.path()).expect("every scenario runs with its defaults");
    read_file(file.path()).expect("what was recorded can be read")
}

#[test]
fn scenarios_are_replayed_to_the_byte_and_predicted_for_other_settings() {
    for (place, info) in scenario::all().iter().enumerate() {
        let name = info.name;
        let trace = recorded(name, None);
        let device: DeviceId = trace.main_device();
        let (config, strange) = recorded_config(trace.device_facts(device));
        assert_eq!(strange, [""; 0], "{name}");

        let same = replay(&trace, &Plan::unchanged(device, config.clone(), TieBreak::default()));
        let outcome = &same.outcome;
        assert_eq!((outcome.divergence, outcome.largest_difference, outcome.placed_elsewhere), (None, 0, 0), "{name}");
        let difference = first_difference(&decisions(&trace, device), &decisions(&same.trace, device));
        assert_eq!(difference, None, "{name}: (place, recorded, replayed)");
        assert!(outcome.assumptions.is_empty(), "{name}: {:?}", outcome.assumptions);

        let conf = SETTINGS[place % SETTINGS.len()];
        let real = recorded(name, Some(conf));
        let plan = Plan {
            config: config.with(conf).expect("settings are well formed"),
            answers: DeviceModel::Modelled(None),
            cache_flushes: &outcome.cache_flushes,
            reallocates_start: true,
            ..Plan::unchanged(device, config, TieBreak::default())
        };
        let predicted = replay(&trace, &plan);
        let difference = first_difference(&decisions(&real, device), &decisions(&predicted.trace, device));
        assert_eq!(difference, None, "{name} with {conf}: (place, real, predicted)");
    }
}
