//! Histograms of the number and bytes of blocks, by size, by lifetime, and so on.

use crate::grouping::lifetime::Lifetime;
use crate::question::between::Sum;

/// Number and bytes of the blocks in one bin of a histogram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bin {
    /// All counted blocks of the device, including the baseline.
    pub all: Sum,
    /// Those that are live at the peak.
    pub at_peak: Sum,
}

impl Bin {
    pub(super) fn join(&mut self, other: &Self) {
        self.all.join(&other.all);
        self.at_peak.join(&other.at_peak);
    }
}

/// The blocks whose value, such as size, is in a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeBin {
    /// The smallest value: 0 or a power of two.
    pub from: u64,
    /// The largest value, inclusive.
    pub to: u64,
    /// Number and bytes of the blocks in this range.
    pub bin: Bin,
}

/// The blocks with a given lifetime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LifetimeRow {
    /// The lifetime that the blocks have in common.
    pub life: Lifetime,
    /// Number and bytes of the blocks with this lifetime.
    pub bin: Bin,
}

/// Blocks by lifetime, measured in events from the allocation to the requested free.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lived {
    /// Blocks allocated and freed in the recording.
    pub by_events: Vec<RangeBin>,
    /// Blocks with unknown lifetime: allocated before the recording, or not freed in it.
    pub open: Bin,
}

/// One bin per power of two: 0, 1, 2 to 3, 4 to 7, and so on.
pub(super) type Powers = [Bin; 65];

pub(super) fn bin_of(number: u64) -> usize {
    (u64::BITS - number.leading_zeros()) as usize
}

/// Returns the bins from the first to the last non-empty one, including empty bins between them.
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
