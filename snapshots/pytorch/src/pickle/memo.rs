//! The memo of the pickle machine, with values by memo index.

use crate::objects::Value;
use highwater_snapshots::ids::StringId;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Memo {
    Value(Value),
    /// A dict that became the event in this row, and was not stored as a dict.
    Event(u32),
    /// A list that became this stack, and was not stored as a list.
    Stack(u32),
}

/// The memo, with values by memo index, in four bytes each.
#[derive(Clone, Debug, Default)]
pub(super) struct Memos {
    /// A tag in the upper bits, and a row or an id in the others; 0 for an unused index.
    rows: Vec<u32>,
    /// Values that are not a row or an id, or too large for the lower bits.
    wide: Vec<Value>,
}

/// Position of the tag in a row of the memo.
const TAG: u32 = 29;

/// The largest row or id that fits with a tag.
const MOST: u32 = (1 << TAG) - 1;

const TEXT: u32 = 1;
const LIST: u32 = 2;
const DICT: u32 = 3;
const PAIR: u32 = 4;
const EVENT: u32 = 5;
const STACK: u32 = 6;
const WIDE: u32 = 7;

impl Memos {
    /// Returns one more than the largest index in use.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    #[inline]
    pub(super) fn push(&mut self, value: Value) {
        let row = self.packed(value);
        self.rows.push(row);
    }

    #[inline]
    pub(super) fn push_event(&mut self, event: u32) {
        let row = if event <= MOST { EVENT << TAG | event } else { 0 };
        self.rows.push(row);
    }

    #[inline]
    pub(super) fn push_stack(&mut self, stack: u32) {
        let row = if stack <= MOST { STACK << TAG | stack } else { 0 };
        self.rows.push(row);
    }

    /// Stores `value` under the index `number`. Returns `false` if the index is new and above `limit`.
    #[inline]
    pub(super) fn put(&mut self, number: usize, value: Value, limit: u64) -> bool {
        if number >= self.rows.len() {
            if number as u64 > limit {
                return false;
            }
            self.rows.resize(number + 1, 0);
        }
        // A value of the same number is replaced, so that a file that stores one repeatedly takes no more memory.
        let former = self.rows[number];
        match (former >> TAG, self.wide.get_mut((former & MOST) as usize)) {
            (WIDE, Some(wide)) => *wide = value,
            _ => self.rows[number] = self.packed(value),
        }
        true
    }

    #[inline]
    pub(super) fn get(&self, number: usize) -> Option<Memo> {
        let row = *self.rows.get(number)?;
        let low = row & MOST;
        Some(match row >> TAG {
            TEXT => Memo::Value(Value::Text(StringId(low))),
            LIST => Memo::Value(Value::List(low)),
            DICT => Memo::Value(Value::Dict(low)),
            PAIR => Memo::Value(Value::Pair(low)),
            EVENT => Memo::Event(low),
            STACK => Memo::Stack(low),
            WIDE => Memo::Value(*self.wide.get(low as usize)?),
            _ => return None,
        })
    }

    #[inline]
    fn packed(&mut self, value: Value) -> u32 {
        match value {
            Value::Text(StringId(id)) if id <= MOST => TEXT << TAG | id,
            Value::List(row) if row <= MOST => LIST << TAG | row,
            Value::Dict(row) if row <= MOST => DICT << TAG | row,
            Value::Pair(row) if row <= MOST => PAIR << TAG | row,
            value => self.widely(value),
        }
    }

    #[cold]
    fn widely(&mut self, value: Value) -> u32 {
        let row = self.wide.len() as u32;
        if row > MOST {
            return 0;
        }
        self.wide.push(value);
        WIDE << TAG | row
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Sequences;

    #[test]
    fn a_memo_gives_back_what_was_put() {
        let mut memos = Memos::default();
        let values = [Value::Float(0.5), Value::Text(StringId(3)), Value::Pair(1), Value::None, Value::Dict(u32::MAX)];
        for value in values {
            memos.push(value);
        }
        assert!(memos.put(7, Value::Dict(9), 10));
        assert!(!memos.put(70, Value::Dict(9), 10), "a number that the file cannot have reached");
        assert!(memos.put(0, Value::List(4), 0));
        memos.push_event(5);
        memos.push_stack(6);
        memos.push_stack(Sequences::NONE);
        let found: Vec<Option<Memo>> = (0..12).map(|number| memos.get(number)).collect();
        assert_eq!(found[0], Some(Memo::Value(Value::List(4))));
        assert_eq!(found[1..5], [1, 2, 3, 4].map(|row: usize| Some(Memo::Value(values[row]))));
        assert_eq!(found[5..8], [None, None, Some(Memo::Value(Value::Dict(9)))]);
        let stacks = [Memo::Stack(6), Memo::Stack(Sequences::NONE)].map(Some);
        assert_eq!((found[8], &found[9..11], found[11]), (Some(Memo::Event(5)), &stacks[..], None));
    }
}
