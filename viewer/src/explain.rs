//! `highwater explain`, and the explanation of a peak with the savings that replays add to its advice.

use highwater_analysis::explain::ExplainQuery;
use highwater_analysis::long::{Parts, WindowedExplanation};
use highwater_analysis::{LiveIndex, Series};
use highwater_app::answers::explanation::{explain, explain_in_parts};
use highwater_snapshots::Trace;
use highwater_snapshots::format::Windows;

use crate::args::ExplainArguments;
use crate::cli::explain::ExplainReport;
use crate::cli::input::categories::read_with;
use crate::cli::input::long::{self, open_long};
use crate::cli::input::recording::choose_device;
use crate::cli::output::answer::answer;
use crate::cli::output::outcome::{Failure, Status};
use crate::cli::output::page::Page;

/// Reads the recording and explains its peak.
pub fn run(arguments: &ExplainArguments, page: &mut Page<'_>) -> Result<Status, Failure> {
    let file = &arguments.source.file;
    if let Some(windows) = open_long(file, &arguments.categories)?
        && let Some(found) = find(&windows, arguments)?
    {
        let report = ExplainReport::of_found(&found, arguments);
        return answer(&found.window, arguments.source.json, page, || report.figures(), |page| report.print(page));
    }
    let recording = read_with(&arguments.source.file, &arguments.categories)?;
    let report = report(&recording.trace, arguments)?;
    answer(&recording.trace, arguments.source.json, page, || report.figures(), |page| report.print(page))
}

/// Explains the peak of a recording that is read in parts; `None` if it is better read as a whole.
fn find(windows: &Windows, arguments: &ExplainArguments) -> Result<Option<WindowedExplanation>, Failure> {
    let device = long::choose_device(windows, arguments.device.device)?;
    let query = ExplainQuery {
        metric: arguments.metric,
        keys: arguments.keys(windows.has_stages()),
        top: arguments.top,
        filter: &arguments.blocks.filter.filter,
        siblings: arguments.modules.siblings(),
    };
    long::in_parts(windows, &arguments.source.file, |watch| explain_in_parts(Parts::of(windows), device, &query, watch))
}

/// Computes the report for `arguments`.
pub fn report<'a>(trace: &'a Trace, arguments: &'a ExplainArguments) -> Result<ExplainReport<'a>, Failure> {
    let device = choose_device(trace, arguments.device.device)?;
    let (series, live) = rayon::join(|| Series::build(trace, device), || LiveIndex::build(trace, device));
    let query = ExplainQuery {
        metric: arguments.metric,
        keys: arguments.keys(!trace.spans.is_all_setup()),
        top: arguments.top,
        filter: &arguments.blocks.filter.filter,
        siblings: arguments.modules.siblings(),
    };
    Ok(ExplainReport::of(trace, arguments, explain(trace, &series, &live, &query)))
}
