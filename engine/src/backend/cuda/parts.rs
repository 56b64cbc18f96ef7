//! Reductions over all elements in several thread blocks: their number, and the workspace for partial results.

use highwater_kernels::Grid;

use super::launch::{Launch, Queue};
use super::rows::Rows;

/// Up to so many blocks' work takes one block less time than a second kernel.
const NOT_WORTH_A_KERNEL: u32 = 8;

/// The blocks of a fold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Parts {
    blocks: u32,
    address: u64,
}

impl Parts {
    /// For what `wanted` blocks would do, each of which leaves `numbers` doubles.
    pub(super) fn new(queue: &Queue<'_>, wanted: Grid, numbers: u64) -> Self {
        let blocks = if wanted.blocks[0] <= NOT_WORTH_A_KERNEL { 1 } else { wanted.blocks[0] };
        Self::with_room(queue, blocks, numbers)
    }

    fn with_room(queue: &Queue<'_>, wanted: u32, numbers: u64) -> Self {
        let (address, bytes) = queue.workspace();
        let most = (bytes / (8 * numbers)).min(u64::from(u32::MAX)) as u32;
        Self { blocks: wanted.min(most).max(1), address }
    }

    /// For what is folded of rows, while they are gone over: by as many blocks as go over them, if there is room.
    pub(super) fn of_rows(queue: &Queue<'_>, rows: &Rows) -> Self {
        Self::with_room(queue, rows.grid().blocks[0], 1)
    }

    /// The blocks that fold: at least one, as there is a result of nothing too.
    pub(super) fn grid(&self) -> Grid {
        Grid::row(self.blocks)
    }

    /// Where each block leaves what it has.
    pub(super) fn address(&self) -> u64 {
        self.address
    }

    /// Whether several blocks leave something, which a second kernel puts together.
    pub(super) fn are_several(&self) -> bool {
        self.blocks > 1
    }
}

impl Launch<'_> {
    /// Adds where blocks left what they have, and how many did; one block puts it together.
    pub(super) fn parts(self, parts: Parts) -> Self {
        self.with(parts.address).with(parts.blocks)
    }
}
