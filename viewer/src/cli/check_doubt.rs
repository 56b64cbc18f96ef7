//! Why budgets that are met cannot be confirmed: the recording does not have all that its run needs.

use highwater_analysis::budget::{Budget, Outcome};
use highwater_snapshots::DeviceId;
use highwater_snapshots::units::format_count;

use crate::cli::input::devices::phrase;
use crate::cli::input::source::Input;
use crate::cli::output::outcome::Failure;

/// A reason not to confirm budgets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doubt {
    /// The recording has no events: it is the state at one moment.
    NoEvents,
    /// The recording has no memory of a device that is measured.
    NoMemory(DeviceId),
    /// The recording ends in an out-of-memory error on a device.
    OutOfMemory(DeviceId),
    /// The recording ends before its program finished it.
    CutOff,
    /// Part of the file could not be read.
    Damaged,
    /// Number of missing events: a full ring drops the earliest ones.
    EventsLost(u64),
    /// The recording is a part of another one.
    Excerpt,
    /// Number of events that are missing because their allocator was not registered.
    Unregistered(u64),
}

impl Doubt {
    /// Returns the reasons in a recording of which `devices` are measured.
    pub(super) fn of(input: &Input, devices: &[DeviceId]) -> Result<Vec<Self>, Failure> {
        let trace = input.facts();
        let unregistered =
            Some(trace.header.unregistered_events()).filter(|events| *events > 0).map(Self::Unregistered);
        let cut = if trace.trust.unfinished { Self::CutOff } else { Self::Damaged };
        let cut = (trace.is_partial() && !trace.lacks_index_only()).then_some(cut);
        if trace.event_count() == 0 {
            let why = [unregistered, cut].into_iter().flatten();
            return Ok(why.chain([Self::NoEvents]).take(1).collect());
        }
        let without = devices.iter().filter(|device| !trace.has_memory(**device)).map(|device| Self::NoMemory(*device));
        let ran_out = input.ask(|source, _| source.final_oom())?.map(|(_, device)| Self::OutOfMemory(device));
        let lost = Some(trace.trust.events_lost).filter(|lost| *lost > 0).map(Self::EventsLost);
        let is_excerpt = trace.header.excerpt().is_some();
        let parts = is_excerpt.then_some(Self::Excerpt).into_iter().chain(cut);
        Ok(without.chain(ran_out).chain(parts).chain(lost).chain(unregistered).collect())
    }

    /// Whether `outcome` is not confirmed. Growth per step is known from the steps before the end.
    pub(super) fn concerns(self, outcome: &Outcome) -> bool {
        let is_until_end = !matches!(outcome.budget, Budget::StepGrowth(_) | Budget::ReservedGrowth(_));
        match self {
            Self::NoEvents | Self::Unregistered(_) => true,
            Self::NoMemory(device) => outcome.moment.device == device,
            Self::OutOfMemory(device) => is_until_end && outcome.moment.device == device,
            Self::CutOff | Self::Damaged | Self::EventsLost(_) | Self::Excerpt => is_until_end,
        }
    }

    /// Returns the reason as the beginning of a sentence.
    pub(super) fn text(self, input: &Input) -> String {
        let on = |device: DeviceId| {
            phrase(input.facts(), &[device]).map_or_else(String::new, |phrase| format!(" on {phrase}"))
        };
        match self {
            Self::NoEvents => "the recording has no events, only the state at its end".to_owned(),
            Self::NoMemory(device) => format!("the recording has no memory{}", on(device)),
            Self::OutOfMemory(device) => format!("the recording ends out of memory{}", on(device)),
            Self::Excerpt => {
                let events = input.facts().header.excerpt().unwrap_or_default();
                format!("the recording is an excerpt of another one, {events}")
            }
            Self::CutOff => "the recording was cut off, or is still being written".to_owned(),
            Self::Damaged => "the recording is damaged, and part of it could not be read".to_owned(),
            Self::Unregistered(1) => "1 event of an allocator that was not registered is missing".to_owned(),
            Self::Unregistered(events) => {
                format!("{} events of allocators that were not registered are missing", format_count(events))
            }
            Self::EventsLost(1) => "1 event is missing".to_owned(),
            Self::EventsLost(lost) => format!("{} events are missing", format_count(lost)),
        }
    }
}
