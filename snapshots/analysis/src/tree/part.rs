//! The value shared by the blocks of a node, as a number that is converted to text only for display.

use std::cmp::Ordering;

use highwater_snapshots::Category;
use highwater_snapshots::ids::{BlockId, StringId};
use highwater_snapshots::tables::Tables;

use super::lines::Lines;
use crate::key_encoder::{exact_size, free_in};
use crate::lifetime::Lifetime;
use crate::origin::Origin;
use crate::pools::BlockPool;

/// The value that the blocks of a node share within those of its parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// The root: all blocks.
    All,
    /// Bytes that belong to no block, by name.
    Beside(&'static str),
    /// Bytes that are free in segments of this size.
    FreeIn(u64),
    /// The category.
    Category(Category),
    /// The phase of the allocation.
    Phase(Origin),
    /// The allocator's pool.
    Pool(BlockPool),
    /// How long the blocks live.
    Lifetime(Lifetime),
    /// The operation's name.
    Op(StringId),
    /// The step of the allocation.
    Step(Option<u32>),
    /// The stream.
    Stream(u64),
    /// The exact requested size.
    Size(u64),
    /// One part of the module path; a placeholder for blocks without one.
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
            Self::Category(category) => category.name().to_owned(),
            Self::Phase(origin) => origin.name().to_owned(),
            Self::Pool(pool) => pool.to_string(),
            Self::Lifetime(lifetime) => lifetime.name().to_owned(),
            Self::Op(name) | Self::Scope(name) => or_none(tables.string(name)),
            Self::Step(Some(step)) => step.to_string(),
            Self::Stream(stream) => stream.to_string(),
            Self::Size(bytes) => exact_size(bytes),
            Self::Line(Some(line)) => or_none(lines.text(line)),
            Self::Step(None) | Self::Line(None) => "(none)".to_owned(),
            Self::Block(id) => format!("block {}", id.0),
        }
    }

    /// The order of siblings with equal bytes: by name, numbers by value.
    pub(super) fn compare(self, other: Self, tables: &Tables, lines: &Lines) -> Ordering {
        let by_name = match (self, other) {
            (Self::Op(a), Self::Op(b)) | (Self::Scope(a), Self::Scope(b)) => tables.string(a).cmp(tables.string(b)),
            (Self::Line(Some(a)), Self::Line(Some(b))) => lines.text(a).cmp(lines.text(b)),
            _ => Ordering::Equal,
        };
        by_name.then_with(|| self.cmp(&other))
    }
}
