//! The times of allocation and the lifetimes of blocks, in phases and steps.

use highwater_snapshots::trace::{Block, Trace};

/// The lifetime of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lifetime {
    /// Live before the recording and at its end.
    Always,
    /// Live before the recording, freed in it.
    FreedBaseline,
    /// Freed in the phase of its allocation.
    Phase,
    /// Freed in a later phase of its step.
    Step,
    /// Freed in a later step.
    Steps,
    /// Live at the end.
    Kept,
}

impl Lifetime {
    /// Every lifetime.
    pub const ALL: [Self; 6] = [Self::Always, Self::FreedBaseline, Self::Phase, Self::Step, Self::Steps, Self::Kept];

    /// The name for tables and legends.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Always => "whole recording",
            Self::FreedBaseline => "from before, freed",
            Self::Phase => "within a phase",
            Self::Step => "within a step",
            Self::Steps => "across steps",
            Self::Kept => "kept to the end",
        }
    }

    /// The word for it in conditions.
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

/// The step in which a block was allocated; `None` for baseline blocks and before the first step.
pub fn step_of(trace: &Trace, block: &Block) -> Option<u32> {
    trace.birth_stage(block)?.step
}
