//! The search box and the conditions that it applies.

pub mod condition;
pub mod terms;
pub mod completions;
pub mod search;
