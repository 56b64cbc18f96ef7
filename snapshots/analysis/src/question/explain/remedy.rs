//! Ways to lower a peak, and advice with the effect of each.

use crate::question::peak::Moment;

/// A way to lower a peak.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Remedy {
    /// Use an optimizer that does not compute intermediate results for all parameters at once.
    FusedOptimizer,
    /// Run the optimizer step in backward.
    StepInBackward,
    /// Recompute activations in backward.
    Checkpoint,
    /// Reduce activations. Used if [`Self::Checkpoint`] does not apply.
    FewerActivations,
    /// Use a smaller optimizer state, or shard it.
    SmallerState,
    /// Free blocks immediately after their last use.
    FreeAfterLastUse,
    /// Reduce temporaries that are live at once.
    FewerTemporaries,
    /// Use expandable segments.
    ExpandableSegments,
    /// Let CUDA graphs share a private pool.
    SharePools,
    /// Avoid freed blocks that another stream still uses.
    StreamWaits,
    /// Reduce memory used outside the allocator.
    OutsideAllocator,
    /// Start recording earlier.
    EarlierRecording,
    /// Fix lines of the program that leak memory in every step.
    FixLeak,
    /// Reduce buffers.
    SmallerBuffers,
    /// Keep segments for reuse instead of freeing them to the driver.
    KeepSegments,
}

impl Remedy {
    /// What the remedy is about, such as `Activations`.
    pub const fn subject(self) -> &'static str {
        match self {
            Self::FusedOptimizer => "Optimizer temporaries",
            Self::StepInBackward => "Gradients",
            Self::Checkpoint | Self::FewerActivations => "Activations",
            Self::SmallerState => "Optimizer state",
            Self::FreeAfterLastUse => "Blocks kept after their last use",
            Self::FewerTemporaries => "Temporaries",
            Self::ExpandableSegments | Self::KeepSegments => "Segments",
            Self::SharePools => "Private pools",
            Self::StreamWaits => "Blocks awaiting free",
            Self::OutsideAllocator => "Memory outside the allocator",
            Self::EarlierRecording => "Blocks from before the recording",
            Self::FixLeak => "Leaks",
            Self::SmallerBuffers => "Buffers",
        }
    }
}

/// A piece of advice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advice {
    /// The suggested change to the program.
    pub remedy: Remedy,
    /// Bytes at the peak that the advice concerns.
    pub bytes: u64,
    /// The peak without these blocks. `None` if the remedy does not remove all of them, or does not refer to blocks.
    pub without: Option<Moment>,
    /// Allocator settings to try in a replay; `None` if the remedy is not a setting.
    pub settings: Option<&'static str>,
    /// The `--where` condition for the blocks; `None` if there are no blocks, or no short condition selects them.
    pub condition: Option<String>,
    /// The advice as text.
    pub text: String,
    /// The peak with the remedy; `None` unless a replay or prediction determined it.
    pub peak_with: Option<u64>,
}

impl Advice {
    pub(super) const fn new(remedy: Remedy, bytes: u64, text: String) -> Self {
        Self { remedy, bytes, without: None, settings: None, condition: None, text, peak_with: None }
    }

    /// Returns the reduction of a peak of `peak` bytes; `None` if the remaining peak is unknown.
    pub fn saving(&self, peak: u64) -> Option<u64> {
        let left = self.peak_with.or(self.without.map(|without| without.bytes))?;
        Some(peak.saturating_sub(left))
    }

    /// Sorts advice by saving, with leaks first. Advice without a known saving on activations and buffers is ranked by
    /// their size.
    pub fn sort(advice: &mut [Self], peak: u64) {
        let rank = |one: &Self| match one.remedy {
            Remedy::Checkpoint | Remedy::FewerActivations | Remedy::SmallerBuffers => one.bytes,
            _ => 0,
        };
        let saving = |one: &Self| one.saving(peak).unwrap_or_else(|| rank(one));
        advice.sort_by_key(|one| std::cmp::Reverse((one.remedy == Remedy::FixLeak, saving(one), one.bytes)));
    }
}
