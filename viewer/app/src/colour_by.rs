//! The grouping key for the colours of blocks, with its names in settings, links and options.

use std::fmt;
use std::str::FromStr;

use highwater_analysis::GroupKey;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// The grouping key for the colours of blocks. Each value has one colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ColourBy(pub GroupKey);

/// Names of keys that have another meaning here than elsewhere: the whole module path instead of its first level, and a
/// single line of each stack.
const WHOLE: [(&str, GroupKey); 2] = [("whole-scope", GroupKey::Scope), ("whole-stack", GroupKey::Stack)];

impl ColourBy {
    /// Colours by module paths truncated to `depth` names, in a recording whose longest path has `deepest` names.
    pub fn scope(depth: usize, deepest: usize) -> Self {
        match u8::try_from(depth.max(1)) {
            Ok(depth) if usize::from(depth) < deepest => Self(GroupKey::ScopeTo(depth)),
            _ => Self(GroupKey::Scope),
        }
    }

    /// Returns the depth of module paths; 1 for other keys.
    pub fn depth(self, deepest: usize) -> usize {
        match self.0 {
            GroupKey::Scope => deepest,
            GroupKey::ScopeTo(depth) => usize::from(depth),
            _ => 1,
        }
    }
}

impl Default for ColourBy {
    fn default() -> Self {
        Self(GroupKey::Category)
    }
}

impl fmt::Display for ColourBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match WHOLE.iter().find(|(_, key)| *key == self.0) {
            Some((name, _)) => f.write_str(name),
            None => self.0.fmt(f),
        }
    }
}

impl FromStr for ColourBy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let key = match text {
            "scope" => GroupKey::ScopeTo(1),
            "stack" => GroupKey::Frame,
            text => match WHOLE.iter().find(|(name, _)| *name == text) {
                Some((_, key)) => *key,
                None => match GroupKey::parse_list(text)?.as_slice() {
                    [key] => *key,
                    _ => return Err(format!("'{text}': expected one key for colours")),
                },
            },
        };
        Ok(Self(key))
    }
}

/// Serialized as text.
impl Serialize for ColourBy {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ColourBy {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_reads_back_from_links_and_settings() {
        for key in GroupKey::ALL.iter().copied().chain([GroupKey::ScopeTo(3)]) {
            let by = ColourBy(key);
            assert_eq!(by.to_string().parse(), Ok(by));
            assert_eq!(serde_json::from_str::<ColourBy>(&serde_json::to_string(&by).unwrap()).unwrap(), by);
        }
    }

    #[test]
    fn names_in_links_keep_their_meaning() {
        let linked = [
            ("category", GroupKey::Category),
            ("scope:2", GroupKey::ScopeTo(2)),
            ("scope", GroupKey::ScopeTo(1)),
            ("op", GroupKey::Op),
            ("stack", GroupKey::Frame),
            ("frame", GroupKey::Frame),
            ("lifetime", GroupKey::Lifetime),
            ("stream", GroupKey::Stream),
            ("pool", GroupKey::Pool),
        ];
        for (name, key) in linked {
            assert_eq!(name.parse(), Ok(ColourBy(key)), "{name}");
        }
        for wrong in ["", "scope:0", "op,size", "flavour"] {
            assert!(wrong.parse::<ColourBy>().is_err(), "{wrong}");
        }
    }
}
