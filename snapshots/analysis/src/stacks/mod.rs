//! Reading call stacks: which frames are the user's own, which stacks read alike.

pub mod owners;
pub(crate) mod leading;
pub mod frames;
pub mod fused_form;
pub(crate) mod alike;
