//! The dimensions by which blocks are grouped and selected. Each key of `--by` and `--where` has its own file.
//!
//! [`GroupKey`] lists the keys of `--by`. Groups, trees, conditions and completions read a key's [`Dimension`], and
//! depend only on the kind of its [`Values`].

mod lookups;
mod allocated;
mod category;
mod device;
mod stack;
mod frame;
mod lifetime;
mod op;
mod phase;
mod pool;
mod scope;
mod size;
mod step;
mod stream;
mod group_key;

use std::borrow::Cow;
use std::cmp::Ordering;

use highwater_snapshots::ids::BlockId;
use highwater_snapshots::natural;
use highwater_snapshots::tables::Tables;

use crate::index::beside::SegmentValues;

pub use group_key::GroupKey;
pub(crate) use lookups::Lookups;
pub(crate) use scope::layer_pattern;
pub(crate) use size::free_in;

/// The kind of a dimension's values. Determines the accepted conditions and the display in trees.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Values {
    /// Codes of words from a list, which conditions use.
    Words(fn() -> Vec<&'static str>),
    /// Rows of the string table.
    Text,
    /// Rows of the scope table. A tree has a node for each part of the path.
    Path,
    /// Rows of the stack table: whole call stacks. A tree has a node for each line.
    Stack,
    /// Rows of the stack table, represented by one line of each stack. Conditions accept any line of a stack.
    Line,
    /// Bytes; conditions accept units.
    Bytes,
    /// Whole numbers.
    Number,
}

impl Values {
    /// Returns whether conditions compare the values as numbers.
    pub(crate) fn are_numbers(self) -> bool {
        matches!(self, Self::Bytes | Self::Number)
    }

    /// The operator that completions insert after the key.
    pub(crate) fn usual_operator(self) -> &'static str {
        match self {
            Self::Path | Self::Stack | Self::Line => "~",
            Self::Bytes => ">=",
            Self::Words(_) | Self::Text | Self::Number => "=",
        }
    }

    /// Returns the position of the key in lists: texts come first, then call stacks, bytes and numbers.
    fn rank(self) -> u8 {
        match self {
            Self::Words(_) | Self::Text | Self::Path => 0,
            Self::Stack | Self::Line => 1,
            Self::Bytes => 2,
            Self::Number => 3,
        }
    }
}

/// The label of a missing value.
pub const NO_LABEL: &str = "(none)";

/// The value that represents a missing value in lists of numbers.
pub(crate) const NO_VALUE: u64 = u64::MAX;

/// Functions that return the values of blocks as numbers; `None` for blocks without a value.
#[derive(Clone, Copy)]
pub(crate) struct Number {
    pub(crate) of: fn(&mut Lookups<'_>, BlockId) -> Option<u64>,
    /// Appends the values of many blocks; [`NO_VALUE`] for blocks without a value.
    pub(crate) of_all: fn(&mut Lookups<'_>, &[BlockId], &mut Vec<u64>),
}

/// Makes a [`Number`] from a function of [`Lookups`] and a block.
macro_rules! number {
    ($of:expr) => {
        $crate::grouping::dimension::Number {
            of: $of,
            of_all: |lookups, ids, numbers| {
                let of: fn(
                    &mut $crate::grouping::dimension::Lookups<'_>,
                    highwater_snapshots::ids::BlockId,
                ) -> Option<u64> = $of;
                numbers.extend(ids.iter().map(|id| of(lookups, *id).unwrap_or($crate::grouping::dimension::NO_VALUE)));
            },
        }
    };
}
use number;

/// The definition of a key.
pub(crate) struct Dimension {
    /// The name in `--by` and `--where`.
    pub(crate) name: &'static str,
    /// The description, with examples of values, for completions.
    pub(crate) hint: &'static str,
    pub(crate) values: Values,
    pub(crate) number: Number,
    /// Returns the value of a segment. Segments have values of some keys only.
    pub(crate) of_segment: fn(&SegmentValues) -> Option<u64>,
    /// Returns the text that stands for a number in conditions; empty if it is a table row that does not exist.
    pub(crate) word: fn(&Tables, u64) -> Cow<'_, str>,
    /// Formats a value for tables and legends; `None` if the text is the same as in conditions.
    pub(crate) label: Option<fn(u64) -> String>,
    /// Whether conditions also accept a text that is not in the list of words.
    pub(crate) is_other_word: Option<fn(&str) -> bool>,
}

impl Dimension {
    /// A dimension with default values for everything except its name and kind.
    const fn new(name: &'static str, values: Values) -> Self {
        Self {
            name,
            hint: "",
            values,
            number: number!(|_, _| None),
            of_segment: |_| None,
            word: |_, number| number.to_string().into(),
            label: None,
            is_other_word: None,
        }
    }

    /// Compares values with equal bytes; texts are in natural order.
    pub(crate) fn compare(&self, tables: &Tables, a: u64, b: u64) -> Ordering {
        match self.values {
            Values::Text => natural::compare(&(self.word)(tables, a), &(self.word)(tables, b)),
            _ => a.cmp(&b),
        }
    }

    /// The text of a value for tables and legends.
    pub(crate) fn label(&self, tables: &Tables, number: Option<u64>) -> String {
        match (number, self.label) {
            (None, _) => NO_LABEL.to_owned(),
            (Some(number), Some(label)) => label(number),
            (Some(number), None) => match (self.word)(tables, number) {
                word if word.is_empty() => NO_LABEL.to_owned(),
                word => word.into_owned(),
            },
        }
    }
}

/// Dimensions with the same name are equal.
impl PartialEq for Dimension {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Dimension {}

impl std::fmt::Debug for Dimension {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// The keys of `--where`, in display order.
pub(crate) fn conditions() -> Vec<&'static Dimension> {
    let by = GroupKey::ALL.iter().map(|key| key.dimension());
    let mut all: Vec<_> = by.chain([&allocated::ALLOCATED, &device::DEVICE]).collect();
    all.sort_by_key(|dimension| dimension.values.rank());
    all
}
