//! Interpretation of call stacks: the frames that belong to the user's code, and stacks with the same text.

pub mod owners;
pub(crate) mod leading;
pub mod frames;
pub mod fused_form;
pub(crate) mod alike;
