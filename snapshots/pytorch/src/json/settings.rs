//! Reads the allocator settings, flattening nested dicts.

use std::collections::HashMap;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::super::intake::Intake;
use super::reading::{Reading, SHOWN, shown};

/// Maximum number of settings kept.
const MOST_SETTINGS: usize = 4096;

/// Maximum length of a setting's name in bytes, including the names of the enclosing dicts.
const LONGEST_NAME: usize = 256;

/// Length in bytes after which no more items are added to a list kept as a setting's value.
const LONGEST_LIST: usize = 4096;

/// Settings by name; nested keys are joined with dots.
#[derive(Debug, Default)]
pub(super) struct Settings {
    rows: Vec<(String, String)>,
    by_name: HashMap<String, usize>,
}

impl Settings {
    fn set(&mut self, reading: &mut Reading<'_>, name: &str, value: String) {
        if let Some(&row) = self.by_name.get(name) {
            self.rows[row].1 = value;
        } else if self.rows.len() < MOST_SETTINGS {
            self.by_name.insert(name.to_owned(), self.rows.len());
            self.rows.push((name.to_owned(), value));
        } else {
            reading.intake.strange("an allocator setting beyond the first 4096: left out");
        }
    }

    /// Adds the settings to `intake`.
    pub(super) fn hand_over(self, intake: &mut Intake) {
        for (name, value) in self.rows {
            intake.setting(name, value);
        }
    }
}

/// Reads the value of the setting `name`; if it is a dict, reads its items as settings whose names start with `name`.
pub(super) struct Setting<'r, 'w> {
    reading: &'r mut Reading<'w>,
    into: &'r mut Settings,
    name: &'r mut String,
    /// Where the items of a list are collected, if this value is an item of a list.
    words: Option<&'r mut String>,
}

impl<'r, 'w> Setting<'r, 'w> {
    /// Reads the dict of all settings.
    pub(super) fn all(reading: &'r mut Reading<'w>, into: &'r mut Settings, name: &'r mut String) -> Self {
        Self { reading, into, name, words: None }
    }

    fn is(self, value: String) {
        match self.words {
            Some(words) if words.len() < LONGEST_LIST => {
                *words += if words.is_empty() { "" } else { ", " };
                *words += &value;
            }
            Some(_) => {}
            None if self.name.is_empty() => self.reading.intake.strange("allocator_settings is not a dict: ignored"),
            None => self.into.set(self.reading, self.name, value),
        }
    }
}

impl<'de> DeserializeSeed<'de> for Setting<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, text: D) -> Result<(), D::Error> {
        text.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Setting<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an allocator setting")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        if !self.name.is_empty() {
            self.is("None".to_owned());
        }
        Ok(())
    }

    // Values are formatted as PyTorch prints them.
    fn visit_bool<E>(self, value: bool) -> Result<(), E> {
        self.is(if value { "True" } else { "False" }.to_owned());
        Ok(())
    }

    fn visit_u64<E>(self, value: u64) -> Result<(), E> {
        self.is(value.to_string());
        Ok(())
    }

    fn visit_i64<E>(self, value: i64) -> Result<(), E> {
        self.is(value.to_string());
        Ok(())
    }

    fn visit_f64<E>(self, value: f64) -> Result<(), E> {
        self.is(format!("{value:?}"));
        Ok(())
    }

    fn visit_str<E>(self, value: &str) -> Result<(), E> {
        self.is(value.to_owned());
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<(), A::Error> {
        let mut words = String::new();
        loop {
            let Self { reading, into, name, .. } = &mut self;
            let element = Setting { reading, into, name, words: Some(&mut words) };
            if list.next_element_seed(element)?.is_none() {
                break;
            }
        }
        self.is(format!("[{words}]"));
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut dict: A) -> Result<(), A::Error> {
        let length = self.name.len();
        while let Some(key) = dict.next_key::<String>()? {
            if length > 0 {
                self.name.push('.');
            }
            *self.name += &key;
            if self.name.len() > LONGEST_NAME {
                let what =
                    format!("the allocator setting '{}', whose name is too long: left out", shown(self.name, SHOWN));
                self.reading.intake.strange(what);
                dict.next_value::<IgnoredAny>()?;
            } else {
                let words = None;
                dict.next_value_seed(Setting { reading: self.reading, into: self.into, name: self.name, words })?;
            }
            self.name.truncate(length);
        }
        Ok(())
    }
}
