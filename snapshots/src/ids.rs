//! Handles: typed row numbers of a recording's tables.

use serde::{Deserialize, Serialize};

/// Declares a handle over `u32` whose largest value means "none".
macro_rules! handle {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub struct $name(pub u32);

        impl $name {
            /// Names no row.
            pub const NONE: Self = Self(u32::MAX);

            /// The row, or `None` for [`Self::NONE`].
            #[inline]
            pub fn index(self) -> Option<usize> {
                (self != Self::NONE).then_some(self.0 as usize)
            }

            /// Whether the handle refers to a row.
            #[inline]
            pub fn is_some(self) -> bool {
                self != Self::NONE
            }

            /// The handle of row `index`; panics past 2³² − 2 rows, which no table of ours may hold.
            #[inline]
            pub fn from_index(index: usize) -> Self {
                assert!(index < u32::MAX as usize, "a table holds at most 2^32 - 2 rows");
                Self(index as u32)
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self::NONE
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self.index() {
                    Some(index) => write!(f, concat!(stringify!($name), "({})"), index),
                    None => write!(f, concat!(stringify!($name), "(none)")),
                }
            }
        }
    };
}

handle!(
    /// A row of the table of strings.
    StringId
);
handle!(
    /// One machine frame, or one source frame of an imported recording.
    FrameId
);
handle!(
    /// A node of the stack tree: a frame and the stack that called it.
    StackId
);
handle!(
    /// A node of the scope tree: a module path such as `encoder.layers.3.mlp`.
    ScopeId
);
handle!(
    /// One forward operation, numbered in execution order; its backward carries the same id.
    OpId
);
handle!(
    /// A block: one allocation. Never its address, which is reused.
    BlockId
);
handle!(
    /// A range of device memory reserved from the driver, or released to it.
    SegmentId
);
handle!(
    /// A binary or shared library of the recorded program.
    ModuleId
);
handle!(
    /// An event of a trace, by position.
    EventId
);

/// A device, by the ordinal that its driver gives it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DeviceId(pub u16);

/// A stream, by the number its driver knows it by (for CUDA the value of the stream's pointer); 0 is the default
/// stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct StreamId(pub u64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn none_names_no_row_and_every_other_value_does() {
        assert_eq!(StackId::NONE.index(), None);
        assert_eq!(StackId::default(), StackId::NONE);
        assert_eq!(StackId(7).index(), Some(7));
        assert_eq!(format!("{:?} {:?}", OpId(3), OpId::NONE), "OpId(3) OpId(none)");
    }
}
