//! The keys by which blocks can be grouped.

use std::fmt;

use highwater_snapshots::ids::BlockId;
use highwater_snapshots::suggest::did_you_mean;

use super::{Dimension, Lookups, NO_LABEL, NO_VALUE, Values};

/// Declares the keys with their dimensions.
macro_rules! keys {
    ($($(#[$doc:meta])* $variant:ident = $dimension:path,)+) => {
        /// A key by which blocks are grouped.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
        pub enum GroupKey {
            $($(#[$doc])* $variant,)+
            /// The module path truncated to a depth, written `scope:2`.
            ScopeTo(u8),
        }

        impl GroupKey {
            /// All keys; `scope` without a depth.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            pub(crate) fn dimension(self) -> &'static Dimension {
                match self {
                    $(Self::$variant => &$dimension,)+
                    Self::ScopeTo(_) => &super::scope::SCOPE,
                }
            }
        }
    };
}

keys! {
    /// The category of the block.
    Category = super::category::CATEGORY,
    /// The operation's name.
    Op = super::op::OP,
    /// The module path.
    Scope = super::scope::SCOPE,
    /// The phase of the allocation.
    Phase = super::phase::PHASE,
    /// The step of the allocation.
    Step = super::step::STEP,
    /// The whole stack of the allocation.
    Stack = super::stack::STACK,
    /// The innermost source line that is in neither an allocator nor a framework.
    Frame = super::frame::FRAME,
    /// The exact requested size.
    Size = super::size::SIZE,
    /// The stream for which the block was allocated.
    Stream = super::stream::STREAM,
    /// The allocator's pool.
    Pool = super::pool::POOL,
    /// The block's lifetime, in phases and steps.
    Lifetime = super::lifetime::LIFETIME,
}

impl GroupKey {
    /// The name of the key, without the depth.
    pub fn name(self) -> &'static str {
        self.dimension().name
    }

    /// Returns the description, with examples of values.
    pub fn hint(self) -> &'static str {
        self.dimension().hint
    }

    /// Returns whether the values are numbers, such as sizes and steps.
    pub fn has_numbers(self) -> bool {
        self.dimension().values.are_numbers()
    }

    /// Returns whether the values are few and have a natural order, such as categories and phases.
    pub fn has_fixed_order(self) -> bool {
        let dimension = self.dimension();
        matches!(dimension.values, Values::Words(_)) && dimension.is_other_word.is_none()
    }

    /// The label of a value with the name of the key, for use without a heading, such as `step 3`.
    pub fn with_name(self, label: String) -> String {
        match self.dimension().values {
            Values::Number if label != NO_LABEL => format!("{} {label}", self.name()),
            _ => label,
        }
    }

    /// The value of block `id` as a number; `None` if it has no value.
    pub(crate) fn number(self, lookups: &mut Lookups<'_>, id: BlockId) -> Option<u64> {
        let number = (self.dimension().number.of)(lookups, id);
        match self {
            Self::ScopeTo(depth) => number.map(|scope| super::scope::cut(lookups.trace, scope, depth)),
            _ => number,
        }
    }

    /// Replaces the contents of `numbers` by the values of blocks; [`NO_VALUE`] for blocks without a value.
    pub(crate) fn numbers(self, lookups: &mut Lookups<'_>, ids: &[BlockId], numbers: &mut Vec<u64>) {
        numbers.clear();
        match self {
            Self::ScopeTo(_) => numbers.extend(ids.iter().map(|id| self.number(lookups, *id).unwrap_or(NO_VALUE))),
            _ => (self.dimension().number.of_all)(lookups, ids, numbers),
        }
    }

    /// Parses a comma-separated list of keys.
    ///
    /// # Errors
    /// Fails if a key is unknown or its depth is invalid.
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

/// Formats a key so that [`GroupKey::parse_list`] can parse it.
impl fmt::Display for GroupKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ScopeTo(depth) => write!(f, "scope:{depth}"),
            key => f.write_str(key.name()),
        }
    }
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
