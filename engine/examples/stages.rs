//! Stages: runs a scenario on the accounting device and prints what each phase of each step holds.
//!
//! `cargo run --example stages -- vit-l-16 [foreach|per-tensor|in-backward]`
#![expect(clippy::print_stdout, reason = "the table is what this program is for")]

use std::error::Error;

use highwater_engine::scenario::{self, Options};
use highwater_recorder::snapshots::analysis::Metric;
use highwater_recorder::snapshots::analysis::phases::phases;
use highwater_recorder::snapshots::format::read_file;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().unwrap_or_else(|| "vit-l-16".to_owned());
    let variant = arguments.next().unwrap_or_else(|| "foreach".to_owned());
    let options = Options {
        foreach: Some(variant != "per-tensor"),
        optimizer_in_backward: variant == "in-backward",
        ..Options::default()
    };
    let file = std::env::temp_dir().join(format!("stages-{}.snap", std::process::id()));
    let report = scenario::record(&name, &options, &file)?;
    let trace = read_file(&file)?;
    std::fs::remove_file(&file)?;
    println!("{:<6}{:<12}{:>16}{:>16}  at the peak", "step", "phase", "end bytes", "peak bytes");
    for row in phases(&trace, trace.main_device(), Metric::Requested) {
        let step = row.step.map_or(String::new(), |step| step.to_string());
        let parts: Vec<String> = row.at_peak.iter().map(|(category, bytes)| format!("{category} {bytes}")).collect();
        println!("{step:<6}{:<12}{:>16}{:>16}  {}", row.phase, row.end_bytes, row.peak_bytes, parts.join(", "));
    }
    if let Some(oom) = report.oom {
        println!("{}", oom.description);
    }
    Ok(())
}
