//! Activation checkpointing as a change to a recording: the memory if backward recomputed some modules.
//!
//! A recomputed module keeps only its inputs and its result. For each [`Call`] of the module:
//!
//! - blocks that its forward saved for backward are freed as soon as forward no longer needs them;
//! - before backward first needs any of it, the allocations of its forward are repeated;
//! - the repeated blocks that are saved are freed where backward freed the original ones.
//!
//! Recordings of the Python package contain the references of the program and of the autograd graph to each block, in
//! the first steps. Every free is then known to within one allocation. Otherwise, the following is derived:
//!
//! | fact | known from | otherwise |
//! |---|---|---|
//! | blocks saved by forward | lifetimes: they are live until the module's backward | |
//! | the last use in forward | uses of blocks, if recorded | the end of the innermost call that can still refer to it, which is never too early |
//! | the result | blocks that later modules keep longer, or read | the last block that the call leaves live |
//!
//! PyTorch stops a recomputation as soon as all saved tensors have been recomputed; the engine of this project
//! completes it. See Chen et al., "Training Deep Nets with Sublinear Memory Cost" (2016), for the method itself, and
//! `torch.utils.checkpoint(use_reentrant=False)` for the order of events.

mod members;
mod effect;
mod calls;
mod lifetimes;
mod references;
mod referenced;
mod workspaces;
mod finder;
mod apply;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod referenced_tests;

pub use apply::{Addition, Recomputed, apply, with_additions};
pub use calls::{Call, calls};
pub use effect::{Effect, Repeat};
pub use finder::effects;
pub use members::{Members, modules};

use highwater_snapshots::{DeviceId, Trace};

use references::References;

highwater_snapshots::vocabulary!(
    /// The evidence in a recording for when blocks are last needed in forward, best first.
    Evidence {
        /// Each use of each block. Predictions are exact for blocks that end with a linear layer, as in transformers.
        Uses = "uses",
        /// The references of the program, read whenever a tensor is saved and where modules begin and end. Predictions
        /// are exact, or too high where several operations that save nothing follow each other.
        References = "references",
        /// Only lifetimes. Peaks within forward are estimates.
        Lifetimes = "lifetimes",
    }
);

impl Evidence {
    /// Returns the best evidence that `trace` contains for every step on `device`.
    pub fn of(trace: &Trace, device: DeviceId) -> Self {
        let is_followed = || References::of(trace, device).is_some_and(|references| references.is_complete(trace));
        match trace.records_uses() {
            true => Self::Uses,
            false if is_followed() => Self::References,
            false => Self::Lifetimes,
        }
    }

    /// Returns the reason references, which were recorded in some steps, are not evidence for all steps; `None` if they
    /// are, or if none were recorded.
    pub fn shortfall(trace: &Trace, device: DeviceId) -> Option<String> {
        References::of(trace, device)?.shortfall(trace).filter(|_| !trace.records_uses())
    }

    /// Returns the assumption of a prediction, as a clause.
    pub const fn assumption(self) -> &'static str {
        match self {
            Self::Uses => {
                "recomputation is predicted from the uses of blocks: modules that end with an activation or with \
                 pooling, or save only their input, may need more or less"
            }
            Self::References => {
                "recomputation is predicted from the references that were followed in the first steps: a block may be \
                 freed earlier in forward if several of the next operations save nothing"
            }
            Self::Lifetimes => {
                "uses and references are not recorded in every step, so each block that forward saves is kept until \
                 the end of the last call that can refer to it: peaks within forward are estimates, usually too high"
            }
        }
    }
}

/// The point at which a recomputation ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// When all saved tensors have been recomputed, as in PyTorch.
    UntilSaved,
    /// At the end of the module's forward, as in this project's engine.
    Whole,
}

impl Extent {
    /// Returns the point at which recomputations end in the program that made `trace`.
    pub(crate) fn of(trace: &Trace) -> Self {
        if trace.header.recorder.starts_with("highwater") { Self::Whole } else { Self::UntilSaved }
    }
}
