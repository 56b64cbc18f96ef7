//! The whole call stack of an allocation, innermost frame first.

use highwater_snapshots::ids::StackId;

use super::{Dimension, Values, number};

pub(super) static STACK: Dimension = Dimension {
    hint: "whole call stack of the allocation",
    number: number!(|lookups, id| Some(u64::from(lookups.trace.blocks.stack[id.0 as usize].0))),
    of_segment: |segment| segment.stack.map(|stack| u64::from(stack.0)),
    word: |tables, stack| tables.stack_text(StackId(stack as u32)).join("\n").into(),
    ..Dimension::new("stack", Values::Stack)
};
