//! Reads JSON values into the store, according to their role in a snapshot.

use std::fmt::Formatter;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Unexpected, Visitor};

use super::reading::Reading;
use crate::objects::{Key, Mark, Refusal, Shape, Value};

/// The expected kind of a value, which determines how much of it is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// The outermost value: a dict with the sections of a snapshot, or a list of segments.
    Snapshot,
    /// A dict that becomes a row. Null is treated as empty.
    Row(Shape),
    /// A list of dicts of a shape, or null.
    Rows(Shape),
    /// A list with one list of such dicts for each device, or null.
    Devices(Shape),
    /// A list of plain values, or null.
    PlainList,
    /// A number, a string, a bool or null. A list or a dict is skipped with its contents.
    Plain,
    /// Any value, kept completely.
    Any,
}

impl Role {
    /// Returns the role of the value of `key` in a dict of this role, or `None` to skip the value.
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
            Key::AllocatorSettings | Key::HighwaterRun | Key::ShapeData | Key::SourceCode => Self::Any,
            Key::Blocks => Self::Rows(Shape::Block),
            Key::History => Self::Rows(Shape::History),
            Key::Frames => Self::Rows(Shape::Frame),
            Key::ForwardFrames | Key::PoolId | Key::SegmentPoolId => Self::PlainList,
            _ => Self::Plain,
        })
    }

    /// Returns the role of the items of a list with this role; `None` to skip the items.
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

/// Reads a value and pushes it onto the stack.
pub(super) struct Values<'r, 'w> {
    pub(super) reading: &'r mut Reading<'w>,
    pub(super) role: Role,
}

impl Values<'_, '_> {
    /// Pushes a value that is not a list or dict, if the role allows one.
    #[inline]
    fn plain<E: Error>(self, value: Value, found: Unexpected<'_>) -> Result<(), E> {
        match self.role {
            Role::Plain | Role::Any => self.reading.push(value),
            _ => Err(E::invalid_type(found, &self)),
        }
    }
}

impl<'de> DeserializeSeed<'de> for Values<'_, '_> {
    type Value = ();

    #[inline]
    fn deserialize<D: Deserializer<'de>>(self, text: D) -> Result<(), D::Error> {
        text.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Values<'_, '_> {
    type Value = ();

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

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        match self.role {
            Role::Snapshot => Err(E::invalid_type(Unexpected::Unit, &self)),
            Role::Row(_) => {
                let (first, mark) = (self.reading.stack.len(), self.reading.store.mark());
                self.reading.end_dict(self.role, first, mark).map_err(E::custom)
            }
            _ => self.reading.push(Value::None),
        }
    }

