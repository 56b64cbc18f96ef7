//! The step in which a block was allocated.

use super::{Dimension, Values, number};

pub(super) static STEP: Dimension = Dimension {
    hint: "training step of the allocation",
    number: number!(|lookups, id| lookups.origins.step(id).map(u64::from)),
    of_segment: |segment| segment.step.map(u64::from),
    ..Dimension::new("step", Values::Number)
};
