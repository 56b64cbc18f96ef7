//! The size of a block after the allocator's rounding, which can be used only in conditions.

use super::{Dimension, Values, number};

pub(super) static ALLOCATED: Dimension = Dimension {
    hint: "size after the allocator's rounding",
    number: number!(|lookups, id| Some(lookups.trace.blocks.allocated[id.0 as usize])),
    ..Dimension::new("allocated", Values::Bytes)
};
