//! The line about a recording of a PyTorch program: its peak and what is largest there, or the request that failed.

use highwater_analysis::peak::Query;
use highwater_analysis::summary::DeviceSummary;
use highwater_analysis::{Filter, GroupKey, Metric, Peak, Siblings};
use highwater_app::answers::request_failure::RequestFailure;
use highwater_app::figures::moment::how_much_and_when;
use highwater_app::figures::requests::failure_text;
use highwater_app::report::percent;

use crate::input::source::Input;
use crate::output::outcome::Failure;

/// The verdict, without the file.
///
/// # Errors
///
/// Fails if the recording cannot be read.
pub(super) fn verdict(input: &Input, summaries: &[DeviceSummary]) -> Result<String, Failure> {
    let trace = input.facts();
    let main = trace.main_device();
    if !summaries.iter().any(|summary| summary.device == main) {
        return Ok("no memory was allocated".to_owned());
    }
    let key = if trace.tables.scopes.is_empty() { GroupKey::Frame } else { GroupKey::Scope };
    input.ask(|source, _| {
        // Not one that the program has handled.
        if source.final_oom()?.is_some_and(|(_, device)| device == main)
            && let Some(failure) = RequestFailure::last(source, main)?
        {
            return Ok(format!("out of memory: {}", failure_text(&failure)));
        }
        let moment = source.peak(main, Metric::Requested)?;
        let window = source.window_at(moment.number())?;
        let index = window.index(main);
        let query = Query { keys: &[key], top: 1, filter: &Filter::default(), siblings: Siblings::Merged };
        let peak = Peak::at(&window.trace, &index.live, &index.series, moment, &query);
        let largest = peak.breakdown.groups.first().filter(|group| !group.key[0].starts_with('('));
        let share = largest
            .map_or_else(String::new, |group| format!("; {} in {}", percent(group.bytes, moment.bytes), group.key[0]));
        Ok(format!("peak {}{share}", how_much_and_when(&moment)))
    })
}
