//! The keys by which blocks can be grouped.

use std::fmt;

use highwater_snapshots::suggest::did_you_mean;

/// Declares the keys with their names.
macro_rules! keys {
    ($($(#[$doc:meta])* $variant:ident = $text:literal,)+) => {
        /// A key by which blocks are grouped.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
        pub enum GroupKey {
            $($(#[$doc])* $variant,)+
            /// The module path cut to a depth, written `scope:2`.
            ScopeTo(u8),
        }

        impl GroupKey {
            /// Every key, with the whole module path.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The name of the key, without the depth.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)+
                    Self::ScopeTo(_) => "scope",
                }
            }
        }
    };
}

keys! {
    /// The category of the block.
    Category = "category",
    /// The operation's name.
    Op = "op",
    /// The module path.
    Scope = "scope",
    /// The phase of the allocation.
    Phase = "phase",
    /// The step of the allocation.
    Step = "step",
    /// The whole stack of the allocation.
    Stack = "stack",
    /// The innermost source line that is neither an allocator's nor a framework's.
    Frame = "frame",
    /// The exact requested size.
    Size = "size",
    /// The stream.
    Stream = "stream",
    /// The allocator's pool.
    Pool = "pool",
    /// How long the block lives, in phases and steps.
    Lifetime = "lifetime",
}

impl GroupKey {
    /// Parses a comma-separated list of keys.
    ///
    /// # Errors
    /// If a key is unknown or its depth is invalid.
    pub fn parse_list(text: &str) -> Result<Vec<Self>, String> {
        let known = || Self::ALL.iter().map(|key| key.name()).collect::<Vec<_>>().join(", ");
        text.split(',')
            .map(|word| {
                if let Some(depth) = word.trim().strip_prefix("scope:") {
                    let depth = depth.parse().ok().filter(|depth| *depth > 0);
                    return depth
                        .map(Self::ScopeTo)
                        .ok_or_else(|| format!("'{word}': expected a depth from 1, as in scope:2"));
                }
                let key = Self::ALL.iter().copied().find(|key| key.name() == word.trim());
                key.ok_or_else(|| {
                    let word = word.trim();
                    let hint = did_you_mean(word, Self::ALL.iter().map(|key| key.name()));
                    format!("unknown key '{word}'{hint}; keys are {} (scope:N for N levels)", known())
                })
            })
            .collect()
    }
}

/// Formats a key as [`GroupKey::parse_list`] reads it.
impl fmt::Display for GroupKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ScopeTo(depth) => write!(f, "scope:{depth}"),
            key => f.write_str(key.name()),
        }
    }
}

/// A star for the name of a module that is entirely a number, as layers have; names that only contain a number may mean
/// different things.
pub(super) fn layer_pattern(name: &str) -> &str {
    let is_number = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit());
    if is_number { "*" } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_read_back_and_a_mistyped_one_is_corrected() {
        let keys = GroupKey::parse_list("scope:2, category,scope").unwrap();
        assert_eq!(keys, [GroupKey::ScopeTo(2), GroupKey::Category, GroupKey::Scope]);
        assert_eq!(keys.iter().map(ToString::to_string).collect::<Vec<_>>(), ["scope:2", "category", "scope"]);
        let why = |text: &str| GroupKey::parse_list(text).unwrap_err();
        assert!(why("frme").starts_with("unknown key 'frme' (did you mean 'frame'?); keys are category"));
        assert!(why("scope:0").contains("depth from 1") && why("scope:x").contains("scope:2"));
    }
}
