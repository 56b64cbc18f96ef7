//! The name of the operation that allocated a block.

use highwater_snapshots::ids::StringId;

use super::{Dimension, Values, number};

pub(super) static OP: Dimension = Dimension {
    hint: "operation that allocated the block",
    number: number!(|lookups, id| {
        let tables = &lookups.trace.tables;
        let name = tables.op(lookups.trace.blocks.op[id.0 as usize]).map_or(StringId::NONE, |op| op.name);
        // An empty name reads as none.
        Some(u64::from(if tables.string(name).is_empty() { StringId::NONE } else { name }.0))
    }),
    word: |tables, name| tables.string(StringId(name as u32)).into(),
    ..Dimension::new("op", Values::Text)
};
