//! The stream that a block was allocated for.

use super::{Dimension, Values, number};

pub(super) static STREAM: Dimension = Dimension {
    hint: "stream of the allocation",
    number: number!(|lookups, id| Some(lookups.trace.blocks.stream[id.0 as usize].0)),
    of_segment: |segment| Some(segment.kind.stream.0),
    ..Dimension::new("stream", Values::Number)
};
