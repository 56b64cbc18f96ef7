//! Reads JSON values into the store, each by its role in a snapshot.

use std::fmt::Formatter;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Unexpected, Visitor};

use super::reading::Reading;
use crate::objects::{Key, Mark, Refusal, Shape, Value};
use highwater_snapshots::ids::StringId;

/// What a value must be, and how much of it is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// The outermost value: a dict of the parts of a snapshot, or a list of segments.
    Snapshot,
    /// A dict that becomes a row; null is treated as empty.
    Row(Shape),
    /// A list of such dicts, or null.
    Rows(Shape),
    /// A list of lists of such dicts, or null: one for each device.
    Devices(Shape),
    /// A list of plain values, or null.
    PlainList,
    /// A number, a string, a bool or null; what is in a list or a dict in its place is skipped.
    Plain,
    /// Any value, which is kept as a whole.
    Any,
}

impl Role {
    /// Returns the role of the value of `key` in a dict of this role; `None` if the value is to be skipped.
    fn of_value(self, key: Option<Key>) -> Option<Self> {
        if self == Self::Any {
            return Some(Self::Any);
        }
        let key = key.filter(|key| key.is_part_of_snapshot() == (self == Self::Snapshot))?;
        Some(match key {
            Key::Segments | Key::HostSegments => Self::Rows(Shape::Segment),
            Key::DeviceTraces => Self::Devices(Shape::Event),
            Key::HostTraces => Self::Rows(Shape::Event),
            Key::ExternalAnnotations => Self::Rows(Shape::Annotation),
            Key::AllocatorSettings | Key::HighwaterRun => Self::Any,
            Key::Blocks => Self::Rows(Shape::Block),
            Key::History => Self::Rows(Shape::History),
            Key::Frames => Self::Rows(Shape::Frame),
            Key::ForwardFrames | Key::PoolId | Key::SegmentPoolId => Self::PlainList,
            _ => Self::Plain,
        })
    }

    /// Returns the role of the items of a list of this role; `None` if they are to be skipped.
    fn of_items<E: Error>(self, values: &Values<'_, '_>) -> Result<Option<Self>, E> {
        match self {
            Self::Snapshot => Ok(Some(Self::Row(Shape::Segment))),
            Self::Rows(shape) => Ok(Some(Self::Row(shape))),
            Self::Devices(shape) => Ok(Some(Self::Rows(shape))),
            Self::PlainList => Ok(Some(Self::Plain)),
            Self::Any => Ok(Some(Self::Any)),
            Self::Plain => Ok(None),
            Self::Row(_) => Err(E::invalid_type(Unexpected::Seq, values)),
        }
    }
}

/// Number of rows of a long list that are appended to it at a time.
const BATCH: usize = 256;

/// Reads a value.
pub(super) struct Values<'r, 'w> {
    pub(super) reading: &'r mut Reading<'w>,
    pub(super) role: Role,
}

impl Values<'_, '_> {
    /// Returns a value that is not a container, if it may be one.
    #[inline]
    fn plain<E: Error>(&self, value: Value, found: Unexpected<'_>) -> Result<Value, E> {
        match self.role {
            Role::Plain | Role::Any => Ok(value),
            _ => Err(E::invalid_type(found, self)),
        }
    }
}

impl<'de> DeserializeSeed<'de> for Values<'_, '_> {
    type Value = Value;

    #[inline]
    fn deserialize<D: Deserializer<'de>>(self, text: D) -> Result<Value, D::Error> {
        text.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Values<'_, '_> {
    type Value = Value;

    fn expecting(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match self.role {
            Role::Snapshot => f.write_str("a memory snapshot, which is a dict, or a list of segments"),
            Role::Row(shape) => write!(f, "a dict in {shape}"),
            Role::Rows(shape) => write!(f, "a list of {shape}"),
            Role::Devices(shape) => write!(f, "a list of the devices' lists of {shape}"),
            Role::PlainList => f.write_str("a list of numbers or strings"),
            Role::Plain | Role::Any => f.write_str("a value"),
        }
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        match self.role {
            Role::Snapshot => Err(E::invalid_type(Unexpected::Unit, &self)),
            Role::Row(_) => {
                let (first, mark) = (self.reading.stack.len(), self.reading.store.mark());
                self.reading.end_dict(self.role, first, mark).map_err(E::custom)
            }
            _ => Ok(Value::None),
        }
    }

    #[inline]
    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        self.plain(Value::Bool(value), Unexpected::Bool(value))
    }

