//! Rewriting traces: excerpts, joins, guessed categories, recomputation and plans.

pub mod excerpt;
pub mod recompute;
pub mod plan;
pub mod guess;
pub mod join;
