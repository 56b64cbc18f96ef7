//! `highwater oom`, and the analysis of a failed request.

use std::collections::BTreeMap;

use highwater_analysis::addresses::FailedRequest;
use highwater_analysis::long::failed_requests;
use highwater_analysis::{AddressIndex, LiveIndex, Series};
use highwater_app::answers::replays::analyse;
use highwater_snapshots::event::EventKind;
use highwater_snapshots::format::Windows;
use highwater_snapshots::{DeviceId, EventId, Trace};

use crate::args::OomArguments;
use crate::cli::input::categories::read_with;
use crate::cli::input::long::{self, in_parts, open_long};
use crate::cli::input::recording::{choose_device, spinner};
use crate::cli::oom::{Case, OomReport, Selected, selected};
use crate::cli::output::answer::answer;
use crate::cli::output::outcome::{Failure, Status};
use crate::cli::output::page::Page;

/// Events before a failed request from which on a recording that is read in parts is replayed.
const EVENTS_BEFORE: u64 = 1 << 17;

/// Reads the recording and prints why memory ran out and what would have helped.
pub fn run(arguments: &OomArguments, page: &mut Page<'_>) -> Result<Status, Failure> {
    let file = &arguments.source.file;
    if let Some(windows) = open_long(file, &arguments.categories)?
        && let Some(all) = in_parts(&windows, file, |_| failed_requests(&windows))?
    {
        let device = arguments.device.map(|device| long::choose_device(&windows, Some(device))).transpose()?;
        let Selected { shown, others } = selected(&all, device, arguments)?;
        if let Some((window, cases)) = in_parts(&windows, file, |_| cases_in_parts(&windows, &shown))? {
            let report = OomReport::of(&window, arguments, cases, others);
            return answer(&window, arguments.source.json, page, || report.figures(), |page| report.print(page));
        }
    }
    let recording = read_with(file, &arguments.categories)?;
    let turning = spinner("replaying");
    let report = report(&recording.trace, arguments);
    turning.finish_and_clear();
    let report = report?;
    answer(&recording.trace, arguments.source.json, page, || report.figures(), |page| report.print(page))
}

/// Computes the report for `arguments`.
pub fn report<'a>(trace: &'a Trace, arguments: &'a OomArguments) -> Result<OomReport<'a>, Failure> {
    let device = arguments.device.map(|device| choose_device(trace, Some(device))).transpose()?;
    let rows = (0..trace.events.len()).filter(|row| trace.events.kind[*row] == EventKind::Oom);
    let all: Vec<(u64, DeviceId)> = rows.map(|row| (row as u64, trace.events.device[row])).collect();
    let Selected { shown, others } = selected(&all, device, arguments)?;
    Ok(OomReport::of(trace, arguments, cases(trace, &shown), others))
}

/// Analyses failed requests of `trace`, in order.
fn cases(trace: &Trace, requests: &[(u64, DeviceId)]) -> Vec<Case> {
    let mut of_device: BTreeMap<DeviceId, Vec<EventId>> = BTreeMap::new();
    for (number, device) in requests {
        let row = number.saturating_sub(trace.start.events) as usize;
        of_device.entry(*device).or_default().push(EventId::from_index(row));
    }
    let mut cases = Vec::with_capacity(requests.len());
    for (device, events) in of_device {
        let (series, (live, index)) = rayon::join(
            || Series::build(trace, device),
            || rayon::join(|| LiveIndex::build(trace, device), || AddressIndex::build(trace, device)),
        );
        let of_event = |event: EventId| {
            let request = FailedRequest::of(trace, &index, &live, &series, event)?;
            let analysis = analyse(trace, request, &live)?.numbered_after(trace.start.events);
            Some(Case { analysis, stack: trace.events.stack[event.0 as usize] })
        };
        cases.extend(events.into_iter().filter_map(of_event));
    }
    cases.sort_by_key(|case| case.analysis.request.event);
    cases
}

/// Analyses failed requests of a recording that is read in parts, and returns a window without events.
fn cases_in_parts(
    windows: &Windows,
    requests: &[(u64, DeviceId)],
) -> Result<(Trace, Vec<Case>), highwater_snapshots::Error> {
    let mut all = Vec::with_capacity(requests.len());
    for request in requests {
        let window = windows.window(request.0.saturating_sub(EVENTS_BEFORE)..request.0 + 1)?;
        all.extend(cases(&window, &[*request]));
    }
    Ok((windows.window(0..0)?, all))
}
