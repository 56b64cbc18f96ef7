//! Names of moments and blocks, shared by all views.

use highwater_analysis::{GroupKey, Moment, NO_LABEL};
use highwater_snapshots::stage::Outside;
use highwater_snapshots::{BlockId, EventId, Trace, count_of, format_count, format_nanos};

use crate::Recording;

pub(crate) const MEANING_OF_NONE: &str = "the recording names none for these blocks";

/// Returns a name for the time before the first event of `trace`, which may be a part of a long recording.
pub(crate) fn before(trace: &Trace) -> &'static str {
    if trace.start.events > 0 { "before this part" } else { "before the recording" }
}

/// The name of the group of blocks that have no value for `key`.
pub(crate) fn name_of_none(recording: &Recording, key: GroupKey) -> &'static str {
    if recording.absent.is_only_before(key) { before(&recording.trace) } else { NO_LABEL }
}

/// Describes a moment, such as `step 1, optimizer, event 2,345`.
pub(crate) fn when(moment: &Moment) -> String {
    let Some(event) = moment.number() else {
        return match moment.events_before {
            _ if moment.is_state => "in the state at the dump".to_owned(),
            0 => "before the first event".to_owned(),
            first => format!("before event {}", format_count(first)),
        };
    };
    let step = moment.step.map_or_else(String::new, |step| format!("step {step}, "));
    let phase = moment.known_phase().map_or_else(String::new, |phase| format!("{phase}, "));
    format!("{step}{phase}event {}", format_count(event))
}

/// The step and phase of a moment, a short form of [`when`], such as `step 1, backward`.
pub(crate) fn step_and_phase(moment: &Moment) -> String {
    match (moment.event, moment.step) {
        (None, _) => when(moment),
        (_, Some(step)) => format!("step {step}, {}", moment.phase),
        (_, None) => moment.known_phase().map_or_else(|| when(moment), |phase| phase.to_string()),
    }
}

pub(crate) fn moment_text(moment: &Moment) -> String {
    let time = moment.time_ns.map_or_else(String::new, |time| format!(", at {}", format_nanos(time)));
    format!("{}{time}", when(moment))
}

/// Returns the category of a block, or the name of the leaks if it is known to be leaked.
pub(crate) fn category(recording: &Recording, id: BlockId) -> &'static str {
    let block = recording.trace.blocks.get(id);
    let index = recording.devices.iter().find(|index| index.device == block.device);
    let leaks = index.and_then(|index| index.known_leaks()).is_some_and(|leaks| leaks.has(&recording.trace, id));
    if leaks { "leak" } else { block.category.name() }
}

/// The name of a block: its category and its operation.
pub(crate) fn title(recording: &Recording, id: BlockId) -> String {
    let category = category(recording, id);
    match recording.trace.tables.op_name(recording.trace.blocks.get(id).op) {
        "" => category.to_owned(),
        op => format!("{category} of {op}"),
    }
}

pub(crate) fn life(trace: &Trace, id: BlockId) -> String {
    // The free of such a block was requested before the recording, so it has no event.
    if trace.was_waiting_at_start(id) {
        return format!("Freed {}, awaiting free", before(trace));
    }
    let block = trace.blocks.get(id);
    let made = match block.birth {
        Some(birth) => outside(&birth),
        None if block.is_baseline() => "before the recording".to_owned(),
        None => event_label(trace, block.alloc),
    };
    let Some(end) = block.free_requested.index() else {
        return match block.death {
            Some(death) => format!("Live from {made} to {}", outside(&death)),
            None => format!("Live from {made} to the end"),
        };
    };
    if let Some(birth) = block.birth {
        let events = count_of(trace.number(block.free_requested) - birth.event, "event");
        return format!("Live for {events}, from {made} to {}", event_label(trace, block.free_requested));
    }
    let first = block.alloc.index().unwrap_or(0);
    let lasted = span_text(trace, [first, end].map(EventId::from_index));
    let lasted = lasted.map_or_else(String::new, |lasted| format!(" ({lasted})"));
    let events = count_of(end.saturating_sub(first) as u64, "event");
    let freed = event_label(trace, block.free_requested);
    let within = if made == freed { format!("within {made}") } else { format!("from {made} to {freed}") };
    format!("Live for {events}{lasted}, {within}")
}

/// Step and phase at an event, such as `step 3 backward`; `None` if the recording has neither.
pub(crate) fn phase(trace: &Trace, event: EventId) -> Option<String> {
    let span = trace.spans.at(event).filter(|_| !trace.spans.is_all_setup())?;
    let step = span.step.map_or_else(String::new, |step| format!("step {step} "));
    Some(format!("{step}{}", span.phase))
}

/// Step and phase at an event, or the event's number, such as `step 3 backward` or `event 56`.
fn event_label(trace: &Trace, event: EventId) -> String {
    phase(trace, event).unwrap_or_else(|| format!("event {}", format_count(trace.number(event))))
}

/// Formats the step, phase and index of an event outside the displayed part of a recording.
pub(crate) fn outside(event: &Outside) -> String {
    let step = event.stage.step.map_or_else(String::new, |step| format!("step {step} {}, ", event.stage.phase));
    format!("{step}event {}", format_count(event.event))
}

/// Returns whether part of a recording was lost or is damaged; ignores limits of all recordings of its kind.
pub(crate) fn has_losses(trace: &Trace) -> bool {
    !trace.trust.limits().is_empty() || !trace.problems.is_empty()
}

/// The number of failed requests, such as `1 request failed`.
pub(crate) fn failed_requests(count: u64) -> String {
    format!("{} failed", count_of(count, "request"))
}

/// Formats an event with its time. Without an event, returns the text `none`.
pub(crate) fn event_text(trace: &Trace, event: EventId, none: &str) -> String {
    if trace.events.time_of(event).is_none() {
        return none.to_owned();
    }
    let time = trace.time_of(event).map_or_else(String::new, |time| format!(", {}", format_nanos(time)));
    format!("event {}{time}", format_count(trace.number(event)))
}

/// The time between two events; `None` if the recording has no times.
pub(crate) fn span_text(trace: &Trace, [first, last]: [EventId; 2]) -> Option<String> {
    Some(format_nanos(trace.time_of(last)?.saturating_sub(trace.time_of(first)?)))
}

/// Returns the limits of the accuracy, one sentence each, starting with inconsistent totals.
pub(crate) fn doubts(trace: &Trace) -> Vec<String> {
    let problems = |is_of_sums: bool| {
        let chosen = trace.problems.iter().filter(move |problem| problem.is_of_sums == is_of_sums);
        chosen.map(|problem| problem.what.clone())
    };
    let notes = trace.header.notes().map(str::to_owned);
    problems(true).chain(trace.trust_sentences()).chain(problems(false)).chain(notes).collect()
}

pub(crate) fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

#[cfg(test)]
mod tests {
    use highwater_snapshots::trace::TraceParts;

    use super::*;

    #[test]
    fn what_rules_worked_out_is_no_loss() {
        let trace = Trace::default().edited(|TraceParts { trust, .. }| {
            (trust.sizes_inferred, trust.categories_guessed, trust.baseline_inferred) = (7549, true, true);
        });
        assert!(!has_losses(&trace));
        assert!(has_losses(&trace.edited(|trace| trace.trust.events_lost = 1)));
    }
}
