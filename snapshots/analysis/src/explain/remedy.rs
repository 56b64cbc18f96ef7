//! Remedy: what could be done about a peak, and what that would give.

use crate::peak::Moment;

/// What could be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Remedy {
    /// An optimizer without intermediate results for all parameters at once.
    FusedOptimizer,
    /// The optimizer's step within backward.
    StepInBackward,
    /// Activations computed again in backward.
    Checkpoint,
    /// Fewer or smaller activations, where no modules are named.
    FewerActivations,
    /// Optimizer state in fewer bytes, or on more devices.
    SmallerState,
    /// Blocks that are freed when they were used for the last time.
    FreeAfterLastUse,
    /// Intermediate results that are alive at once.
    FewerTemporaries,
    /// Segments that grow.
    ExpandableSegments,
    /// Blocks that another stream holds back.
    StreamWaits,
    /// Memory that others use.
    OutsideAllocator,
    /// A recording that begins earlier.
    EarlierRecording,
    /// Blocks that lines of the program keep of every step.
    FixLeak,
    /// Fewer or smaller buffers.
    SmallerBuffers,
}

/// One piece of advice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advice {
    /// What could be done.
    pub remedy: Remedy,
    /// The bytes at the peak that it concerns.
    pub bytes: u64,
    /// The peak without all of these blocks. None where the remedy does not remove them all, or concerns no blocks.
    pub without: Option<Moment>,
    /// Allocator settings whose effect a replay tells; none where the remedy is no setting.
    pub settings: Option<&'static str>,
    /// The condition that picks the blocks in question, as `--where` has it; none where it is about no blocks, or where
    /// no short condition picks exactly these.
    pub condition: Option<String>,
    /// All that in words.
    pub text: String,
}
