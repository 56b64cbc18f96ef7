//! Interpretation of call stacks: which frames belong to the user's code, and which stacks have the same text.

pub mod owners;
pub(crate) mod leading;
pub mod frames;
pub mod fused_form;
pub(crate) mod alike;
