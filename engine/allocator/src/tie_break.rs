//! The tie-break between free ranges of equal size.

/// The tie-break between free ranges of equal size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TieBreak {
    /// The range in the oldest segment.
    #[default]
    OldestSegment,
    /// The range at the lowest address, as in PyTorch until about version 2.6.
    LowestAddress,
}
