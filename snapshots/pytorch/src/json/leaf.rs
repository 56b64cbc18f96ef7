//! Reads single values: integers, strings and booleans. A value of the wrong type is counted as unexpected and treated
//! as missing.

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::reading::{Reading, SHOWN, shown};
use highwater_snapshots::ids::StringId;

/// A JSON value without its contents.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Value<'v> {
    Null,
    Flag(bool),
    Number(u64),
    Negative(i64),
    Float(f64),
    Text(&'v str),
    List,
    Dict,
}

impl Value<'_> {
    /// Describes the value for messages.
    fn words(self) -> String {
        match self {
            Self::Null => "nothing".to_owned(),
            Self::Flag(value) => format!("'{value}'"),
            Self::Number(_) => "a number".to_owned(),
            Self::Negative(_) => "a negative number".to_owned(),
            Self::Float(_) => "a number with a fraction, or beyond 64 bits".to_owned(),
            Self::Text(text) => format!("the text '{}'", shown(text, SHOWN)),
            Self::List => "a list".to_owned(),
            Self::Dict => "a dict".to_owned(),
        }
    }
}

/// Reads any value, skips its contents if it has any, and passes it to `take`.
pub(super) struct Leaf<'r, 'w, T> {
    reading: &'r mut Reading<'w>,
    what: &'static str,
    take: fn(&mut Reading<'w>, &'static str, Value<'_>) -> T,
}

impl<'w> Reading<'w> {
    /// Reads an integer from 0 to 2^64 - 1; 0 if missing.
    pub(super) fn number(&mut self, what: &'static str) -> Leaf<'_, 'w, u64> {
        Leaf { reading: self, what, take: |reading, what, value| take_number(reading, what, value).unwrap_or(0) }
    }

    /// Reads an optional integer from 0 to 2^64 - 1.
    pub(super) fn maybe_number(&mut self, what: &'static str) -> Leaf<'_, 'w, Option<u64>> {
        Leaf { reading: self, what, take: take_number }
    }

    /// Reads an integer that may be negative; 0 if missing.
    pub(super) fn ordinal(&mut self, what: &'static str) -> Leaf<'_, 'w, i64> {
        let take = |reading: &mut Reading<'w>, what, value: Value<'_>| match value {
            Value::Negative(number) => number,
            _ => {
                let number = take_number(reading, what, value).unwrap_or(0);
                i64::try_from(number).unwrap_or_else(|_| {
                    strange(reading, what, value);
                    0
                })
            }
        };
        Leaf { reading: self, what, take }
    }

    /// Reads a line number; 0 if missing.
    pub(super) fn line(&mut self, what: &'static str) -> Leaf<'_, 'w, u32> {
        let take = |reading: &mut Reading<'w>, what, value: Value<'_>| {
            let number = take_number(reading, what, value).unwrap_or(0);
            u32::try_from(number).unwrap_or_else(|_| {
                strange(reading, what, value);
                0
            })
        };
        Leaf { reading: self, what, take }
    }

    /// Reads a string and interns it.
    pub(super) fn text(&mut self, what: &'static str) -> Leaf<'_, 'w, StringId> {
        let take = |reading: &mut Reading<'w>, what, value: Value<'_>| match value {
            Value::Text(text) => reading.intake.text(text),
            value => {
                strange(reading, what, value);
                StringId::NONE
            }
        };
        Leaf { reading: self, what, take }
    }

    /// Reads a string without interning it; empty if missing.
    pub(super) fn copied(&mut self, what: &'static str) -> Leaf<'_, 'w, String> {
        let take = |reading: &mut Reading<'w>, what, value: Value<'_>| match value {
            Value::Text(text) => text.to_owned(),
            value => {
                strange(reading, what, value);
                String::new()
            }
        };
        Leaf { reading: self, what, take }
    }

    /// Reads a boolean; `false` if missing.
    pub(super) fn flag(&mut self, what: &'static str) -> Leaf<'_, 'w, bool> {
        let take = |reading: &mut Reading<'w>, what, value: Value<'_>| match value {
            Value::Flag(value) => value,
            value => {
                strange(reading, what, value);
                false
            }
        };
        Leaf { reading: self, what, take }
    }
}

fn take_number(reading: &mut Reading<'_>, what: &'static str, value: Value<'_>) -> Option<u64> {
    match value {
        Value::Number(number) => Some(number),
        Value::Null => None,
        value => {
            strange(reading, what, value);
            Some(0)
        }
    }
}

/// Counts a value of the wrong type; null only counts as missing.
pub(super) fn strange(reading: &mut Reading<'_>, what: &'static str, value: Value<'_>) {
    if value != Value::Null {
        reading.intake.strange(format!("{what} is {}: taken as if it were not there", value.words()));
    }
}

impl<'de, T> DeserializeSeed<'de> for Leaf<'_, '_, T> {
    type Value = T;

    fn deserialize<D: Deserializer<'de>>(self, text: D) -> Result<T, D::Error> {
        text.deserialize_any(self)
    }
}

impl<'de, T> Visitor<'de> for Leaf<'_, '_, T> {
    type Value = T;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.what)
    }

    fn visit_unit<E>(self) -> Result<T, E> {
        Ok((self.take)(self.reading, self.what, Value::Null))
    }

    fn visit_bool<E>(self, value: bool) -> Result<T, E> {
        Ok((self.take)(self.reading, self.what, Value::Flag(value)))
    }

    fn visit_u64<E>(self, value: u64) -> Result<T, E> {
        Ok((self.take)(self.reading, self.what, Value::Number(value)))
    }

    fn visit_i64<E>(self, value: i64) -> Result<T, E> {
        Ok((self.take)(self.reading, self.what, Value::Negative(value)))
    }

    fn visit_f64<E>(self, value: f64) -> Result<T, E> {
        Ok((self.take)(self.reading, self.what, Value::Float(value)))
    }

    fn visit_str<E>(self, value: &str) -> Result<T, E> {
        Ok((self.take)(self.reading, self.what, Value::Text(value)))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<T, A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok((self.take)(self.reading, self.what, Value::List))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut dict: A) -> Result<T, A::Error> {
        while dict.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok((self.take)(self.reading, self.what, Value::Dict))
    }
}
