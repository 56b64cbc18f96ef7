//! Reductions over all elements in several thread blocks, with the number of blocks, and the workspace for partial
//! results.

use highwater_kernels::Grid;

use super::launch::{Launch, Queue};
use super::rows::Rows;

/// Number of blocks up to which a second kernel takes longer to start than it saves.
const NOT_WORTH_A_KERNEL: u32 = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Parts {
    blocks: u32,
    address: u64,
}

impl Parts {
    /// Returns at most `wanted` blocks, each of which writes `numbers` doubles to the workspace.
    pub(super) fn new(queue: &Queue<'_>, wanted: Grid, numbers: u64) -> Self {
        let blocks = if wanted.blocks[0] <= NOT_WORTH_A_KERNEL { 1 } else { wanted.blocks[0] };
        Self::with_room(queue, blocks, numbers)
    }

    fn with_room(queue: &Queue<'_>, wanted: u32, numbers: u64) -> Self {
        let (address, bytes) = queue.workspace();
        let most = (bytes / (8 * numbers)).min(u64::from(u32::MAX)) as u32;
        Self { blocks: wanted.min(most).max(1), address }
    }

    /// Returns the blocks for a reduction over rows that a kernel processes anyway. Their number is that of the
    /// kernel's blocks, if the workspace is large enough.
    pub(super) fn of_rows(queue: &Queue<'_>, rows: &Rows) -> Self {
        Self::with_room(queue, rows.grid().blocks[0], 1)
    }

    /// Returns the grid of the reduction, which has at least one block, since an empty input has a result too.
    pub(super) fn grid(&self) -> Grid {
        Grid::row(self.blocks)
    }

    pub(super) fn address(&self) -> u64 {
        self.address
    }

    pub(super) fn are_several(&self) -> bool {
        self.blocks > 1
    }
}

impl Launch<'_> {
    /// Adds the address and the count of the blocks' partial results, which are combined by one block.
    pub(super) fn parts(self, parts: Parts) -> Self {
        self.with(parts.address).with(parts.blocks)
    }
}
