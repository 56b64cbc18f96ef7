//! Flattens the allocator settings by joining the keys of nested dicts with dots.

use std::collections::HashMap;

use super::store::{Dict, List, Store};
use super::value::Value;

const MAX_SETTINGS: usize = 4096;

const MAX_DEPTH: usize = 16;

/// Maximum length of a setting's name in bytes, including the names of the enclosing dicts.
const LONGEST_NAME: usize = 256;

/// Length in bytes at which a list that is a setting's value is cut off.
const LONGEST_LIST: usize = 4096;

/// Settings by name. If a name is repeated, the last value counts.
#[derive(Debug, Default)]
struct Settings {
    rows: Vec<(String, String)>,
    by_name: HashMap<String, usize>,
}

impl Store {
    pub(super) fn take_settings(&mut self, dict: Value) {
        let mut settings = Settings::default();
        match dict {
            Value::None => {}
            Value::Dict(_) => self.flatten(String::new(), dict, 0, &mut settings),
            other => {
                self.intake.count_unexpected(format!(
                    "'allocator_settings' was ignored: expected a dict, got {}",
                    other.kind()
                ));
            }
        }
        for (name, value) in settings.rows {
            self.intake.setting(name, value);
        }
    }

    /// Adds the setting `name`, or the settings nested in it.
    fn flatten(&mut self, name: String, value: Value, depth: usize, into: &mut Settings) {
        if name.len() > LONGEST_NAME || depth > MAX_DEPTH {
            let what = format!("the allocator setting '{name:.60}' was skipped: its name is too long");
            self.intake.count_unexpected(what);
        } else if let Value::Dict(row) = value {
            let Some(&Dict::Open(open)) = self.dicts.get(row as usize) else { return };
            // The items are taken out, so that the recursion ends even if dicts contain each other.
            for (key, value) in std::mem::take(&mut self.open_dicts[open as usize]) {
                let key = match key {
                    Value::Text(id) => self.intake.string(id).to_owned(),
                    Value::Int(number) => number.to_string(),
                    key => key.kind().to_owned(),
                };
                let name = if depth == 0 { key } else { format!("{name}.{key}") };
                self.flatten(name, value, depth + 1, into);
            }
        } else if let Some(&row) = into.by_name.get(&name) {
            into.rows[row].1 = self.printed(value, 0);
        } else if into.rows.len() < MAX_SETTINGS {
            into.by_name.insert(name.clone(), into.rows.len());
            into.rows.push((name, self.printed(value, 0)));
        } else {
            self.intake.count_unexpected("an allocator setting beyond the first 4096 was skipped");
        }
    }

    fn printed(&self, value: Value, depth: usize) -> String {
        let Value::List(row) = value else {
            return self.plain_text(value).unwrap_or_else(|| value.kind().to_owned());
        };
        let mut text = "[".to_owned();
        if let Some(List::Open(open)) = self.lists.get(row as usize).map(|slot| slot.list) {
            for (at, &item) in self.open_lists[open as usize].iter().enumerate() {
                if text.len() > LONGEST_LIST || depth > MAX_DEPTH {
                    text += ", …";
                    break;
                }
                text += if at > 0 { ", " } else { "" };
                text += &self.printed(item, depth + 1);
            }
        }
        text + "]"
    }

    /// Returns a plain value in PyTorch's notation, or `None` for containers.
    pub(super) fn plain_text(&self, value: Value) -> Option<String> {
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
}
