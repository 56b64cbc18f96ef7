//! Indexes of a trace: the effects of its events on totals, blocks, segments and addresses.

pub mod replay;
pub mod series;
pub mod capacity;
pub(crate) mod ends;
pub mod live;
pub mod bands;
pub mod device_spans;
pub mod addresses;
pub mod pools;
pub mod together;
pub mod beside;
pub mod counterfactual;
pub mod final_oom;
pub mod extremes;
pub mod last_uses;
