//! The search box and the conditions that it applies.

pub mod completions;
pub mod search;
