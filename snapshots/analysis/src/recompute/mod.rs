//! Activation checkpointing as a change to a recording: the memory of the same run, if some modules were recomputed in
//! backward.
//!
//! A recomputed module keeps only its inputs and its result. For each [`Call`] of it:
//!
//! - what its forward saved for backward is freed as soon as forward no longer needs it;
//! - before backward first needs any of it, the allocations of its forward are repeated;
//! - what was repeated and saved is freed where backward freed it.
//!
//! | fact | known from | otherwise |
//! |---|---|---|
//! | what forward saved | lifetimes: it lives until the module's backward | |
//! | when forward last needs it | uses of blocks, if recorded | the end of the innermost call that can still refer to it, which is never too early |
//! | the result | what later modules keep longer, or read | the last block that the call leaves live |
//!
//! PyTorch stops a recomputation as soon as everything that was saved is there again; the engine of this project
//! completes it. See Chen et al., "Training Deep Nets with Sublinear Memory Cost" (2016), for the method itself, and
//! `torch.utils.checkpoint(use_reentrant=False)` for the order of events.

mod members;
mod calls;
mod lifetimes;
mod effect;
mod apply;
#[cfg(test)]
mod tests;

pub use apply::{Recomputed, apply};
pub use calls::{Call, calls};
pub use effect::{Effect, Repeat, effects};
pub use members::{Members, modules};

use highwater_snapshots::Trace;

/// How a recomputation ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// When everything that was saved has been recomputed, as in PyTorch.
    UntilSaved,
    /// With the end of the module's forward, as in this project's engine.
    Whole,
}

impl Extent {
    /// Returns how the program that made `trace` recomputes.
    pub fn of(trace: &Trace) -> Self {
        if trace.header.recorder.starts_with("highwater") { Self::Whole } else { Self::UntilSaved }
    }
}
