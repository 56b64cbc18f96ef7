//! Histograms: number and bytes of blocks by size, lifetime and similar properties.

use crate::grouping::lifetime::Lifetime;
use crate::question::between::Sum;

/// Number and bytes of the blocks in one bin of a histogram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bin {
    /// The blocks of the whole recording, including the baseline.
    pub all: Sum,
    /// Those of the blocks that are live at the peak.
    pub at_peak: Sum,
}

impl Bin {
    pub(super) fn join(&mut self, other: &Self) {
        self.all.join(&other.all);
        self.at_peak.join(&other.at_peak);
    }
}

/// Blocks whose number, such as a size, is in a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeBin {
    /// The smallest number: 0 or a power of two.
    pub from: u64,
    /// The largest number.
    pub to: u64,
    /// The blocks.
    pub bin: Bin,
}

/// Blocks of one lifetime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LifetimeRow {
    /// The lifetime.
    pub life: Lifetime,
    /// The blocks.
    pub bin: Bin,
}

/// Blocks by the number of events from their allocation to the request of their free.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lived {
    /// Blocks allocated and freed in the recording.
    pub by_events: Vec<RangeBin>,
    /// Blocks allocated before it or not freed in it, whose lifetime is unknown.
    pub open: Bin,
}

/// A bin for each power of two: 0, 1, 2 to 3, 4 to 7 and so on.
pub(super) type Powers = [Bin; 65];

/// The index of the bin that `number` falls into.
pub(super) fn bin_of(number: u64) -> usize {
    (u64::BITS - number.leading_zeros()) as usize
}

/// The bins from the first to the last that is not empty, including empty ones between them.
pub(super) fn trimmed(bins: &Powers) -> Vec<RangeBin> {
    let holds = |bin: &Bin| bin.all.blocks > 0 || bin.at_peak.blocks > 0;
    let (Some(first), Some(last)) = (bins.iter().position(holds), bins.iter().rposition(holds)) else {
        return Vec::new();
    };
    let bin = |index: usize| {
        let from = if index == 0 { 0 } else { 1 << (index - 1) };
        let to = if index == 0 { 0 } else { from + (from - 1) };
        RangeBin { from, to, bin: bins[index] }
    };
    (first..=last).map(bin).collect()
}
