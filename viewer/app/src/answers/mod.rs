//! Analyses that need more than the analysis crate: what-if replays, out-of-memory analysis, plans, and outliers among
//! ranks.

pub mod request_failure;
pub mod recomputation;
pub mod prediction;
pub mod oom_analysis;
pub mod outliers;
pub mod replays;
pub mod plan;
pub mod explanation;
