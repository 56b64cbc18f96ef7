//! Parses a profiler trace in Chrome's JSON, as exported by `torch.profiler`, so that a recording can be added to it.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::ops::RangeInclusive;

use highwater_snapshots::{Error, Result};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::super::source::Source;

/// The members of a file that this program itself writes.
const OWN_MEMBERS: [&str; 2] = ["displayTimeUnit", "traceEvents"];

/// A trace of `torch.profiler`.
#[derive(Debug)]
pub struct KinetoTrace {
    /// The members of the file other than its events, unparsed.
    members: BTreeMap<String, Box<RawValue>>,
    /// The list of events, unparsed.
    events: Box<RawValue>,
    /// The origin of the trace's times, in nanoseconds since 1970.
    base_ns: i64,
    /// The first and last time, in nanoseconds since `base_ns`.
    times: Option<RangeInclusive<i64>>,
}

/// The time of an event, in microseconds, and its type.
#[derive(Deserialize)]
struct Event {
    #[serde(default)]
    ts: Option<f64>,
    #[serde(default)]
    ph: String,
}

impl KinetoTrace {
    /// Parses a file that is an object with `traceEvents`, or a list of events.
    ///
    /// # Errors
    /// Returns an error if the text is neither.
    pub fn parse(text: &str) -> std::result::Result<Self, String> {
        let invalid = |why: serde_json::Error| format!("not a trace in Chrome's JSON: {why}");
        let mut members: BTreeMap<String, Box<RawValue>> = BTreeMap::new();
        let events = if text.trim_start().starts_with('[') {
            serde_json::from_str(text).map_err(invalid)?
        } else {
            members = serde_json::from_str(text).map_err(invalid)?;
            members.remove("traceEvents").ok_or("not a trace in Chrome's JSON: it has no member traceEvents")?
        };
        let rows: Vec<&RawValue> = serde_json::from_str(events.get()).map_err(invalid)?;
        let event = |row: &&RawValue| match row.get().starts_with('{') {
            true => serde_json::from_str::<Event>(row.get()).map_err(invalid),
            false => Err("not a trace in Chrome's JSON: an event is not an object".to_owned()),
        };
        let rows = rows.iter().map(event).collect::<std::result::Result<Vec<Event>, String>>()?;
        let base_ns = match members.get("baseTimeNanoseconds") {
            Some(base) => serde_json::from_str(base.get()).map_err(invalid)?,
            None => 0,
        };
        let times = rows.iter().filter(|row| row.ph != "M").filter_map(|row| row.ts).map(|us| (us * 1000.0) as i64);
        let ends = times.clone().min().zip(times.max());
        Ok(Self { members, events, base_ns, times: ends.map(|(first, last)| first..=last) })
    }

    /// The origin of a recording's times on the clock of this trace, in nanoseconds.
    ///
    /// # Errors
    /// Fails if the recording cannot be read, has no times, or does not overlap with this trace in time.
    pub(super) fn offset_ns(&self, source: &Source<'_>) -> Result<i64> {
        let facts = source.facts();
        let counts = facts.device_ids().into_iter().map(|device| source.counts(device));
        let times = counts.collect::<Result<Vec<_>>>()?.into_iter().filter_map(|counts| counts.times_ns);
        let ends = times.reduce(|one, other| (one.0.min(other.0), one.1.max(other.1)));
        let (Some((first, last)), 1..) = (ends, facts.header.started_unix_us) else {
            return Err(not_beside("the recording has no times"));
        };
        let started_ns = i64::try_from(facts.header.started_unix_us).unwrap_or(i64::MAX).saturating_mul(1000);
        let offset_ns = started_ns.saturating_sub(self.base_ns);
        let [first, last] = [first, last].map(|time_ns| (time_ns as i64).saturating_add(offset_ns));
        if self.times.as_ref().is_some_and(|times| last < *times.start() || first > *times.end()) {
            return Err(not_beside(
                "the trace and the recording do not overlap in time: they are not from the same run",
            ));
        }
        Ok(offset_ns)
    }