    #[inline]
    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        self.plain(i64::try_from(value).map_or(Value::Big(value), Value::Int), Unexpected::Unsigned(value))
    }

    #[inline]
    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        self.plain(Value::Int(value), Unexpected::Signed(value))
    }

    #[inline]
    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        self.plain(Value::Float(value), Unexpected::Float(value))
    }

    #[inline]
    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        self.plain(Value::None, Unexpected::Str(value))?;
        Ok(Value::Text(self.reading.store.intake.text(value)))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let role = self.role.of_items(&self)?;
        let Self { reading, .. } = self;
        let target = reading.store.new_list();
        let Some(role) = role else {
            while list.next_element::<IgnoredAny>()?.is_some() {}
            return Ok(target);
        };
        // A stack stays together because a list of frames takes no more once it is one.
        let is_long = matches!(role, Role::Row(Shape::Event | Shape::Block));
        let (first, mark) = (reading.stack.len(), reading.store.mark());
        while let Some(value) = list.next_element_seed(Values { reading: &mut *reading, role })? {
            reading.stack.push(value);
            if is_long && reading.stack.len() - first >= BATCH {
                reading.append(target, first, mark).map_err(A::Error::custom)?;
            }
        }
        reading.append(target, first, mark).map_err(A::Error::custom)?;
        Ok(target)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut dict: A) -> Result<Value, A::Error> {
        match self.role {
            Role::Snapshot | Role::Row(_) | Role::Any => {}
            Role::Plain => {
                while dict.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                return Ok(self.reading.store.new_dict());
            }
            Role::Rows(_) | Role::Devices(_) | Role::PlainList => {
                return Err(Error::invalid_type(Unexpected::Map, &self));
            }
        }
        let Self { reading, role } = self;
        let (first, mark) = (reading.stack.len(), reading.store.mark());
        while let Some(key) = dict.next_key_seed(KeyText { reading: &mut *reading })? {
            let value = match role.of_value(reading.store.keys.key(key)) {
                Some(role) => dict.next_value_seed(Values { reading: &mut *reading, role })?,
                None => dict.next_value::<IgnoredAny>().map(|_| Value::None)?,
            };
            reading.stack.extend([Value::Text(key), value]);
        }
        reading.end_dict(role, first, mark).map_err(Error::custom)
    }
}

impl Reading<'_> {
    /// Creates the dict whose keys and values are on the stack from `first` on; its values were created since `mark`.
    fn end_dict(&mut self, role: Role, first: usize, mark: Mark) -> Result<Value, Refusal> {
        let Self { store, stack, .. } = self;
        let items = stack.get(first..).unwrap_or_default();
        let dict = match role {
            Role::Row(shape) if shape != Shape::Segment => {
                let dict = store.close(shape, items)?;
                store.release(mark);
                store.closed_dict(dict)
            }
            // A list of other things, each of which takes little memory.
            Role::Row(_) if !store.has_key_of_segment(items) => {
                store.release(mark);
                store.new_dict()
            }
            Role::Row(shape) => {
                let dict = store.close(shape, items)?;
                store.closed_dict(dict)
            }
            _ => {
                let dict = store.new_dict();
                store.set_items(dict, items)?;
                dict
            }
        };
        stack.truncate(first);
        Ok(dict)
    }

    /// Appends the values on the stack from `first` on to `list`; they were created since `mark`.
    fn append(&mut self, list: Value, first: usize, mark: Mark) -> Result<(), Refusal> {
        let Self { store, stack, .. } = self;
        let items = stack.get(first..).unwrap_or_default();
        if !items.is_empty() {
            store.append(list, items)?;
            stack.truncate(first);
        }
        if store.is_of_rows(list) {
            store.release(mark);
        }
        Ok(())
    }
}

/// Reads a key.
struct KeyText<'r, 'w> {
    reading: &'r mut Reading<'w>,
}

impl<'de> DeserializeSeed<'de> for KeyText<'_, '_> {
    type Value = StringId;

    #[inline]
    fn deserialize<D: Deserializer<'de>>(self, text: D) -> Result<StringId, D::Error> {
        text.deserialize_identifier(self)
    }
}

impl<'de> Visitor<'de> for KeyText<'_, '_> {
    type Value = StringId;

    fn expecting(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str("a key")
    }

    #[inline]
    fn visit_borrowed_str<E: Error>(self, key: &'de str) -> Result<StringId, E> {
        self.reading.is_at(Some(key))?;
        Ok(self.reading.store.intake.text(key))
    }

    #[inline]
    fn visit_str<E: Error>(self, key: &str) -> Result<StringId, E> {
        self.reading.is_at(None)?;
        Ok(self.reading.store.intake.text(key))
    }
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use super::*;

    #[test]
    fn what_became_part_of_a_row_is_forgotten() {
        let event = r#"{"action": "alloc", "size": 1, "pool_id": [0, 0], "forward_frames": ["a"], "x": [[]], "addr": [[]],
            "frames": [{"name": "f", "filename": "a.py", "line": 1}, {"name": "g", "filename": {"a": 1}, "line": 2}]}"#;
        let text = format!(r#"{{"device_traces": [[{}]]}}"#, vec![event; 3 * BATCH].join(","));
        let mut watch = |_| ControlFlow::Continue(());
        let mut reading = Reading::of_bytes(text.as_bytes(), &mut watch);
        let mut text = serde_json::Deserializer::from_str(&text);
        Values { reading: &mut reading, role: Role::Snapshot }.deserialize(&mut text).unwrap();
        let store = &reading.store;
        assert_eq!(store.events.len(), 3 * BATCH);
        let kept = [store.dicts.len(), store.lists.len(), store.open_dicts.len(), store.open_lists.len()];
        assert_eq!(kept, [1, 2, 1, 1], "the snapshot, the list of devices, and a device's list of events");
    }
}
