//! The lifetime of a block, in phases and steps.

use super::{Dimension, Values, number};
use crate::grouping::lifetime::Lifetime;

pub(super) static LIFETIME: Dimension = Dimension {
    hint: "lifetime of the block: phase, step, steps, kept …",
    number: number!(|lookups, id| {
        let is_within_phase = lookups.origins.is_within_phase(id);
        Some(if is_within_phase { Lifetime::Phase } else { Lifetime::of(lookups.trace, &lookups.block(id)) } as u64)
    }),
    word: |_, code| lifetime(code).word().into(),
    label: Some(|code| lifetime(code).name().to_owned()),
    ..Dimension::new("lifetime", Values::Words(|| Lifetime::ALL.iter().map(|life| life.word()).collect()))
};

fn lifetime(code: u64) -> Lifetime {
    Lifetime::ALL.get(code as usize).copied().unwrap_or(Lifetime::Kept)
}