    #[inline]
    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        self.plain(Value::Bool(value), Unexpected::Bool(value))
    }

    #[inline]
    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        self.plain(i64::try_from(value).map_or(Value::Big(value), Value::Int), Unexpected::Unsigned(value))
    }

    #[inline]
    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        self.plain(Value::Int(value), Unexpected::Signed(value))
    }

    #[inline]
    fn visit_f64<E: Error>(self, value: f64) -> Result<(), E> {
        self.plain(Value::Float(value), Unexpected::Float(value))
    }

    #[inline]
    fn visit_str<E: Error>(self, value: &str) -> Result<(), E> {
        let id = self.reading.text(value);
        self.plain(Value::Text(id), Unexpected::Str(value))
    }

    #[inline]
    fn visit_borrowed_str<E: Error>(self, value: &'de str) -> Result<(), E> {
        self.reading.is_at(value);
        self.visit_str(value)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let role = self.role.of_items(&self)?;
        let Self { reading, .. } = self;
        let target = reading.store.new_list();
        let Some(role) = role else {
            IgnoredAny.visit_seq(list)?;
            return reading.push(target);
        };
        // A stack stays together because a list of frames takes no more once it is one.
        let is_long = matches!(role, Role::Row(Shape::Event | Shape::Block));
        let (first, mark) = (reading.stack.len(), reading.store.mark());
        while list.next_element_seed(Values { reading: &mut *reading, role })?.is_some() {
            if is_long && reading.stack.len() - first >= BATCH {
                reading.append(target, first, mark).map_err(A::Error::custom)?;
            }
        }
        reading.append(target, first, mark).map_err(A::Error::custom)?;
        reading.push(target)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut dict: A) -> Result<(), A::Error> {
        match self.role {
            Role::Snapshot | Role::Row(_) | Role::Any => {}
            Role::Plain => {
                IgnoredAny.visit_map(dict)?;
                let dict = self.reading.store.new_dict();
                return self.reading.push(dict);
            }
            Role::Rows(_) | Role::Devices(_) | Role::PlainList => {
                return Err(Error::invalid_type(Unexpected::Map, &self));
            }
        }
        let Self { reading, role } = self;
        let (first, mark) = (reading.stack.len(), reading.store.mark());
        while dict.next_key_seed(Values { reading: &mut *reading, role: Role::Plain })?.is_some() {
            reading.look()?;
            let key = reading.stack.last().and_then(|key| reading.store.key(*key));
            match role.of_value(key) {
                Some(role) => dict.next_value_seed(Values { reading: &mut *reading, role })?,
                None => dict.next_value::<IgnoredAny>().and_then(|_| reading.push(Value::None))?,
            }
        }
        reading.end_dict(role, first, mark).map_err(Error::custom)
    }
}

impl Reading<'_> {
    #[inline]
    fn push<E>(&mut self, value: Value) -> Result<(), E> {
        self.stack.push(value);
        Ok(())
    }

    /// Replaces the keys and values on the stack from `first` on with their dict. The values were created since `mark`.
    fn end_dict(&mut self, role: Role, first: usize, mark: Mark) -> Result<(), Refusal> {
        let Self { store, stack, .. } = self;
        let items = stack.get(first..).unwrap_or_default();
        let dict = match role {
            // Another kind of dict; an empty one takes little memory.
            Role::Row(Shape::Segment) if !store.has_key_of_segment(items) => store.new_dict(),
            Role::Row(shape) => {
                let dict = store.close(shape, items)?;
                // The blocks of a segment stay until the snapshot is complete.
                if shape != Shape::Segment {
                    store.release(mark);
                }
                store.closed_dict(dict)
            }
            _ => {
                let dict = store.new_dict();
                store.set_items(dict, items)?;
                dict
            }
        };
        stack.truncate(first);
        self.push(dict)
    }

    /// Appends the values on the stack from `first` on to `list`. They were created since `mark`.
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

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;
    use std::rc::Rc;

    use super::*;

    #[test]
    fn what_became_part_of_a_row_is_forgotten() {
        let event = r#"{"action": "alloc", "size": 1, "pool_id": [0, 0], "forward_frames": ["a"], "x": [[]], "addr": [[]],
            "frames": [{"name": "f", "filename": "a.py", "line": 1}, {"name": "g", "filename": {"a": 1}, "line": 2}]}"#;
        let text = format!(r#"{{"device_traces": [[{}]]}}"#, vec![event; 3 * BATCH].join(","));
        let mut watch = |_| ControlFlow::Continue(());
        let mut reading = Reading::new(Some(text.as_bytes()), Rc::default(), &mut watch);
        let mut text = serde_json::Deserializer::from_str(&text);
        Values { reading: &mut reading, role: Role::Snapshot }.deserialize(&mut text).unwrap();
        let store = &reading.store;
        assert_eq!(store.events.len(), 3 * BATCH);
        let kept = [store.dicts.len(), store.lists.len(), store.open_dicts.len(), store.open_lists.len()];
        assert_eq!(kept, [1, 2, 1, 1], "the snapshot, the list of devices, and a device's list of events");
    }
}
