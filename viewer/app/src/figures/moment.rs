//! Formats moments, as JSON objects and as text.

use highwater_analysis::{Metric, Moment};
use highwater_snapshots::{Header, Phase, count_of, format_bytes, format_count};

use crate::report::{Field, Value};

/// Converts a time of the recording to microseconds since 1970.
pub fn micros_since_1970(header: &Header, time_ns: u64) -> u64 {
    header.started_unix_us.saturating_add(time_ns / 1000)
}

/// Returns the peak of a total as fields of a JSON object: its bytes, event and time.
pub fn peak_facts(header: &Header, moment: &Moment) -> Vec<(&'static str, Field)> {
    let time_us = moment.time_ns.map(|time| micros_since_1970(header, time));
    vec![("bytes", moment.bytes.into()), ("event", moment.number().into()), ("time_us", time_us.into())]
}

/// Returns the JSON fields for a moment: those of [`peak_facts`], the step and the phase.
pub fn moment_facts(header: &Header, moment: &Moment) -> Vec<(&'static str, Field)> {
    let place = [("step", moment.step.into()), ("phase", moment.phase.name().into())];
    peak_facts(header, moment).into_iter().chain(place).collect()
}

/// Returns a moment as a JSON object.
pub fn moment_value(header: &Header, moment: &Moment) -> Value {
    Value::Map(moment_facts(header, moment))
}

/// Returns the name of the point at which a total is largest: `Peak`, or another name for a single state.
pub fn peak_name(peak: &Moment) -> &'static str {
    if peak.is_state { "State at the dump" } else { "Peak" }
}

/// Formats the position of a moment, such as `at event 12,345, step 1, optimizer`, without an unknown phase.
pub fn when(moment: &Moment) -> String {
    match moment.number() {
        None if moment.is_state => "in the state at the dump".to_owned(),
        None => "before the first event".to_owned(),
        Some(event) => at_event(event, moment.step, moment.known_phase()),
    }
}

/// Formats the position of the state after an event, like [`when`].
pub fn at_event(event: u64, step: Option<u32>, phase: Option<Phase>) -> String {
    let step = step.map_or_else(String::new, |step| format!(", step {step}"));
    let phase = phase.map_or_else(String::new, |phase| format!(", {phase}"));
    format!("at event {}{step}{phase}", format_count(event))
}

/// Formats a total and the moment at which it is reached, such as `5.67 GiB requested, at event 12,345, step 1,
/// optimizer`. Without events, formats only the total.
pub fn how_much_and_when(moment: &Moment) -> String {
    let metric = total_name(moment.metric);
    let when = if moment.is_state { String::new() } else { format!(", {}", when(moment)) };
    format!("{} {metric}{when}", format_bytes(moment.bytes))
}

/// Returns the name of a total within a sentence, such as `device used`.
pub fn total_name(metric: Metric) -> String {
    metric.name().replace('_', " ")
}

/// Formats a count with its noun and verb, such as `1 step is` or `1,234 steps are`.
pub fn count_with(count: u64, noun: &str, [one, several]: [&str; 2]) -> String {
    format!("{} {}", count_of(count, noun), if count == 1 { one } else { several })
}

/// Describes other points with the same peak, as a sentence; `None` if there are none.
pub fn elsewhere_text(elsewhere: &[Moment]) -> Option<String> {
    let (first, others) = elsewhere.split_first()?;
    let more = match others.len() {
        0 => String::new(),
        more => format!(", and in {}", count_of(more as u64, "more phase")),
    };
    Some(format!("The same peak is also reached {}{more}.", when(first)))
}

/// Formats microseconds since 1970 as date and time in UTC, such as `2026-03-01 12:00:05 UTC`.
pub fn utc(micros: u64) -> String {
    let seconds = micros / 1_000_000;
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // The Gregorian calendar in eras of 400 years that begin on 1 March, so that leap days come at the end of a year.
    let from_march_0000 = days + 719_468;
    let (era, day) = (from_march_0000 / 146_097, from_march_0000 % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (year, month) = if month < 10 { (year, month + 3) } else { (year + 1, month - 9) };
    let year = year + era * 400;
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwater_analysis::{Metric, Source};
    use highwater_notation::trace_from_text;
    use highwater_snapshots::DeviceId;

    #[test]
    fn a_moment_of_a_recording_without_phases_names_none() {
        let text = |text: &str| {
            let trace = trace_from_text(text).unwrap();
            how_much_and_when(&Source::in_memory(trace).peak(DeviceId(0), Metric::Requested).unwrap())
        };
        assert_eq!(text("alloc a 5\nfree a"), "5 B requested, at event 0");
        assert_eq!(text("alloc a 5\nstep 0\nfree a"), "5 B requested, at event 0, setup");
    }

    #[test]
    fn verbs_agree_with_counts() {
        let told = [0, 1, 2].map(|count| count_with(count, "frame", ["lies", "lie"]));
        assert_eq!(told, ["0 frames lie", "1 frame lies", "2 frames lie"]);
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(utc(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(utc(951_782_399_000_000), "2000-02-28 23:59:59 UTC");
        assert_eq!(utc(951_782_400_000_000), "2000-02-29 00:00:00 UTC");
        assert_eq!(utc(1_767_225_599_999_999), "2025-12-31 23:59:59 UTC");
        assert!(utc(u64::MAX).ends_with("UTC"));
    }
}
