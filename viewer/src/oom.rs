//! `highwater oom`, and the analysis of a failed request.

use std::collections::BTreeMap;

use highwater_analysis::addresses::FailedRequest;
use highwater_analysis::{AddressIndex, LiveIndex, Series};
use highwater_app::answers::replays::analyse;
use highwater_snapshots::{DeviceId, EventId, Trace};

use crate::args::OomArguments;
use crate::cli::input::categories::read_with;
use crate::cli::input::recording::spinner;
use crate::cli::oom::{OomReport, selected};
use crate::cli::output::answer::answer;
use crate::cli::output::outcome::{Failure, Status};
use crate::cli::output::page::Page;

/// Reads the recording and prints why memory ran out and what would have helped.
pub fn run(arguments: &OomArguments, page: &mut Page<'_>) -> Result<Status, Failure> {
    let recording = read_with(&arguments.source.file, &arguments.categories)?;
    let turning = spinner("replaying".to_owned());
    let report = report(&recording.trace, arguments);
    turning.finish_and_clear();
    let report = report?;
    answer(&recording.trace, arguments.source.json, page, || report.figures(), |page| report.print(page))
}

/// Computes the report for `arguments`.
pub fn report<'a>(trace: &'a Trace, arguments: &'a OomArguments) -> Result<OomReport<'a>, Failure> {
    let selection = selected(trace, arguments)?;
    let mut of_device: BTreeMap<DeviceId, Vec<EventId>> = BTreeMap::new();
    for event in &selection.shown {
        of_device.entry(trace.events.device[event.0 as usize]).or_default().push(*event);
    }
    let mut cases = Vec::with_capacity(selection.shown.len());
    for (device, events) in of_device {
        let (series, (live, index)) = rayon::join(
            || Series::build(trace, device),
            || rayon::join(|| LiveIndex::build(trace, device), || AddressIndex::build(trace, device)),
        );
        let of_event = |event: EventId| analyse(trace, FailedRequest::of(trace, &index, &live, &series, event)?, &live);
        cases.extend(events.into_iter().filter_map(of_event));
    }
    cases.sort_by_key(|case| case.request.event);
    Ok(OomReport::of(trace, arguments, cases, selection.others))
}
