//! Converts a finished pickle to a snapshot: its segments, traces, annotations and settings.

use super::shape::Key;
use super::store::{Dict, List, Store};
use super::value::Value;
use crate::RawSnapshot;
use crate::raw::{RawEvent, RawTensor};
use highwater_snapshots::error::{Error, Problem, Result};
use highwater_snapshots::format::SNAPSHOT;

/// Maximum nesting depth of settings.
const MOST_DEPTH: usize = 4;

/// Maximum number of keys named in an error.
const KEYS_NAMED: usize = 4;

/// Maximum number of devices with traces.
const MOST_DEVICES: usize = 256;

/// A result whose error has no offset, since the whole pickle was already read.
type Taken<T> = std::result::Result<T, &'static str>;

impl Store {
    /// Returns the snapshot whose outermost value is `root`.
    pub(super) fn snapshot(mut self, root: Value) -> Result<RawSnapshot> {
        let taken = self.other_than_snapshot(root).and_then(|other| match other {
            Some(found) => Ok(Err(Error::NotRecording { found, advice: SNAPSHOT })),
            None => self.take_snapshot(root).map(Ok),
        });
        match taken {
            Ok(taken) => taken.map(|()| self.intake.finish()),
            Err(what) => Err(Error::Damaged { offset: 0, what: what.to_owned() }),
        }
    }

    fn take_snapshot(&mut self, root: Value) -> Taken<()> {
        match self.dict(root)? {
            Some(Dict::Open(open)) => {
                let items = std::mem::take(&mut self.open_dicts[open as usize]);
                self.take_root(&items)
            }
            // Files before PyTorch 1.13 are a plain list of segments.
            _ => self.take_segments(root, false),
        }
    }

    /// Describes a pickle that is not a snapshot; `None` if it is one.
    fn other_than_snapshot(&mut self, root: Value) -> Taken<Option<String>> {
        Ok(match (self.dict(root)?, root) {
            (Some(Dict::Open(open)), _) => self.other_dict(open)?,
            (Some(Dict::Empty), _) => Some("an empty pickled dict".to_owned()),
            (Some(_), _) => Some("a pickled dict with one part of a snapshot, or of something else".to_owned()),
            (None, Value::List(_)) => self.other_list(root)?.map(|entries| format!("a pickled list of {entries}")),
            (None, value) => Some(format!("a pickle of {}", value.kind())),
        })
    }

    fn other_dict(&mut self, open: u32) -> Taken<Option<String>> {
        let items = self.open_dicts[open as usize].clone();
        let known = |key: &Value| match key {
            Value::Text(id) => self.keys.key(*id),
            _ => None,
        };
        let value_of = |wanted: Key| items.iter().find(|(key, _)| known(key) == Some(wanted)).map(|(_, value)| *value);
        let (segments, traces) = (value_of(Key::Segments), value_of(Key::DeviceTraces));
        if traces.is_some() {
            return Ok(None);
        }
        if let Some(segments) = segments {
            let entries = self.other_list(segments)?;
            return Ok(entries.map(|entries| format!("a pickled dict whose 'segments' are a list of {entries}")));
        }
        if items.iter().any(|(_, value)| self.is_snapshot(*value)) {
            return Ok(Some("a pickled dict with a snapshot in it, which must be saved alone".to_owned()));
        }
        if items.is_empty() {
            return Ok(Some("an empty pickled dict".to_owned()));
        }
        let name = |(key, _): &(Value, Value)| match key {
            Value::Text(id) => format!("'{:.60}'", self.intake.string(*id)),
            key => key.kind().to_owned(),
        };
        let names: Vec<String> = items.iter().take(KEYS_NAMED).map(name).collect();
        let more = if items.len() > KEYS_NAMED { ", …" } else { "" };
        Ok(Some(format!("a pickled dict with the keys {}{more}", names.join(", "))))
    }

    /// Describes the entries of a list that has some, but no segment; `None` for any other value.
    fn other_list(&mut self, list: Value) -> Taken<Option<String>> {
        let Value::List(row) = list else { return Ok(None) };
        let entries = match self.lists.get(row as usize).map(|slot| slot.list) {
            None | Some(List::Empty) => return Ok(None),
            Some(List::Open(open)) => self.open_lists[open as usize].clone(),
            Some(_) => return Ok(Some("parts of a snapshot, or of other things".to_owned())),
        };
        for entry in &entries {
            if let Some(Dict::Segment(_)) = self.dict(*entry)? {
                return Ok(None);
            }
        }
        Ok(match entries.first() {
            None => None,
            Some(first) if self.is_snapshot(*first) => Some("snapshots, each of which must be saved alone".to_owned()),
            Some(first) => Some(format!("other things, the first of which is {}", first.kind())),
        })
    }

