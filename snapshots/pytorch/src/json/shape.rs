//! Traits and adapters for reading JSON lists and dicts element by element.

use std::fmt::Formatter;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::reading::{Reading, SHOWN, shown};

/// Receives the values of a dict.
pub(super) trait TakesKeys {
    /// What the dict belongs to, in the plural, for messages: "events".
    const OF: &'static str;
    /// The keys that the dict may have.
    const KEYS: &'static [&'static str];

    /// Reads the value of `key`, which is one of [`Self::KEYS`].
    fn take<'de, A: MapAccess<'de>>(
        &mut self,
        reading: &mut Reading<'_>,
        key: &str,
        dict: &mut A,
    ) -> Result<(), A::Error>;

    /// Handles a key that is not in [`Self::KEYS`]; its value is skipped.
    fn unknown(&mut self, reading: &mut Reading<'_>, key: &str) {
        let what = format!("the key '{}' in {}, which this program does not know", shown(key, SHOWN), Self::OF);
        reading.intake.strange(what);
    }
}

/// Receives the elements of a list.
pub(super) trait TakesElements {
    /// What the elements are, in the plural, for messages: "events".
    const OF: &'static str;

    /// Reads the next element; returns whether there was one.
    fn take<'de, A: SeqAccess<'de>>(&mut self, reading: &mut Reading<'_>, list: &mut A) -> Result<bool, A::Error>;
}

/// Reads a dict; null is treated as empty.
pub(super) struct Dict<'r, 'w, T> {
    pub(super) reading: &'r mut Reading<'w>,
    pub(super) into: &'r mut T,
}

/// Reads a list; null is treated as empty.
pub(super) struct List<'r, 'w, T> {
    pub(super) reading: &'r mut Reading<'w>,
    pub(super) into: &'r mut T,
}

impl<'w> Reading<'w> {
    /// Returns a seed that reads a dict into `into`.
    pub(super) fn dict<'r, T: TakesKeys>(&'r mut self, into: &'r mut T) -> Dict<'r, 'w, T> {
        Dict { reading: self, into }
    }

    /// Returns a seed that reads a list into `into`.
    pub(super) fn list<'r, T: TakesElements>(&'r mut self, into: &'r mut T) -> List<'r, 'w, T> {
        List { reading: self, into }
    }
}

impl<'de, T: TakesKeys> DeserializeSeed<'de> for Dict<'_, '_, T> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, text: D) -> Result<(), D::Error> {
        text.deserialize_any(self)
    }
}

impl<'de, T: TakesKeys> Visitor<'de> for Dict<'_, '_, T> {
    type Value = ();

    fn expecting(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        write!(f, "a dict in {}", T::OF)
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut dict: A) -> Result<(), A::Error> {
        let Self { reading, into } = self;
        while let Some(key) = dict.next_key_seed(Key { reading: &mut *reading, into: &mut *into })? {
            match key {
                Some(key) => into.take(reading, key, &mut dict)?,
                None => drop(dict.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

impl<'de, T: TakesElements> DeserializeSeed<'de> for List<'_, '_, T> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, text: D) -> Result<(), D::Error> {
        text.deserialize_any(self)
    }
}

impl<'de, T: TakesElements> Visitor<'de> for List<'_, '_, T> {
    type Value = ();

    fn expecting(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        write!(f, "a list of {}", T::OF)
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while self.into.take(self.reading, &mut list)? {}
        Ok(())
    }
}

/// Reads a key; returns `None` for an unknown key.
struct Key<'r, 'w, T> {
    reading: &'r mut Reading<'w>,
    into: &'r mut T,
}

impl<T: TakesKeys> Key<'_, '_, T> {
    fn find(self, key: &str) -> Option<&'static str> {
        let known = T::KEYS.iter().find(|known| **known == key).copied();
        if known.is_none() {
            self.into.unknown(self.reading, key);
        }
        known
    }
}

impl<'de, T: TakesKeys> DeserializeSeed<'de> for Key<'_, '_, T> {
    type Value = Option<&'static str>;

    fn deserialize<D: Deserializer<'de>>(self, text: D) -> Result<Self::Value, D::Error> {
        text.deserialize_identifier(self)
    }
}

impl<'de, T: TakesKeys> Visitor<'de> for Key<'_, '_, T> {
    type Value = Option<&'static str>;

    fn expecting(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        write!(f, "a key in {}", T::OF)
    }

    fn visit_borrowed_str<E: Error>(self, key: &'de str) -> Result<Self::Value, E> {
        self.reading.is_at(Some(key))?;
        Ok(self.find(key))
    }

    fn visit_str<E: Error>(self, key: &str) -> Result<Self::Value, E> {
        self.reading.is_at(None)?;
        Ok(self.find(key))
    }
}
