//! The three fixed sets of names: categories, phases and pools of blocks.

use serde::{Deserialize, Serialize};

/// Declares a closed vocabulary: an enum whose variants are in a fixed order, each with its one spelling.
#[macro_export]
macro_rules! vocabulary {
    ($(#[$meta:meta])* $name:ident { $($(#[$variant_meta:meta])* $variant:ident = $text:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum $name { $($(#[$variant_meta])* $variant,)+ }

        impl $name {
            /// Every value, in its fixed order; a value that files contain is stored as its position.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The one spelling, in files, tables, controls and on the command line.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }

            /// The value stored as `code`, if there is one.
            #[inline]
            pub fn from_code(code: u8) -> Option<Self> {
                Self::ALL.get(usize::from(code)).copied()
            }

            /// The value spelt `name`, if there is one.
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|value| value.name() == name)
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.name())
            }
        }
    };
}

vocabulary!(
    /// The purpose of a block, set where it is allocated; the crate's own recordings never contain guessed ones.
    #[derive(Serialize, Deserialize)]
    Category {
        /// A weight that an optimizer changes.
        Parameter = "parameter",
        /// State of a module that no optimizer changes, such as running statistics.
        Buffer = "buffer",
        /// A gradient with respect to a parameter or an input.
        Gradient = "gradient",
        /// A forward result saved for backward.
        Activation = "activation",
        /// State of an optimizer that persists between steps.
        OptimizerState = "optimizer_state",
        /// Data that the program feeds in.
        Input = "input",
        /// Dies within the operation, or soon after it.
        Temporary = "temporary",
        /// Scratch space of a kernel.
        Workspace = "workspace",
        /// Unknown.
        Unknown = "unknown",
    }
);

vocabulary!(
    /// The part of a training step.
    #[derive(Serialize, Deserialize)]
    Phase {
        /// Before the first step: building the model, loading data.
        Setup = "setup",
        /// Computing the loss.
        Forward = "forward",
        /// Computing gradients.
        Backward = "backward",
        /// Updating parameters.
        Optimizer = "optimizer",
        /// Dropping gradients.
        ZeroGrad = "zero_grad",
        /// Anything else.
        Other = "other",
        /// Evaluating a model: forward without gradients, which begins no step.
        Eval = "eval",
    }
);

vocabulary!(
    /// The allocator's pool, determined by the rounded size of the request that reserved the segment.
    #[derive(Serialize, Deserialize)]
    Pool {
        /// Requests of at most 1 MiB.
        Small = "small",
        /// Requests above 1 MiB.
        Large = "large",
    }
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_reads_back_as_itself() {
        for &category in Category::ALL {
            assert_eq!(Category::from_name(category.name()), Some(category));
            assert_eq!(Category::from_code(category as u8), Some(category));
        }
        assert_eq!(Phase::from_name("zero_grad"), Some(Phase::ZeroGrad));
        assert_eq!(Pool::from_code(2), None);
    }
}
