//! The values of a snapshot's file. They are small and `Copy`, and refer to containers by row.

use highwater_snapshots::ids::StringId;

/// A value. Lists and dicts may still change, and their contents are in the [`Store`](super::store::Store).
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Value {
    None,
    Bool(bool),
    Int(i64),
    /// An integer above `i64::MAX`, such as an address in the upper half.
    Big(u64),
    /// An integer outside the range of `i64` and `u64`.
    Huge,
    Float(f64),
    Text(StringId),
    /// A bytes object. Snapshots do not contain any, so the contents are dropped.
    Bytes,
    List(u32),
    Dict(u32),
    /// A tuple of two integers.
    Pair(u32),
}

impl Value {
    /// Returns a non-negative integer, or a bool as 0 or 1; `None` for any other value.
    pub(crate) fn unsigned(self) -> Option<u64> {
        match self {
            Self::Int(number) => u64::try_from(number).ok(),
            Self::Big(number) => Some(number),
            Self::Bool(is_set) => Some(u64::from(is_set)),
            _ => None,
        }
    }

    pub(crate) fn kind(self) -> &'static str {
        match self {
            Self::None => "None",
            Self::Bool(_) => "a bool",
            Self::Int(_) | Self::Big(_) | Self::Huge => "an integer",
            Self::Float(_) => "a float",
            Self::Text(_) => "a string",
            Self::Bytes => "bytes",
            Self::List(_) => "a list",
            Self::Dict(_) => "a dict",
            Self::Pair(_) => "a tuple",
        }
    }
}
