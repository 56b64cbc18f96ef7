//! `highwater whatif`: a recording replayed with something changed.

use highwater_app::answers::prediction::Prediction;
use highwater_app::answers::replays::predict;
use highwater_snapshots::Trace;

use crate::args::WhatIfArguments;
use crate::cli::input::categories::read_with;
use crate::cli::input::devices::covered;
use crate::cli::input::recording::{choose_device, spinner};
use crate::cli::output::answer::answer;
use crate::cli::output::outcome::{Failure, Status};
use crate::cli::output::page::Page;
use crate::cli::whatif::WhatIfReport;

/// Reads the recording, replays it, and prints the result.
pub fn run(arguments: &WhatIfArguments, page: &mut Page<'_>) -> Result<Status, Failure> {
    let recording = read_with(&arguments.source.file, &arguments.categories)?;
    let turning = spinner("replaying");
    let report = report(&recording.trace, arguments);
    turning.finish_and_clear();
    let report = report?;
    answer(&recording.trace, arguments.source.json, page, || report.figures(), |page| report.print(page))
}

/// Computes the report for `arguments`. A capacity applies to all devices, unless one is named.
pub fn report<'a>(trace: &'a Trace, arguments: &'a WhatIfArguments) -> Result<WhatIfReport<'a>, Failure> {
    let wanted = arguments.device.device;
    let devices = match wanted {
        None if arguments.capacity.is_some() => covered(trace, wanted)?,
        _ => vec![choose_device(trace, wanted)?],
    };
    let predictions: Result<Vec<Prediction>, String> =
        devices.iter().map(|device| predict(trace, &arguments.change(*device))).collect();
    WhatIfReport::of(trace, arguments, predictions.map_err(Failure::Usage)?)
}
