//! The value shared by the blocks of a node, stored as a number that is converted to text only for display.

use std::cmp::Ordering;

use highwater_snapshots::ids::{BlockId, StringId};
use highwater_snapshots::natural;
use highwater_snapshots::tables::Tables;

use super::lines::Lines;
use crate::grouping::dimension::{GroupKey, free_in};

/// The value that distinguishes the blocks of a node within its parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// The root: all blocks.
    All,
    /// Bytes outside of blocks, with the name of the kind of memory.
    Beside(&'static str),
    /// Free bytes in segments of this size.
    FreeIn(u64),
    /// A value of a key: the number itself, the code of a category, phase, pool or lifetime, or the row of an
    /// operation's name; `None` for blocks without a value.
    Value(GroupKey, Option<u64>),
    /// One name of the module path; [`StringId::NONE`] for blocks outside of modules.
    Scope(StringId),
    /// A line of a stack, as an index into the tree's lines; `None` for blocks without a stack.
    Line(Option<u32>),
    /// A single block.
    Block(BlockId),
}

impl Part {
    pub(super) fn name(self, tables: &Tables, lines: &Lines) -> String {
        let or_none = |text: &str| if text.is_empty() { "(none)".to_owned() } else { text.to_owned() };
        match self {
            Self::All => "all".to_owned(),
            Self::Beside(name) => name.to_owned(),
            Self::FreeIn(bytes) => free_in(bytes),
            Self::Value(key, number) => key.dimension().label(tables, number),
            Self::Scope(name) => or_none(tables.string(name)),
            Self::Line(Some(line)) => or_none(lines.text(line)),
            Self::Line(None) => "(none)".to_owned(),
            Self::Block(id) => format!("block {}", id.0),
        }
    }

    /// Compares siblings with equal bytes by name; numbers are compared by value.
    pub(super) fn compare(self, other: Self, tables: &Tables, lines: &Lines) -> Ordering {
        let by_name = match (self, other) {
            (Self::Value(key, Some(a)), Self::Value(_, Some(b))) => key.dimension().compare(tables, a, b),
            (Self::Scope(a), Self::Scope(b)) => natural::compare(tables.string(a), tables.string(b)),
            (Self::Line(Some(a)), Self::Line(Some(b))) => natural::compare(lines.text(a), lines.text(b)),
            _ => Ordering::Equal,
        };
        by_name.then_with(|| self.cmp(&other))
    }
}
