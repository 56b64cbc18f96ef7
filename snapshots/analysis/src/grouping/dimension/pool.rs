//! The allocator's pool of a block: one of the two shared pools, or a private pool.

use highwater_snapshots::category::Pool;

use super::{Dimension, Values, number};
use crate::index::pools::BlockPool;

pub(super) static POOL: Dimension = Dimension {
    hint: "allocator pool: small, large, or a private one such as (0,1)",
    number: number!(|lookups, id| {
        let (trace, block) = (lookups.trace, lookups.block(id));
        Some(lookups.pools().pool(trace, &block).code())
    }),
    of_segment: |segment| Some(segment.kind.pool.code()),
    word: |_, code| BlockPool::from_code(code).to_string().into(),
    is_other_word: Some(|text| BlockPool::from_name(text).is_some()),
    ..Dimension::new("pool", Values::Words(|| Pool::ALL.iter().map(|pool| pool.name()).collect()))
};
