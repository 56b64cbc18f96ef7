//! Typed handles, which are row numbers of a recording's tables.

use serde::{Deserialize, Serialize};

/// Declares an id type over `u32` whose largest value means "none".
macro_rules! handle {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub struct $name(pub u32);

        impl $name {
            /// The handle that refers to no row.
            pub const NONE: Self = Self(u32::MAX);

            /// The row number, or `None` for [`Self::NONE`].
            #[inline]
            pub fn index(self) -> Option<usize> {
                (self != Self::NONE).then_some(self.0 as usize)
            }

            /// Whether the handle refers to a row.
            #[inline]
            pub fn is_some(self) -> bool {
                self != Self::NONE
            }

            /// Returns the handle of row `index`. Panics if `index` is above 2³² − 2, the maximum size of a table.
            #[inline]
            pub fn from_index(index: usize) -> Self {
                assert!(index < u32::MAX as usize, "a table holds more than 2^32 - 2 rows");
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
    /// A row of the string table.
    StringId
);
handle!(
    /// A frame of a native call stack, or a source frame of an imported recording.
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
    /// A forward operation, numbered in execution order; its backward operation has the same id.
    OpId
);
handle!(
    /// A block, which is a single allocation. Unlike an address, it is never reused.
    BlockId
);
handle!(
    /// A range of memory reserved from the driver, or released to it.
    SegmentId
);
handle!(
    /// A binary or shared library of the recorded program.
    ModuleId
);
handle!(
    /// The index of an event in a trace.
    EventId
);

/// A device, identified by its ordinal in the driver. Host memory has an ordinal above those of all GPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DeviceId(pub u16);

impl DeviceId {
    /// Device ordinals in a recording are below this: each device costs a pass over the events, and a file could name
    /// thousands.
    pub const END: u16 = 256;
}

/// A stream, identified by the driver's value for it (in CUDA the stream pointer); 0 is the default stream.
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
