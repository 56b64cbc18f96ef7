//! The phase in which a block was allocated.

use super::{Dimension, Values, number};
use crate::grouping::origin::Origin;

pub(super) static PHASE: Dimension = Dimension {
    hint: "phase of the allocation: forward, backward …",
    number: number!(|lookups, id| Some(lookups.origins.of(id).code() as u64)),
    word: |_, code| Origin::from_code(code as usize).word().into(),
    label: Some(|code| Origin::from_code(code as usize).name().to_owned()),
    ..Dimension::new("phase", Values::Words(|| Origin::all().map(Origin::word).collect()))
};
