//! The questions of `highwater growth` about a recording, from its options.

use std::sync::LazyLock;

use highwater_analysis::growth::{Between, Bound, GrowthQuery, NoWindow};
use highwater_analysis::{Filter, GroupKey, Metric};
use highwater_snapshots::{DeviceId, Trace};

use crate::commands::growth::GrowthArguments;
use crate::output::outcome::Failure;

/// Returns the keys to group by: those of `--by`, or what suits the recording.
pub(super) fn keys(trace: &Trace, arguments: &GrowthArguments) -> Vec<GroupKey> {
    // Guessed categories would split the memory kept by one line.
    let by_default = match (trace.tables.scopes.is_empty(), trace.trust.categories_guessed) {
        (false, _) => vec![GroupKey::Category, GroupKey::Scope],
        (true, false) => vec![GroupKey::Category, GroupKey::Frame],
        (true, true) => vec![GroupKey::Frame],
    };
    let by_default = if arguments.metric == Metric::Reserved { OF_SEGMENTS.to_vec() } else { by_default };
    arguments.by.as_ref().map_or(by_default, |by| by.0.clone())
}

/// The default keys of segments.
const OF_SEGMENTS: [GroupKey; 2] = [GroupKey::Pool, GroupKey::Frame];

/// The filter of segments: there are no conditions on them.
static NO_FILTER: LazyLock<Filter> = LazyLock::new(Filter::default);

/// Returns the query for the growth of reserved memory, which is measured beside that of all blocks.
pub(super) fn reserved_query(arguments: &GrowthArguments) -> Option<GrowthQuery<'static>> {
    let is_asked = arguments.metric != Metric::Reserved && arguments.blocks.filter.filter.is_empty();
    is_asked.then(|| GrowthQuery { metric: Metric::Reserved, keys: &OF_SEGMENTS, top: 0, filter: &NO_FILTER })
}

/// Fails if blocks are selected while segments are measured.
pub(super) fn check_filter(arguments: &GrowthArguments) -> Result<(), Failure> {
    match arguments.blocks.filter.stated() {
        Some(_) if arguments.metric == Metric::Reserved => {
            let text = "--where selects blocks, and --metric reserved measures segments: leave one out";
            Err(Failure::Usage(text.to_owned()))
        }
        _ => Ok(()),
    }
}

/// Returns `device`, and the other devices unless it was requested.
pub(super) fn measured_devices(device: DeviceId, all: Vec<DeviceId>, arguments: &GrowthArguments) -> Vec<DeviceId> {
    let is_measured = |other: &DeviceId| *other != device && arguments.device.device.is_none();
    std::iter::once(device).chain(all.into_iter().filter(is_measured)).collect()
}

/// Returns the error if there is no such window of steps, with the option that requested it.
pub(super) fn refused(refused: &NoWindow, arguments: &GrowthArguments) -> Failure {
    let option = match refused.step {
        Some(Bound::From(step)) => format!("--from-step {step}: "),
        Some(Bound::To(step)) => format!("--to-step {step}: "),
        None if arguments.between == Between::Idle => "--between idle: ".to_owned(),
        None => String::new(),
    };
    Failure::Usage(format!("{option}{}", refused.why))
}
