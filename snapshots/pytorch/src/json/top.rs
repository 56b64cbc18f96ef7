//! Reads the outermost value: a dict with the parts of a snapshot, or a plain list of segments.

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

use super::super::intake::Intake;
use super::super::raw::{RawSnapshot, RawTensor};
use super::annotations::Annotations;
use super::events::{Devices, Events};
use super::reading::{Reading, SHOWN, shown};
use super::segments::Segments;
use super::settings::{Setting, Settings};
use super::shape::{TakesElements as _, TakesKeys};
use highwater_snapshots::error::{Error, Result};
use highwater_snapshots::format::SNAPSHOT;

/// The parts of a snapshot; if one is repeated, the last one counts.
#[derive(Debug, Default)]
pub(super) struct Found {
    segments: Segments,
    host_segments: Segments,
    devices: Devices,
    host_events: Events,
    settings: Settings,
    annotations: Annotations,
    highwater: Option<String>,
    run: Option<serde_json::Value>,
    /// Whether a key that every snapshot has was found.
    is_snapshot: bool,
    /// The first few unknown keys.
    others: Vec<String>,
}

/// Maximum number of unknown keys named in the error.
const OTHERS_NAMED: usize = 4;

impl Found {
    /// Returns the snapshot; fails if the JSON is not a snapshot.
    pub(super) fn finish(self, mut intake: Intake) -> Result<RawSnapshot> {
        self.check()?;
        self.hand_over(&mut intake);
        Ok(intake.finish())
    }

    fn check(&self) -> Result<()> {
        let found = match self.others.as_slice() {
            _ if self.is_snapshot && !self.segments.are_others() => return Ok(()),
            _ if self.is_snapshot => "a list of other dicts".to_owned(),
            [] => "no key of a snapshot".to_owned(),
            others => format!("the keys '{}'", others.join("', '")),
        };
        Err(Error::NotRecording { found: format!("JSON with {found}"), advice: SNAPSHOT })
    }

    /// Adds everything to `intake`.
    fn hand_over(self, intake: &mut Intake) {
        self.segments.hand_over(intake, false);
        self.host_segments.hand_over(intake, true);
        for (device, events) in self.devices.traces {
            intake.trace(device, events);
        }
        intake.host_trace(self.host_events.rows);
        self.settings.hand_over(intake);
        for annotation in self.annotations.rows {
            intake.annotation(annotation);
        }
        if let Some(text) = self.highwater {
            intake.highwater(text);
        }
        if let Some(run) = self.run {
            take_run(&run, intake);
        }
    }
}

impl TakesKeys for Found {
    const OF: &'static str = "the snapshot";
    const KEYS: &'static [&'static str] = &[
        "segments",
        "device_traces",
        "allocator_settings",
        "external_annotations",
        "host_segments",
        "host_traces",
        "highwater",
        "highwater_run",
    ];

    fn take<'de, A: MapAccess<'de>>(
        &mut self,
        reading: &mut Reading<'_>,
        key: &str,
        dict: &mut A,
    ) -> Result<(), A::Error> {
        self.is_snapshot |= matches!(key, "segments" | "device_traces");
        match key {
            "segments" => {
                self.segments = Segments::default();
                dict.next_value_seed(reading.list(&mut self.segments))
            }
            "device_traces" => {
                self.devices = Devices::default();
                dict.next_value_seed(reading.list(&mut self.devices))
            }
            "allocator_settings" => {
                self.settings = Settings::default();
                dict.next_value_seed(Setting::all(reading, &mut self.settings, &mut String::new()))
            }
            "external_annotations" => {
                self.annotations = Annotations::default();
                dict.next_value_seed(reading.list(&mut self.annotations))
            }
            "host_segments" => {
                self.host_segments = Segments::default();
                dict.next_value_seed(reading.list(&mut self.host_segments))
            }
            "host_traces" => {
                self.host_events = Events::default();
                dict.next_value_seed(reading.list(&mut self.host_events))
            }
            "highwater_run" => {
                self.run = Some(dict.next_value()?);
                Ok(())
            }
            _ => {
                let text = dict.next_value_seed(reading.copied("the key 'highwater'"))?;
                self.highwater = Some(text).filter(|text| !text.is_empty());
                Ok(())
            }
        }
    }

    fn unknown(&mut self, reading: &mut Reading<'_>, key: &str) {
        let key = shown(key, SHOWN);
        reading.intake.strange(format!("the key '{key}' in {}, which this program does not know", Self::OF));
        if self.others.len() < OTHERS_NAMED {
            self.others.push(key);
        }
    }
}

/// Adds the facts about the recorded program, which are values by name, and tensors as `[address, bytes, category, name]`.
fn take_run(run: &serde_json::Value, intake: &mut Intake) {
    use serde_json::Value;
    let Some(run) = run.as_object() else {
        intake.strange("'highwater_run' is not a dict: left out");
        return;
    };
    for (name, value) in run {
        match value {
            Value::String(text) => intake.run_value(name, text),
            Value::Null => intake.run_value(name, "None"),
            Value::Bool(_) | Value::Number(_) => intake.run_value(name, value.to_string()),
            Value::Array(tensors) if name == "tensors" => {
                for tensor in tensors {
                    let text = |at: usize| tensor.get(at).and_then(Value::as_str);
                    let number = |at: usize| tensor.get(at).and_then(Value::as_u64);
                    match (number(0), number(1), text(2), text(3)) {
                        (Some(address), Some(bytes), Some(category), Some(name)) => {
                            let (category, name) = (category.to_owned(), name.to_owned());
                            let time_us = number(4).unwrap_or(0);
                            intake.run_tensor(RawTensor { address, bytes, time_us, category, name });
                        }
                        _ => {
                            intake
                                .strange("an entry of 'tensors' that is not address, bytes, category, name: left out");
                        }
                    }
                }
            }
            _ => {}
        }
    }
}

/// Reads the outermost value.
pub(super) struct Top<'r, 'w> {
    pub(super) reading: &'r mut Reading<'w>,
}

impl<'de> DeserializeSeed<'de> for Top<'_, '_> {
    type Value = Found;

    fn deserialize<D: Deserializer<'de>>(self, text: D) -> Result<Found, D::Error> {
        text.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Top<'_, '_> {
    type Value = Found;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a memory snapshot, which is a dict, or a list of segments")
    }

    fn visit_map<A: MapAccess<'de>>(self, dict: A) -> Result<Found, A::Error> {
        let mut found = Found::default();
        self.reading.dict(&mut found).visit_map(dict)?;
        Ok(found)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Found, A::Error> {
        let mut found = Found { is_snapshot: true, ..Found::default() };
        while found.segments.take(self.reading, &mut list)? {}
        Ok(found)
    }
}
