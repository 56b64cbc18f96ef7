//! Values on the stack of the pickle machine. They are small and `Copy`; containers are referred to by row.

use highwater_snapshots::ids::StringId;

/// A value. Lists and dicts may still change; their contents are in the [`Store`](super::store::Store).
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Value {
    /// Unused memo entry.
    Nothing,
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
    /// Returns the value as a non-negative integer, if it is one.
    pub(super) fn unsigned(self) -> Option<u64> {
        match self {
            Self::Int(number) => u64::try_from(number).ok(),
            Self::Big(number) => Some(number),
            Self::Bool(is_set) => Some(u64::from(is_set)),
            _ => None,
        }
    }

    /// Returns the type's name for messages.
    pub(super) fn kind(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
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

/// The memo: values by the number under which the file stores them.
#[derive(Clone, Debug, Default)]
pub(super) struct Memos {
    rows: Vec<Value>,
}

impl Memos {
    /// Stores `value` under the next number.
    #[inline]
    pub(super) fn push(&mut self, value: Value) {
        self.rows.push(value);
    }

    /// Stores `value` under `number`. Returns `false` if `number` is new and above `limit`.
    #[inline]
    pub(super) fn put(&mut self, number: usize, value: Value, limit: u64) -> bool {
        if number >= self.rows.len() {
            if number as u64 > limit {
                return false;
            }
            self.rows.resize(number + 1, Value::Nothing);
        }
        self.rows[number] = value;
        true
    }

    /// Returns the value stored under `number`.
    #[inline]
    pub(super) fn get(&self, number: usize) -> Option<Value> {
        self.rows.get(number).copied().filter(|value| !matches!(value, Value::Nothing))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_memo_gives_back_what_was_put() {
        let mut memos = Memos::default();
        let values = [Value::Float(0.5), Value::Text(StringId(3)), Value::Pair(1), Value::None];
        for value in values {
            memos.push(value);
        }
        assert!(memos.put(7, Value::Dict(9), 10));
        assert!(!memos.put(70, Value::Dict(9), 10), "a number that the file cannot have reached");
        let found: Vec<Option<Value>> = (0..9).map(|number| memos.get(number)).collect();
        assert_eq!(found[..4], values.map(Some));
        assert_eq!(found[4..], [None, None, None, Some(Value::Dict(9)), None]);
    }
}
