//! Extracts a snapshot from the outermost value of a file, with its segments, traces, annotations and settings.

use std::ops::Range;

use super::shape::{Key, Keys};
use super::store::{Dict, List, OpenSegment, RowKind, Store};
use super::value::Value;
use crate::RawSnapshot;
use crate::raw::{RawEvent, RawTensor};
use highwater_snapshots::error::{Error, Problem, Result};
use highwater_snapshots::format::SNAPSHOT;
use highwater_snapshots::ids::DeviceId;

/// Maximum number of keys named in an error.
const KEYS_NAMED: usize = 4;

const MAX_DEVICES: usize = DeviceId::END as usize;

/// A result whose error has no offset, since the whole file was already read.
type Taken<T> = std::result::Result<T, &'static str>;

/// A function that takes rows with these indices out of a store.
type Take<T> = fn(&mut Store, Range<usize>) -> Vec<T>;

/// Copies rows, which other lists may also contain.
fn copied<T: Copy>(all: &[T], rows: Range<usize>) -> Vec<T> {
    all.get(rows).unwrap_or_default().to_vec()
}

fn copied_events(store: &mut Store, rows: Range<usize>) -> Vec<RawEvent> {
    copied(&store.events, rows)
}

/// Returns the events `rows`. Moves the events if `rows` is all of them, otherwise copies.
fn moved_events(store: &mut Store, rows: Range<usize>) -> Vec<RawEvent> {
    if rows == (0..store.events.len()) { std::mem::take(&mut store.events) } else { copied_events(store, rows) }
}

