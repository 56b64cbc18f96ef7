//! TieBreak: which of several free ranges of equal size is taken.

/// Which of several free ranges of equal size is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TieBreak {
    /// That of the oldest segment.
    #[default]
    OldestSegment,
    /// That of the lowest address, as PyTorch did it until version 2.6 or so.
    LowestAddress,
}
