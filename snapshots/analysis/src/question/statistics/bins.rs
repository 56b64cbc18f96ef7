//! Numbers and bytes of blocks by kind.

use serde::{Serialize, Serializer};

use crate::grouping::lifetime::Lifetime;

/// A number of blocks and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct BinSum {
    /// Number of blocks.
    pub blocks: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl BinSum {
    /// Adds a block.
    pub(super) fn add(&mut self, bytes: u64) {
        self.join(&Self { blocks: 1, bytes });
    }

    /// Adds the blocks of another sum.
    pub(super) fn join(&mut self, other: &Self) {
        self.blocks = self.blocks.saturating_add(other.blocks);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}

/// Blocks of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Bin {
    /// Over the whole recording, including the baseline.
    pub all: BinSum,
    /// Live at the peak.
    pub at_peak: BinSum,
}

impl Bin {
    pub(super) fn join(&mut self, other: &Self) {
        self.all.join(&other.all);
        self.at_peak.join(&other.at_peak);
    }
}

/// Blocks whose number, such as a size, is in a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct RangeBin {
    /// The smallest number: 0 or a power of two.
    pub from: u64,
    /// The largest number.
    pub to: u64,
    /// The blocks.
    #[serde(flatten)]
    pub bin: Bin,
}

/// Blocks of one lifetime.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct LifetimeRow {
    /// The lifetime.
    #[serde(rename = "lifetime", serialize_with = "word")]
    pub life: Lifetime,
    /// The blocks.
    #[serde(flatten)]
    pub bin: Bin,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde requires a reference")]
fn word<S: Serializer>(life: &Lifetime, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(life.word())
}

/// Blocks by the number of events from their allocation to the request of their free.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Lived {
    /// Blocks allocated and freed in the recording.
    pub by_events: Vec<RangeBin>,
    /// Blocks allocated before it or not freed in it, whose lifetime is unknown.
    pub open: Bin,
}

/// A bin for each power of two: 0, 1, 2 to 3, 4 to 7 and so on.
pub(super) type Powers = [Bin; 65];

/// The bin for `number`.
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
