//! Enumerations with fixed names: categories, phases and pools of blocks.

use serde::{Deserialize, Serialize};

/// Declares an enum of variants with names in a fixed order.
#[macro_export]
macro_rules! vocabulary {
    ($(#[$meta:meta])* $name:ident { $($(#[$variant_meta:meta])* $variant:ident = $text:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum $name { $($(#[$variant_meta])* $variant,)+ }

        impl $name {
            /// All values in their fixed order. Files store the index of a value.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The name, as written in files, tables, the app and on the command line.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }

            /// Returns the value with index `code`; `None` if it does not exist.
            #[inline]
            pub fn from_code(code: u8) -> Option<Self> {
                Self::ALL.get(usize::from(code)).copied()
            }

            /// Returns the value with this name; `None` if it does not exist.
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
    /// The purpose of a block. Never guessed in recordings of this project's recorder.
    #[derive(Serialize, Deserialize)]
    Category {
        /// A weight that an optimizer updates.
        Parameter = "parameter",
        /// Module state that no optimizer updates, such as running statistics.
        Buffer = "buffer",
        /// A gradient with respect to a parameter or an input.
        Gradient = "gradient",
        /// A forward result saved for backward.
        Activation = "activation",
        /// State of an optimizer that persists between steps.
        OptimizerState = "optimizer_state",
        /// A batch of data that the program passes to the model.
        Input = "input",
        /// Memory that is freed within the operation, or soon after it.
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
        /// Code before the first step, which builds the model and loads data.
        Setup = "setup",
        /// Computing the loss.
        Forward = "forward",
        /// Computing gradients.
        Backward = "backward",
        /// Updating parameters.
        Optimizer = "optimizer",
        /// Setting gradients to zero or freeing them.
        ZeroGrad = "zero_grad",
        /// Code outside of the other phases.
        Other = "other",
        /// Evaluating a model, which is forward without gradients. Does not start a step.
        Eval = "eval",
    }
);

vocabulary!(
    /// The allocator's pool, chosen by the rounded size of the request for which the segment was reserved.
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