    /// Whether a value is a dict with the keys of a snapshot.
    fn is_snapshot(&self, value: Value) -> bool {
        let Value::Dict(row) = value else { return false };
        let Some(Dict::Open(open)) = self.dicts.get(row as usize) else { return false };
        let is_known = |(key, _): &(Value, Value)| match key {
            Value::Text(id) => matches!(self.keys.key(*id), Some(Key::Segments | Key::DeviceTraces)),
            _ => false,
        };
        self.open_dicts[*open as usize].iter().any(is_known)
    }

    fn take_root(&mut self, items: &[(Value, Value)]) -> Taken<()> {
        let mut traces = Value::None;
        for &(key, value) in items {
            let known = match key {
                Value::Text(id) => self.keys.key(id),
                _ => None,
            };
            match known {
                Some(Key::Segments) => self.take_segments(value, false)?,
                Some(Key::HostSegments) => self.take_segments(value, true)?,
                Some(Key::DeviceTraces) => traces = value,
                Some(Key::HostTraces) => {
                    let events = self.take_events(value)?;
                    self.intake.host_trace(events);
                }
                Some(Key::AllocatorSettings) => self.take_settings("", value, 0),
                Some(Key::ExternalAnnotations) => self.take_annotations(value)?,
                Some(Key::Highwater) => {
                    if let Value::Text(id) = value {
                        self.intake.highwater_text(id);
                    }
                }
                Some(Key::HighwaterRun) => self.take_run(value),
                _ => {
                    let name = match key {
                        Value::Text(id) => format!("'{:.60}'", self.intake.string(id)),
                        key => key.kind().to_owned(),
                    };
                    self.intake.strange(format!("the key {name} of the snapshot, which this program does not know"));
                }
            }
        }
        // Last, so that the events of a trace are moved instead of copied.
        self.take_traces(traces)
    }

    fn take_traces(&mut self, traces: Value) -> Taken<()> {
        if traces == Value::None {
            return Ok(());
        }
        let Some(lists) = self.take_items(traces) else { return Err("'device_traces' is not a list") };
        if lists.len() > MOST_DEVICES {
            let what = format!("{} devices have traces: those from {MOST_DEVICES} up are left out", lists.len());
            self.intake.problem(Problem::new(what));
        }
        // Last device first, so that the events of a single device are moved instead of copied.
        for (device, &list) in lists.iter().enumerate().take(MOST_DEVICES).rev() {
            let events = self.take_events(list)?;
            if !events.is_empty() {
                self.intake.trace(device, events);
            }
        }
        Ok(())
    }

    /// Takes the events out of a list.
    fn take_events(&mut self, list: Value) -> Taken<Vec<RawEvent>> {
        let Value::List(row) = list else {
            if list != Value::None {
                self.intake.problem(Problem::new(format!("a trace is {}, not a list: left out", list.kind())));
            }
            return Ok(Vec::new());
        };
        let slot = self.lists[row as usize];
        if slot.is_used {
            self.intake.problem(Problem::new("two traces are one list: the second is left out"));
            return Ok(Vec::new());
        }
        if let List::Events { first, count } = slot.list {
            self.lists[row as usize].is_used = true;
            let (first, end) = (first as usize, (first + count) as usize);
            if end == self.events.len() {
                // A recording of a single device is all events: splitting them off would copy them.
                let is_all = first == 0;
                return Ok(if is_all { std::mem::take(&mut self.events) } else { self.events.split_off(first) });
            }
            return Ok(self.events.get(first..end).map_or_else(Vec::new, <[RawEvent]>::to_vec));
        }
        let mut events = Vec::new();
        for item in self.take_items(list).unwrap_or_default() {
            match self.dict(item)? {
                Some(Dict::Event(row)) => events.extend(self.events.get(row as usize)),
                _ => self.intake.strange("an entry of a trace that is not an event: ignored"),
            }
        }
        Ok(events)
    }

