//! Classifies blocks by the phases and steps in which they are allocated and freed.

use highwater_snapshots::trace::{Block, Trace};

highwater_snapshots::vocabulary!(
    /// The lifetime of a block, with the name used in tables and legends.
    Lifetime {
        /// Live before the recording and at its end.
        Always = "whole recording",
        /// Live before the recording, and freed during it.
        FreedBaseline = "from before, freed",
        /// Freed in the phase of its allocation.
        Phase = "within a phase",
        /// Freed in a later phase of its step.
        Step = "within a step",
        /// Freed in a later step than allocated.
        Steps = "across steps",
        /// Live at the end of the recording.
        Kept = "kept to the end",
    }
);

impl Lifetime {
    /// The word used in conditions.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Always => "always",
            Self::FreedBaseline => "before",
            Self::Phase => "phase",
            Self::Step => "step",
            Self::Steps => "steps",
            Self::Kept => "kept",
        }
    }

    /// The lifetime of `block`.
    pub fn of(trace: &Trace, block: &Block) -> Self {
        match (block.is_from_before(), block.is_freed()) {
            (true, false) => Self::Always,
            (true, true) => Self::FreedBaseline,
            (false, false) => Self::Kept,
            (false, true) => match (trace.birth_stage(block), trace.death_stage(block)) {
                (Some(made), Some(ended)) if made == ended => Self::Phase,
                (Some(made), Some(ended)) if made.step == ended.step => Self::Step,
                _ => Self::Steps,
            },
        }
    }
}

/// The step in which a block was allocated; `None` for baseline blocks and outside of steps.
pub fn step_of(trace: &Trace, block: &Block) -> Option<u32> {
    trace.birth_stage(block)?.step
}
