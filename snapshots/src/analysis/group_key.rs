//! GroupKey: what blocks can be grouped by.

/// Declares the keys with their spelling.
macro_rules! keys {
    ($($(#[$doc:meta])* $variant:ident = $text:literal,)+) => {
        /// What blocks are grouped by.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
        pub enum GroupKey { $($(#[$doc])* $variant,)+ }

        impl GroupKey {
            /// Every key.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The one spelling.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }
        }
    };
}

keys! {
    /// What the block is for.
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
    /// The innermost source line that is not machinery.
    Frame = "frame",
    /// The exact requested size.
    Size = "size",
    /// The stream.
    Stream = "stream",
    /// The allocator's pool.
    Pool = "pool",
    /// How long it lives, in phases and steps.
    Lifetime = "lifetime",
}

impl GroupKey {
    /// Reads a comma-separated list of keys.
    pub fn parse_list(text: &str) -> Result<Vec<Self>, String> {
        let known = || Self::ALL.iter().map(|key| key.name()).collect::<Vec<_>>().join(", ");
        text.split(',')
            .map(|word| {
                let key = Self::ALL.iter().copied().find(|key| key.name() == word.trim());
                key.ok_or_else(|| format!("no key '{}': keys are {}", word.trim(), known()))
            })
            .collect()
    }
}
