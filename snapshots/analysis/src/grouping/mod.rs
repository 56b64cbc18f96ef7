//! Grouping and selecting blocks: dimensions, filters, and sums by key.

pub mod lifetime;
pub(crate) mod origin;
pub(crate) mod dimension;
pub mod filter;
pub mod condition;
pub mod matches;
pub mod vocabulary;
pub mod complete;
pub(crate) mod key_encoder;
pub mod block_values;
pub mod siblings;
pub mod breakdown;
pub mod live_groups;
