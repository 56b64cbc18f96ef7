//! The innermost source line of an allocation that is in neither an allocator nor a framework.

use super::stack::STACK;
use super::{Dimension, Values};

pub(super) static FRAME: Dimension = Dimension {
    hint: "any single frame of the call stack",
    number: STACK.number,
    of_segment: STACK.of_segment,
    ..Dimension::new("frame", Values::Line)
};
