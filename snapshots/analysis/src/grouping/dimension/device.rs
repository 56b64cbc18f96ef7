//! The device of a block, which can be used only in conditions.

use super::{Dimension, Values, number};

pub(super) static DEVICE: Dimension = Dimension {
    hint: "device ordinal",
    number: number!(|lookups, id| Some(u64::from(lookups.trace.blocks.device[id.0 as usize].0))),
    ..Dimension::new("device", Values::Number)
};
