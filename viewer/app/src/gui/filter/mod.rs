//! The search box and the conditions that it applies.

pub(crate) mod completions;
pub(crate) mod search;