impl Store {
    /// Returns the snapshot whose outermost value is `root`. `format` is used to describe any other value, such as
    /// "pickled" or "JSON".
    pub(crate) fn snapshot(mut self, root: Value, format: &str) -> Result<RawSnapshot> {
        let taken = self.other_than_snapshot(root, format).and_then(|other| match other {
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

    /// Describes a value that is not a snapshot. Returns `None` if it is one.
    fn other_than_snapshot(&mut self, root: Value, format: &str) -> Taken<Option<String>> {
        Ok(match (self.dict(root)?, root) {
            (Some(Dict::Open(open)), _) if self.open_dicts[open as usize].is_empty() => {
                Some(format!("an empty {format} dict"))
            }
            (Some(Dict::Open(open)), _) => self.other_dict(open)?.map(|what| format!("a {format} dict {what}")),
            (Some(Dict::Empty), _) => Some(format!("an empty {format} dict")),
            (Some(_), _) => Some(format!("a {format} dict that may be one part of a snapshot")),
            (None, Value::List(_)) => self.other_list(root)?.map(|entries| format!("a {format} list of {entries}")),
            // The outermost value of JSON is a dict or a list.
            (None, value) => Some(format!("a pickle of {}", value.kind())),
        })
    }

    fn other_dict(&mut self, open: u32) -> Taken<Option<String>> {
        let items = self.open_dicts[open as usize].clone();
        if value_of(self.keys, &items, Key::DeviceTraces).is_some() {
            return Ok(None);
        }
        if let Some(segments) = value_of(self.keys, &items, Key::Segments) {
            let entries = self.other_list(segments)?;
            return Ok(entries.map(|entries| format!("whose 'segments' are a list of {entries}")));
        }
        if items.iter().any(|(_, value)| self.is_snapshot(*value)) {
            return Ok(Some("with a snapshot in it, which must be saved alone".to_owned()));
        }
        let name = |(key, _): &(Value, Value)| match key {
            Value::Text(id) => format!("'{:.60}'", self.intake.string(*id)),
            key => key.kind().to_owned(),
        };
        let names: Vec<String> = items.iter().take(KEYS_NAMED).map(name).collect();
        let more = if items.len() > KEYS_NAMED { ", …" } else { "" };
        Ok(Some(format!("with the keys {}{more}", names.join(", "))))
    }

    /// Describes the entries of a non-empty list that has no segment. Returns `None` for any other value.
    fn other_list(&mut self, list: Value) -> Taken<Option<String>> {
        let Value::List(row) = list else { return Ok(None) };
        let entries = match self.lists.get(row as usize).map(|slot| slot.list) {
            None | Some(List::Empty) => return Ok(None),
            Some(List::Open(open)) => self.open_lists[open as usize].clone(),
            Some(_) => return Ok(Some("values that may be parts of a snapshot".to_owned())),
        };
        for entry in &entries {
            if let Some(Dict::Segment(_)) = self.dict(*entry)? {
                return Ok(None);
            }
        }
        Ok(match entries.first() {
            None => None,
            Some(first) if self.is_snapshot(*first) => Some("snapshots, each of which must be saved alone".to_owned()),
            Some(first) => Some(format!("other values, the first of which is {}", first.kind())),
        })
    }

    fn is_snapshot(&self, value: Value) -> bool {
        let Value::Dict(row) = value else { return false };
        let Some(Dict::Open(open)) = self.dicts.get(row as usize) else { return false };
        let items = &self.open_dicts[*open as usize];
        [Key::Segments, Key::DeviceTraces].iter().any(|key| value_of(self.keys, items, *key).is_some())
    }

    fn take_root(&mut self, items: &[(Value, Value)]) -> Taken<()> {
        let keys = self.keys;
        let part = |key| value_of(keys, items, key).unwrap_or(Value::None);
        self.take_segments(part(Key::Segments), false)?;
        self.take_segments(part(Key::HostSegments), true)?;
        let events = self.take_events(part(Key::HostTraces), copied_events)?;
        self.intake.host_trace(events);
        self.take_settings(part(Key::AllocatorSettings));
        self.take_annotations(part(Key::ExternalAnnotations))?;
        let highwater = self.text(Key::Highwater, part(Key::Highwater));
        self.intake.highwater(highwater);
        self.take_run(part(Key::HighwaterRun));
        self.take_shape_data(part(Key::ShapeData))?;
        self.take_source_code(part(Key::SourceCode))?;
        for &(key, _) in items {
            if !self.key(key).is_some_and(Key::is_part_of_snapshot) {
                self.unknown_key(key, "the snapshot");
            }
        }
        self.take_traces(part(Key::DeviceTraces))
    }

    fn take_traces(&mut self, traces: Value) -> Taken<()> {
        if traces == Value::None {
            return Ok(());
        }
        let Some(lists) = self.take_items(traces) else { return Err("'device_traces' is not a list") };
        if lists.len() > MAX_DEVICES {
            let what = format!("{} devices have traces: those from {MAX_DEVICES} up are skipped", lists.len());
            self.intake.problem(Problem::new(what));
        }
        // A single device's events are moved, since a copy of millions takes time; another list may repeat some of them.
        let is_filled =
            |list: &&Value| matches!(list, Value::List(row) if !matches!(self.lists[*row as usize].list, List::Empty));
        let is_single = lists.iter().filter(is_filled).count() == 1;
        let take = if is_single { moved_events } else { copied_events };
        for (device, &list) in lists.iter().enumerate().take(MAX_DEVICES).rev() {
            let events = self.take_events(list, take)?;
            if !events.is_empty() {
                self.intake.trace(device, events);
            }
        }
        Ok(())
    }

    fn take_events(&mut self, list: Value, take: Take<RawEvent>) -> Taken<Vec<RawEvent>> {
        if !matches!(list, Value::List(_) | Value::None) {
            self.intake.problem(Problem::new(format!("a trace was ignored: expected a list, got {}", list.kind())));
        }
        self.take_rows(list, RowKind::Event, take)
    }

    fn take_rows<T>(&mut self, list: Value, kind: RowKind, take: Take<T>) -> Taken<Vec<T>> {
        let Value::List(number) = list else { return Ok(Vec::new()) };
        let [shared, stray] = match kind {
            RowKind::Event => [
                "two devices share one list of events: the second is skipped",
                "an entry of a trace was skipped: expected an event",
            ],
            RowKind::Block => [
                "two segments share a list of blocks: the second is treated as empty",
                "an entry of 'blocks' was skipped: expected a block",
            ],
        };
        let slot = &mut self.lists[number as usize];
        if slot.is_used {
            self.intake.problem(Problem::new(shared));
            return Ok(Vec::new());
        }
        if let List::Rows { kind: of, first, count } = slot.list
            && of == kind
        {
            slot.is_used = true;
            return Ok(take(self, first as usize..(first + count) as usize));
        }
        let mut rows = Vec::new();
        for item in self.take_items(list).unwrap_or_default() {
            match self.dict(item)?.and_then(|dict| kind.row(dict)) {
                Some(row) => rows.extend(take(self, row as usize..row as usize + 1)),
                None => self.intake.count_unexpected(stray),
            }
        }
        Ok(rows)
    }

    fn take_segments(&mut self, list: Value, is_host: bool) -> Taken<()> {
        let Some(items) = self.take_items(list) else {
            if list != Value::None {
                self.intake
                    .problem(Problem::new(format!("'segments' was ignored: expected a list, got {}", list.kind())));
            }
            return Ok(());
        };
        for item in items {
            let Some(Dict::Segment(row)) = self.dict(item)? else {
                self.intake.count_unexpected("an entry of 'segments' was skipped: expected a segment");
                continue;
            };
            let OpenSegment { segment, blocks } = self.segments[row as usize].clone();
            let blocks = self.take_rows(blocks, RowKind::Block, |store, rows| copied(&store.blocks, rows))?;
            self.intake.segment(segment, &blocks, is_host);
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
                _ => self
                    .intake
                    .count_unexpected("an entry of 'external_annotations' was skipped: expected an annotation"),
            }
        }
        Ok(())
    }

    fn take_run(&mut self, value: Value) {
        let Ok(Some(Dict::Open(open))) = self.dict(value) else {
            if value == Value::None {
                return;
            }
            self.intake.count_unexpected(format!("'highwater_run' was ignored: expected a dict, got {}", value.kind()));
            return;
        };
        for (key, value) in std::mem::take(&mut self.open_dicts[open as usize]) {
            let Value::Text(id) = key else { continue };
            let name = self.intake.string(id).to_owned();
            if name == "tensors" {
                self.take_tensors(value);
            } else if let Some(text) = self.plain_text(value) {
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
                _ => self.intake.count_unexpected(
                    "an entry of 'tensors' was skipped: expected an address, bytes, a category and a name",
                ),
            }
        }
    }
}

/// Returns the value of a key, or its last value if the key is repeated.
fn value_of(keys: Keys, items: &[(Value, Value)], wanted: Key) -> Option<Value> {
    items.iter().rev().find(|(key, _)| keys.of(*key) == Some(wanted)).map(|(_, value)| *value)
}
