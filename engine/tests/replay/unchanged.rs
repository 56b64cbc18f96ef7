//! With nothing changed, a replay comes to the recorded segments and addresses.

use std::path::Path;

use highwater_engine::replay::{Plan, Ties, recorded_config, replay};
use highwater_recorder::snapshots::open;

#[test]
fn look() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../snapshots/testdata/pytorch");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    if let Ok(more) = std::env::var("MORE") {
        files.extend(std::fs::read_dir(more).unwrap().map(|e| e.unwrap().path()));
    }
    files.sort();
    for file in files {
        let Ok(opened) = open::open_file(&file, &mut |_| std::ops::ControlFlow::Continue(())) else { continue };
        let trace = opened.trace;
        for device in trace.device_ids() {
            let (config, strange) = recorded_config(trace.device_facts(device));
            for ties in [Ties::OldestSegment, Ties::LowestAddress] {
                let start = std::time::Instant::now();
                let replayed = replay(&trace, &Plan::unchanged(device, config.clone(), ties));
                println!(
                    "{} d{} {ties:?} [{config}] {} events, {:?}: {:?} {} drift {} elsewhere {} {strange:?} {:?}",
                    file.file_name().unwrap().to_string_lossy(),
                    device.0,
                    trace.events.len(),
                    start.elapsed(),
                    replayed.divergence.map(|d| (d.event, d.difference.to_string())),
                    replayed.trace.events.len(),
                    replayed.largest_difference,
                    replayed.placed_elsewhere,
                    replayed.assumptions
                );
            }
        }
    }
}