    /// Completes a file that already has some events by adding the events and other members of this trace.
    pub(super) fn write_rest(&self, out: &mut dyn Write) -> io::Result<()> {
        let list = self.events.get().trim();
        let inner = list.strip_prefix('[').and_then(|list| list.strip_suffix(']')).unwrap_or_default().trim();
        if !inner.is_empty() {
            out.write_all(b",\n")?;
        }
        write!(out, "{inner}]")?;
        for (name, value) in self.members.iter().filter(|(name, _)| !OWN_MEMBERS.contains(&name.as_str())) {
            write!(out, ",\n{}:{}", serde_json::Value::from(name.as_str()), value.get())?;
        }
        out.write_all(b"}")
    }
}

fn not_beside(why: &str) -> Error {
    Error::Encode { what: why.to_owned() }
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use highwater_notation::trace_from_text;
    use serde_json::Value;

    use super::*;
    use crate::question::trace_events::write_chrome;

    const KINETO: &str = r#"{"schemaVersion": 1, "baseTimeNanoseconds": 2000000000, "traceEvents": [
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 5.5, "dur": 20},
        {"ph": "M", "name": "process_name", "pid": 1, "tid": 0, "ts": 0, "args": {"name": "python"}}
    ], "traceName": "kineto.json"}"#;

    /// Writes a recording that began at a time since 1970.
    fn beside(kineto: &str, started_unix_us: u64) -> Result<Value> {
        let trace = trace_from_text("alloc a 100 t=1us\nfree a t=9us")
            .unwrap()
            .edited(|trace| trace.header.started_unix_us = started_unix_us);
        let mut out = Vec::new();
        let kineto = KinetoTrace::parse(kineto).unwrap();
        write_chrome(&mut out, &Source::in_memory(trace), Some(&kineto), &mut |_| ControlFlow::Continue(()))?;
        Ok(serde_json::from_slice(&out).unwrap())
    }

    #[test]
    fn a_recording_is_put_on_the_clock_of_the_trace_whose_events_and_members_stay() {
        let file = beside(KINETO, 2_000_001).unwrap();
        assert_eq!((&file["schemaVersion"], &file["traceName"]), (&Value::from(1), &Value::from("kineto.json")));
        let events = file["traceEvents"].as_array().unwrap();
        let of = |name: &str| events.iter().filter(move |event| event["name"] == name).collect::<Vec<_>>();
        assert_eq!((of("aten::mm").len(), of("process_name").len()), (1, 3));
        let requested: Vec<_> = of("requested").iter().map(|event| (&event["ts"], &event["args"]["bytes"])).collect();
        // 1 µs from the trace's origin to the recording's, and as much to its first event.
        assert_eq!(requested, [(&Value::from(2.0), &Value::from(100)), (&Value::from(10.0), &Value::from(0))]);
    }

    #[test]
    fn a_list_of_events_counts_from_1970_and_may_be_empty() {
        let list = r#"[{"ph": "i", "name": "x", "pid": 1, "tid": 1, "ts": 2000003}]"#;
        let file = beside(list, 2_000_001).unwrap();
        assert!(file["traceEvents"].as_array().unwrap().iter().any(|event| event["name"] == "x"));
        assert!(beside("[]", 7).is_ok());
    }

    #[test]
    fn a_trace_of_another_run_and_other_files_are_refused() {
        let why = beside(KINETO, 7_000_000).unwrap_err().to_string();
        assert!(why.contains("not from the same run"), "{why}");
        let why = beside(KINETO, 0).unwrap_err().to_string();
        assert!(why.contains("no times"), "{why}");
        for (text, words) in [
            ("{}", "traceEvents"),
            ("[1, 2]", "not an object"),
            ("[[]]", "not an object"),
            ("nonsense", "Chrome's JSON"),
        ] {
            let why = KinetoTrace::parse(text).unwrap_err();
            assert!(why.contains(words), "{why}");
        }
    }
}