    fn take_segments(&mut self, list: Value, is_host: bool) -> Taken<()> {
        let Some(items) = self.take_items(list) else {
            if list != Value::None {
                self.intake.problem(Problem::new(format!("'segments' is {}, not a list: left out", list.kind())));
            }
            return Ok(());
        };
        for item in items {
            let Some(Dict::Segment(row)) = self.dict(item)? else {
                self.intake.strange("an entry of 'segments' that is not a segment: ignored");
                continue;
            };
            let segment = self.segments[row as usize].clone();
            let Value::List(row) = segment.blocks else {
                self.intake.segment(segment.draft, &[], is_host);
                continue;
            };
            let slot = self.lists[row as usize];
            if slot.is_used {
                self.intake
                    .problem(Problem::new("two segments share a list of blocks: the second is treated as empty"));
                self.intake.segment(segment.draft, &[], is_host);
                continue;
            }
            if let List::Blocks { first, count } = slot.list {
                self.lists[row as usize].is_used = true;
                let blocks = self.blocks.get(first as usize..(first + count) as usize).unwrap_or_default();
                self.intake.segment(segment.draft, blocks, is_host);
                continue;
            }
            let mut blocks = Vec::new();
            for item in self.take_items(segment.blocks).unwrap_or_default() {
                match self.dict(item)? {
                    Some(Dict::Block(row)) => blocks.extend(self.blocks.get(row as usize)),
                    _ => self.intake.strange("an entry of 'blocks' that is not a block: ignored"),
                }
            }
            self.intake.segment(segment.draft, &blocks, is_host);
        }
        Ok(())
    }

    fn take_annotations(&mut self, list: Value) -> Taken<()> {
        for item in self.take_items(list).unwrap_or_default() {
            match self.dict(item)? {
                Some(Dict::Annotation(row)) => {
                    if let Some(&annotation) = self.annotations.get(row as usize) {
                        self.intake.annotation(annotation);
                    }
                }
                _ => self.intake.strange("an entry of 'external_annotations' that is not an annotation: ignored"),
            }
        }
        Ok(())
    }

    /// Adds the facts about the recorded program.
    fn take_run(&mut self, value: Value) {
        let Ok(Some(Dict::Open(open))) = self.dict(value) else {
            self.intake.strange(format!("'highwater_run' is {}, not a dict: left out", value.kind()));
            return;
        };
        for (key, value) in std::mem::take(&mut self.open_dicts[open as usize]) {
            let Value::Text(id) = key else { continue };
            let name = self.intake.string(id).to_owned();
            if name == "tensors" {
                self.take_tensors(value);
            } else if let Some(text) = self.setting_text(value) {
                self.intake.run_value(name, text);
            }
        }
    }

    fn take_tensors(&mut self, list: Value) {
        for item in self.take_items(list).unwrap_or_default() {
            match self.take_items(item).unwrap_or_default().as_slice() {
                &[address, bytes, Value::Text(category), Value::Text(name), ref further @ ..]
                    if address.unsigned().is_some() && bytes.unsigned().is_some() =>
                {
                    let [category, name] = [category, name].map(|id| self.intake.string(id).to_owned());
                    let [address, bytes] = [address, bytes].map(|value| value.unsigned().unwrap_or(0));
                    let time_us = further.first().and_then(|value| value.unsigned()).unwrap_or(0);
                    self.intake.run_tensor(RawTensor { address, bytes, time_us, category, name });
                }
                _ => self.intake.strange("an entry of 'tensors' that is not address, bytes, category, name: left out"),
            }
        }
    }

    /// Returns a plain value as text; `None` for containers.
    fn setting_text(&self, value: Value) -> Option<String> {
        Some(match value {
            Value::None => "None".to_owned(),
            Value::Bool(true) => "True".to_owned(),
            Value::Bool(false) => "False".to_owned(),
            Value::Int(number) => number.to_string(),
            Value::Big(number) => number.to_string(),
            Value::Float(number) => format!("{number:?}"),
            Value::Text(id) => self.intake.string(id).to_owned(),
            _ => return None,
        })
    }

    /// Adds the settings below `path`; keys of nested dicts are joined with dots.
    fn take_settings(&mut self, path: &str, value: Value, depth: usize) {
        let open = match value {
            Value::Dict(row) => match self.dicts.get(row as usize) {
                Some(&Dict::Open(open)) if depth < MOST_DEPTH => open,
                _ => return,
            },
            value => {
                let text = self.setting_text(value).unwrap_or_else(|| value.kind().to_owned());
                self.intake.setting(path, text);
                return;
            }
        };
        // The items are taken out, so that the recursion ends even if dicts contain each other.
        for (key, value) in std::mem::take(&mut self.open_dicts[open as usize]) {
            let name = match key {
                Value::Text(id) => self.intake.string(id).to_owned(),
                Value::Int(number) => number.to_string(),
                key => key.kind().to_owned(),
            };
            let path = if path.is_empty() { name } else { format!("{path}.{name}") };
            self.take_settings(&path, value, depth + 1);
        }
    }
}
